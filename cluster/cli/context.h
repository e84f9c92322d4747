// What every verb of the command line stands on: global options, output, errors and exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/shutdown.h"
#include "cluster/client/client.h"

namespace onepiece::cli {

/// JSON documents keep the order in which they are written.
using Json = nlohmann::ordered_json;

enum ExitCode : int {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,
  kNotFound = 3,
  kPrecondition = 4,
  kPermission = 5,
  kUnavailable = 69,
  kRetryLater = 75,
  kBadConfig = 78,
  kInterrupted = 130,
};

/// The table of exit codes, for --help.
std::string ExitCodesHelp();
/// The exit code that stands for an error.
int ExitCodeOf(const absl::Status& status);

/// Options that every verb takes, and how verbs speak. Thread-confined.
class Context {
 public:
  std::string data_dir;
  std::vector<std::string> nodemanagers;
  std::vector<std::string> proxies;
  bool json = false;
  /// Set by the verb that was chosen; main() runs it and returns its exit code.
  std::function<int()> action;

  /// A client of the cluster that --nodemanager, --proxy or --data-dir names. Errors: UNAVAILABLE
  /// (no cluster runs).
  [[nodiscard]] absl::StatusOr<std::unique_ptr<client::Client>> MakeClient() const;
  /// The same for verbs that ask the NodeManager: --proxy alone does not name the cluster then.
  /// Errors: INVALID_ARGUMENT (NO_NODEMANAGER: only proxies are given and no cluster runs here).
  [[nodiscard]] absl::StatusOr<std::unique_ptr<client::Client>> MakeManagerClient() const;

  /// stdout: a JSON document with --json, else `text`.
  void Print(const Json& document, std::string_view text) const;
  /// A message for people on stderr; nothing with --json.
  void Say(std::string_view text) const;
  /// Reports an error (stderr; also a JSON document with --json) and returns its exit code.
  int Fail(const absl::Status& status) const;
  /// The same with an exit code of the caller's.
  int Fail(const absl::Status& status, int exit_code) const;
};

/// A progress bar on stderr, drawn only on a terminal. Thread-confined.
class ProgressBar {
 public:
  explicit ProgressBar(const Context& context);
  /// Erases the bar.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// Draws `share` (0 to 1) and a few words.
  void Show(double share, std::string_view what);
  void Erase();

 private:
  bool enabled_;
  bool drawn_ = false;
};

/// Turns Ctrl-C and SIGTERM into a stop token for one verb. Construct before any thread starts; a
/// second signal ends the process at once with exit code 130.
class Interrupt {
 public:
  Interrupt();
  [[nodiscard]] std::stop_token token() const { return source_.get_token(); }

 private:
  base::ShutdownSignals signals_;
  std::stop_source source_;
  std::jthread thread_;
};

/// Adds a verb that talks to the NodeManager.
CLI::App* AddManagerVerb(CLI::App& parent, Context& context, const std::string& name,
                         const std::string& help, std::function<int(client::Client& client)> run);

/// "1.5 MiB"
std::string HumanBytes(std::int64_t bytes);

}  // namespace onepiece::cli
