// What a job is asked for in the submit dialog: an application's schema, the values that people
// have given, and what is wrong with them by the very check that proxies make.
//
// Threading  Thread-confined.
#pragma once

#include <QString>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "onepiece/v1/generation.pb.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::gui {

/// How a parameter is best asked for.
enum class EditorKind { kLine, kText, kChoice, kCheck, kInteger, kNumber };
EditorKind EditorOf(const v1::ParameterSpec& spec);
/// "16 to 512, a multiple of 16", "at most 4096 bytes"; empty: anything.
QString RangeText(const v1::ParameterSpec& spec);

/// A file that was chosen for an input.
struct InputFile {
  std::string path;  ///< As the CLI would be given it.
  std::string media_type;
  std::shared_ptr<const std::string> bytes;  ///< Never null when it was read.
};

/// Reads a file for an input; blocks for the time of reading. Errors: INVALID_ARGUMENT
/// (BAD_INPUT_FILE: missing, unreadable, empty, a folder, more than `max_bytes`).
absl::StatusOr<InputFile> ReadInputFile(const std::string& path, std::int64_t max_bytes);

/// What people have given for one application; kept from one dialog to the next.
struct JobValues {
  std::map<std::string, std::string> parameters;  ///< Text forms; left out: the default.
  std::map<std::string, InputFile> inputs;
};

class JobForm {
 public:
  explicit JobForm(v1::Workflow workflow, JobValues values = {});

  [[nodiscard]] const v1::Workflow& workflow() const { return workflow_; }
  [[nodiscard]] const JobValues& values() const { return values_; }
  /// The text form of what the job gets: given, or the default.
  [[nodiscard]] std::string Text(const std::string& parameter) const;
  /// Text that equals the default is left out of the request.
  void Set(const std::string& parameter, std::string text);
  void SetInput(const std::string& input, InputFile file);
  void ClearInput(const std::string& input);

  /// By parameter and by input, why it is refused; "" for what is wrong with all together. Empty:
  /// nothing is.
  [[nodiscard]] std::map<std::string, std::string> Violations() const;
  /// Copies the files' bytes.
  [[nodiscard]] v1::SubmitJobRequest Request(const std::string& request_id) const;
  /// The same job on the command line, quoted for a POSIX shell.
  [[nodiscard]] QString CommandLine() const;

 private:
  [[nodiscard]] const v1::ParameterSpec* Find(const std::string& parameter) const;
  [[nodiscard]] google::protobuf::Struct Parameters(
      std::map<std::string, std::string>* violations) const;
  void CheckFiles();

  v1::Workflow workflow_;
  JobValues values_;
  absl::Status files_;  ///< Checked when they change: they are large.
};

/// What a job was asked for, to ask for it again. Its files are not kept by the cluster.
JobValues ValuesOf(const v1::Job& job);

/// One word of a POSIX shell.
std::string ShellQuoted(std::string_view text);

}  // namespace onepiece::gui
