// A real embedded cluster in a temporary directory, driven through the `onepiece` command.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <QtTest>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cluster/local/data_dir.h"
#include "tests/eventually.h"
#include "tests/program.h"

namespace onepiece::e2e {

using nlohmann::json;
using testing::Eventually;
using testing::Outcome;

/// Thread-confined.
class ClusterUnderTest {
 public:
  [[nodiscard]] std::string Path(const std::string& name) const {
    return temp_.path().toStdString() + "/" + name;
  }

  /// Runs `onepiece ARGUMENTS --data-dir …` to its end.
  Outcome Run(const QStringList& arguments, int timeout_s = 180) const {
    return testing::RunProgram(
        ONEPIECE_BINARY_DIR "/bin/onepiece",
        arguments + QStringList{"--data-dir", QString::fromStdString(Path("data"))}, timeout_s);
  }

  /// Submits a job and returns its UID; empty when it was refused.
  std::string Submit(const QStringList& arguments) const {
    const json document = Run(QStringList{"submit", "--json"} + arguments).Document();
    return document.is_object() ? document.value("uid", "") : "";
  }

  json Status() const { return Run({"status", "--json"}).Document(); }
  /// What `get` prints; an empty object when it has no answer.
  json Get(const std::string& uid) const {
    json job = Run({"get", QString::fromStdString(uid), "--json"}).Document();
    return job.is_object() ? job : json::object();
  }

  bool EveryProcessReady() const {
    const json status = Status();
    if (!status.is_object() || !status.contains("processes") || status["processes"].empty())
      return false;
    for (const auto& process : status["processes"]) {
      if (process.value("state", "") != "READY") return false;
    }
    return true;
  }

  /// host:port of a proxy; empty when there is none.
  std::string ProxyAddress() const {
    const json status = Status();
    for (const auto& process : status["processes"]) {
      if (process.value("role", "") == "proxy") return process.value("address", "");
    }
    return "";
  }

  /// What `status` says of a process; an empty object when there is none of that name.
  json Process(const std::string& node) const {
    const json status = Status();
    for (const auto& process : status["processes"]) {
      if (process.value("node_id", "") == node) return process;
    }
    return json::object();
  }
  int PidOf(const std::string& node) const { return Process(node).value("pid", 0); }

  /// Ends the cluster; every process and shared memory segment of it that is left, as text.
  std::string DownAndListLeftovers() const {
    const auto dir = local::DataDir{Path("data")};
    const auto state = local::ReadState(dir);
    const std::string cluster_id = local::ReadFile(Path("data") + "/cluster_id");
    const Outcome down = Run({"down"});
    std::string left = down.exit_code == 0 ? "" : "down failed: " + down.err;
    if (state.ok() && state->has_value()) {
      std::vector<local::ProcessId> processes = {(*state)->supervisor};
      for (const auto& record : state->value().processes) processes.push_back(record.process);
      for (const auto& process : processes) {
        if (local::IsRunning(process)) left += " pid " + std::to_string(process.pid);
      }
    }
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      const std::string name = entry.path().filename().string();
      if (!cluster_id.empty() && name.starts_with("onepiece." + cluster_id)) left += " " + name;
    }
    return left;
  }

  /// The services' logs, for a failed test's report.
  std::string Logs() const {
    std::string text;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(Path("data/logs"), error)) {
      std::string log = local::ReadFile(entry.path().string());
      constexpr std::size_t kTailBytes = 3000;
      if (log.size() > kTailBytes) log.erase(0, log.size() - kTailBytes);
      text += "--- " + entry.path().filename().string() + "\n" + log;
    }
    return text;
  }

 private:
  QTemporaryDir temp_;
};

}  // namespace onepiece::e2e
