// Plug-ins built outside the tree, against the installed SDK.
#pragma once

#include <QString>
#include <QStringList>
#include <string>

#include "tests/program.h"

namespace onepiece::examples {

/// Returns an empty text if the program succeeds, else its output.
inline std::string RunTool(const QString& program, const QStringList& arguments) {
  constexpr int kTimeoutS = 300;
  const testing::Outcome outcome = testing::RunProgram(program, arguments, kTimeoutS);
  return outcome.exit_code == 0 ? "" : program.toStdString() + ": " + outcome.out + outcome.err;
}

/// Installs the SDK into `sdk` and builds the project in `source` with it into `build`. Returns an
/// empty text on success, else the output of the tool that failed.
inline std::string BuildAgainstSdk(const QString& sdk, const QString& source,
                                   const QString& build) {
  const QStringList steps[] = {
      {"--install", ONEPIECE_BINARY_DIR, "--component", "sdk", "--prefix", sdk},
      {"-S", source, "-B", build, "-DCMAKE_PREFIX_PATH=" + sdk},
      {"--build", build}};
  for (const QStringList& arguments : steps) {
    if (std::string said = RunTool("cmake", arguments); !said.empty()) return said;
  }
  return "";
}

}  // namespace onepiece::examples
