// Runs another program to its end.
#pragma once

#include <QtTest>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace onepiece::testing {

/// Why a job that `onepiece … --json` printed failed; empty when it did not.
inline std::string ErrorReason(const nlohmann::json& job) {
  if (!job.is_object() || !job.contains("error") || !job["error"].is_object()) return "";
  return job["error"].value("reason", "");
}

struct Outcome {
  int exit_code = -1;  ///< -1: it was killed, or did not end in time.
  std::string out, err;
  [[nodiscard]] nlohmann::json Document() const {
    return nlohmann::json::parse(out, nullptr, false);
  }
  [[nodiscard]] bool Says(const std::string& text) const {
    return out.find(text) != std::string::npos || err.find(text) != std::string::npos;
  }
  /// Of the error in the printed document; empty when there is none.
  [[nodiscard]] std::string ErrorReason() const { return testing::ErrorReason(Document()); }
};

/// Without an input. `environment`: changes to this process's; empty values are removed.
inline Outcome RunProgram(const QString& program, const QStringList& arguments, int timeout_s = 30,
                          const std::map<QString, QString>& environment = {}) {
  QProcess process;
  QProcessEnvironment changed = QProcessEnvironment::systemEnvironment();
  for (const auto& [name, value] : environment)
    value.isEmpty() ? changed.remove(name) : changed.insert(name, value);
  process.setProcessEnvironment(changed);
  process.setStandardInputFile(QProcess::nullDevice());
  process.start(program, arguments);
  Outcome outcome;
  if (!process.waitForFinished(timeout_s * 1000)) {
    process.kill();
    process.waitForFinished();
  } else if (process.exitStatus() == QProcess::NormalExit) {
    outcome.exit_code = process.exitCode();
  }
  outcome.out = process.readAllStandardOutput().toStdString();
  outcome.err = process.readAllStandardError().toStdString();
  return outcome;
}

/// The path of a program of the system; empty when there is none.
inline QString FindProgram(const QString& program) {
  const QString found = QStandardPaths::findExecutable(program);
  return found.isEmpty() ? QStandardPaths::findExecutable(program, {"/usr/sbin", "/sbin"}) : found;
}

}  // namespace onepiece::testing
