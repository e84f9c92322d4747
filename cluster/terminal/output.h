// How a command writes its output: one JSON document on stdout with --json, else text. Messages for
// people and errors go to stderr.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cluster/terminal/exit_code.h"
#include "cluster/terminal/json.h"

namespace onepiece::terminal {

/// The output of one command, and the action that the command line chose.
///
/// Threading: used by one thread.
class Output {
 public:
  bool json = false;
  /// The verb that was chosen sets it; RunCommandLine() calls it and returns its exit code.
  std::function<int()> action;

  /// Writes to stdout: `document` with --json, else `text`.
  void Print(const Json& document, std::string_view text) const;
  /// Writes a message for people to stderr; writes nothing with --json.
  void Say(std::string_view text) const;
  /// Reports an error on stderr, and with --json as a document on stdout too. Returns its exit
  /// code.
  int Fail(const absl::Status& status) const;
  /// Does the same with an exit code that the caller chooses.
  int Fail(const absl::Status& status, int exit_code) const;
};

/// Parses the command line of a program into `app`, runs the action that the chosen verb put into
/// `output`, and returns the exit code. A wrong command line is reported as USAGE (exit code 2).
int RunCommandLine(CLI::App& app, Output& output, int argc, char** argv);

/// Writes a size for people: "1.5 MiB".
std::string HumanBytes(std::int64_t bytes);

}  // namespace onepiece::terminal
