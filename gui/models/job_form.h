// The content of the submit dialog: an application's schema, the values that people have given, and
// what is wrong with them. The proxies' own check decides what is wrong.
//
// Threading: thread-confined.
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

/// The widget that suits a parameter.
enum class EditorKind { kLine, kText, kChoice, kCheck, kInteger, kNumber };
EditorKind EditorOf(const v1::ParameterSpec& spec);
/// "16 to 512, a multiple of 16", "at most 4096 bytes". Empty if anything is allowed.
QString RangeText(const v1::ParameterSpec& spec);

/// A file chosen for an input.
struct InputFile {
  std::string path;  ///< As one would give it to the CLI.
  std::string media_type;
  std::shared_ptr<const std::string> bytes;  ///< Not null after ReadInputFile().
};

/// Reads a file for an input.
///
/// Blocking: for as long as the file system takes.
/// Errors: INVALID_ARGUMENT with reason BAD_INPUT_FILE when the file is missing, unreadable, empty,
/// a folder, or larger than `max_bytes`.
absl::StatusOr<InputFile> ReadInputFile(const std::string& path, std::int64_t max_bytes);

/// The values given for one application. The next dialog for the same application begins with them.
struct JobValues {
  /// Text forms. A parameter that is absent has its default.
  std::map<std::string, std::string> parameters;
  std::map<std::string, InputFile> inputs;
};

/// Builds a request, or a command line, from the values given for one workflow.
class JobForm {
 public:
  explicit JobForm(v1::Workflow workflow, JobValues values = {});

  [[nodiscard]] const v1::Workflow& workflow() const { return workflow_; }
  [[nodiscard]] const JobValues& values() const { return values_; }
  /// The text form of the value that the job gets: the given one or the default.
  [[nodiscard]] std::string Text(const std::string& parameter) const;
  /// Sets a parameter. A text that equals the default is left out of the request.
  void Set(const std::string& parameter, std::string text);
  void SetInput(const std::string& input, InputFile file);
  void ClearInput(const std::string& input);

  /// Why the job would be refused, by the name of the parameter or input. The key "" holds what
  /// concerns all of them together. Empty if the job is valid.
  [[nodiscard]] std::map<std::string, std::string> Violations() const;
  /// The request with the bytes of all files, which are copied.
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
  /// The result of the files' check. It is kept because checking large files is slow.
  absl::Status files_;
};

/// The values that a job was submitted with, to submit them again. The cluster does not keep a
/// job's files, so there are none.
JobValues ValuesOf(const v1::Job& job);

/// The text as one word of a POSIX shell.
std::string ShellQuoted(std::string_view text);

}  // namespace onepiece::gui
