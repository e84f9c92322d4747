#include "tests/e2e/cluster_fixture.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cluster/local/control.h"
#include "cluster/local/data_dir.h"
#include "cluster/local/identities.h"

namespace onepiece::e2e {

std::string FramesHash(const json& job) {
  if (!job.is_object()) return "";
  for (const auto& artifact : job.value("artifacts", json::array())) {
    if (artifact.value("artifact", "") == "frames_sha256") return artifact.value("sha256", "");
  }
  return "";
}

bool ClusterUnderTest::Up(const QStringList& arguments) const {
  const Outcome up = Run(QStringList{"up"} + arguments);
  if (up.exit_code != 0) qWarning("%s", (up.err + Logs()).c_str());
  return up.exit_code == 0 && ShowIdentity();
}

bool ClusterUnderTest::ShowIdentity() const {
  const auto state = local::FindCluster(Path("data"));
  return state.ok() && local::ShowIdentity(state->identity).ok();
}

bool ClusterUnderTest::UpWith(const std::string& cluster_yaml) const {
  const std::string file = Path("cluster.yaml");
  std::ofstream(file) << cluster_yaml;
  return Up({"--config", QString::fromStdString(file)});
}

Outcome ClusterUnderTest::Run(const QStringList& arguments, int timeout_s) const {
  return testing::RunProgram(
      ONEPIECE_BINARY_DIR "/bin/onepiece",
      arguments + QStringList{"--data-dir", QString::fromStdString(Path("data"))}, timeout_s);
}

std::string ClusterUnderTest::Submit(const QStringList& arguments) const {
  const json document = Run(QStringList{"submit", "--json"} + arguments).Document();
  return document.is_object() ? document.value("uid", "") : "";
}

json ClusterUnderTest::Watch(const std::string& uid) const {
  return Run({"watch", QString::fromStdString(uid), "--json"}).Document();
}

json ClusterUnderTest::Get(const std::string& uid) const {
  json job = Run({"get", QString::fromStdString(uid), "--json"}).Document();
  return job.is_object() ? job : json::object();
}

bool ClusterUnderTest::EveryProcessReady() const {
  const json status = Status();
  if (!status.is_object() || !status.contains("processes") || status["processes"].empty())
    return false;
  return std::ranges::all_of(status["processes"], [](const json& process) {
    return process.value("state", "") == "READY";
  });
}

std::string ClusterUnderTest::ProxyAddress() const {
  const json status = Status();
  for (const auto& process : status["processes"]) {
    if (process.value("role", "") == "proxy") return process.value("address", "");
  }
  return "";
}

json ClusterUnderTest::Process(const std::string& node) const {
  const json status = Status();
  for (const auto& process : status["processes"]) {
    if (process.value("node_id", "") == node) return process;
  }
  return json::object();
}

std::vector<json> ClusterUnderTest::Instances() const {
  std::vector<json> instances;
  const json status = Status();
  for (const auto& process : status["processes"]) {
    if (process.value("role", "") == "instance") instances.push_back(process);
  }
  return instances;
}

json ClusterUnderTest::Serving(const std::string& stage, const std::string& app) const {
  for (const auto& instance : Instances()) {
    const auto& apps = instance["app_ids"];
    if (instance.value("stage", "") == stage && instance.value("state", "") == "READY" &&
        std::find(apps.begin(), apps.end(), app) != apps.end())
      return instance;
  }
  return json::object();
}

bool ClusterUnderTest::Down() const {
  // Reads first what must be gone afterwards, because `down` forgets it.
  const auto state = local::ReadState(local::DataDir{Path("data")});
  const std::string cluster_id = local::ReadFile(Path("data") + "/cluster_id");
  const Outcome down = Run({"down"});
  std::string left = down.exit_code == 0 ? "" : " down failed: " + down.err;
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
  if (!left.empty()) qWarning("left:%s", left.c_str());
  return left.empty();
}

std::string ClusterUnderTest::Logs() const {
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

}  // namespace onepiece::e2e
