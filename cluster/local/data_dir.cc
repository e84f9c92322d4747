#include "cluster/local/data_dir.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/service/program.h"

namespace onepiece::local {
namespace {

using nlohmann::json;
constexpr std::uint64_t kLeastFreeBytes = std::uint64_t{16} << 20;

absl::Status MakeDir(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && !std::filesystem::is_directory(path))
    error = std::make_error_code(std::errc::not_a_directory);
  if (!error && access(path.c_str(), W_OK | X_OK) != 0) error = {errno, std::generic_category()};
  if (!error) return absl::OkStatus();
  const bool denied = error.value() == EACCES || error.value() == EPERM || error.value() == EROFS;
  if (error.value() == ENOSPC) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "DISK_FULL",
                           "no space left for " + path);
  }
  return base::MakeError(
      denied ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kFailedPrecondition,
      "DATA_DIR_UNUSABLE", "cannot use " + path + ": " + error.message(), {{"path", path}});
}

json ToJson(const ProcessRecord& record) {
  return {{"node_id", record.node_id}, {"role", record.role},
          {"pid", record.process.pid}, {"start_time", record.process.start_time},
          {"address", record.address}, {"metrics_address", record.metrics_address},
          {"log", record.log},         {"restarts", record.restarts}};
}

ProcessRecord RecordFrom(const json& item) {
  ProcessRecord record;
  record.node_id = item.value("node_id", "");
  record.role = item.value("role", "");
  record.process = {.pid = item.value("pid", 0),
                    .start_time = item.value("start_time", std::uint64_t{0})};
  record.address = item.value("address", "");
  record.metrics_address = item.value("metrics_address", "");
  record.log = item.value("log", "");
  record.restarts = item.value("restarts", 0);
  return record;
}

}  // namespace

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

absl::StatusOr<DataDir> PrepareDataDir(const std::string& path) {
  std::error_code error;
  const DataDir dir{std::filesystem::absolute(path, error).lexically_normal().string()};
  const bool existed = std::filesystem::exists(dir.path, error);
  ONEPIECE_RETURN_IF_ERROR(MakeDir(dir.path));
  if (!existed) chmod(dir.path.c_str(), 0700);
  for (const auto& folder : {dir.RunDir(), dir.LogDir(), dir.ConfigDir()})
    ONEPIECE_RETURN_IF_ERROR(MakeDir(folder));
  struct statvfs disk {};
  if (statvfs(dir.path.c_str(), &disk) == 0 &&
      std::uint64_t{disk.f_bavail} * disk.f_frsize < kLeastFreeBytes) {
    return base::MakeError(
        absl::StatusCode::kResourceExhausted, "DISK_FULL",
        "less than 16 MiB are free for " + dir.path + ": make room or use --data-dir",
        {{"path", dir.path}});
  }
  return dir;
}

absl::StatusOr<DataDirLock> DataDirLock::Acquire(const DataDir& dir) {
  const int fd = open(dir.Lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    return base::MakeError(absl::StatusCode::kPermissionDenied, "DATA_DIR_UNUSABLE",
                           "cannot open " + dir.Lock() + ": " + std::strerror(errno));
  }
  DataDirLock lock(fd);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
  return base::MakeError(
      absl::StatusCode::kFailedPrecondition, "CLUSTER_RUNNING",
      "a cluster already uses " + dir.path +
          ": look at it with `onepiece status`, end it with `onepiece down`, or choose another "
          "--data-dir",
      {{"path", dir.path}});
}

DataDirLock DataDirLock::Adopt(int fd) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return DataDirLock(fd);
}

DataDirLock::DataDirLock(DataDirLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
DataDirLock& DataDirLock::operator=(DataDirLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
DataDirLock::~DataDirLock() {
  if (fd_ >= 0) close(fd_);
}

std::string ClusterState::ToJson() const {
  json processes_json = json::array();
  for (const auto& record : processes) processes_json.push_back(local::ToJson(record));
  const json state = {
      {"cluster_id", cluster_id},
      {"fabric", fabric},
      {"identity", identity},
      {"nodemanagers", nodemanagers},
      {"supervisor", {{"pid", supervisor.pid}, {"start_time", supervisor.start_time}}},
      {"ready", ready},
      {"processes", processes_json}};
  return state.dump(2) + "\n";
}

absl::StatusOr<ClusterState> ClusterState::FromJson(std::string_view text) {
  try {
    const json state = json::parse(text);
    ClusterState result;
    result.cluster_id = state.at("cluster_id").get<std::string>();
    result.fabric = state.value("fabric", "");
    result.identity = state.value("identity", "");
    result.nodemanagers = state.at("nodemanagers").get<std::vector<std::string>>();
    const json& supervisor = state.at("supervisor");
    result.supervisor = {.pid = supervisor.value("pid", 0),
                         .start_time = supervisor.value("start_time", std::uint64_t{0})};
    result.ready = state.value("ready", false);
    for (const auto& item : state.at("processes")) result.processes.push_back(RecordFrom(item));
    return result;
  } catch (const json::exception& error) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CLUSTER_FILE", error.what());
  }
}

absl::StatusOr<std::optional<ClusterState>> ReadState(const DataDir& dir) {
  if (access(dir.State().c_str(), F_OK) != 0) return std::nullopt;
  auto state = ClusterState::FromJson(ReadFile(dir.State()));
  if (!state.ok()) return base::Annotate(state.status(), dir.State());
  return std::optional(*std::move(state));
}

absl::Status WriteState(const DataDir& dir, const ClusterState& state) {
  return service::WriteFileAtomically(dir.State(), state.ToJson());
}

absl::StatusOr<std::string> ClusterId(const DataDir& dir) {
  const std::string path = dir.path + "/cluster_id";
  std::string id = ReadFile(path);
  const bool valid =
      id.size() == 12 && id.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (valid) return id;
  id = base::Uid::GenerateRandom().ToString().substr(24);
  ONEPIECE_RETURN_IF_ERROR(service::WriteFileAtomically(path, id));
  return id;
}

absl::Status CleanUp(const DataDir& dir) {
  const auto state = ReadState(dir);
  if (state.ok() && state->has_value()) {
    for (const auto& record : (*state)->processes) {
      if (!KillAndWait(record.process, base::Scaled(std::chrono::seconds(10)))) {
        return base::MakeError(absl::StatusCode::kAborted, "PROCESS_STAYS",
                               "process " + std::to_string(record.process.pid) + " (" +
                                   record.node_id + ") does not end");
      }
    }
  }
  // The processes are dead by now, so what they left in the fabric belongs to nobody.
  const std::string cluster_id = ReadFile(dir.path + "/cluster_id");
  if (!cluster_id.empty()) {
    const auto unlinked = fabric::UnlinkStale(cluster_id);
    if (!unlinked.ok()) return unlinked.status();
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir.RunDir(), error)) {
    std::filesystem::remove(entry.path(), error);
  }
  // The state goes last. A clean-up that is interrupted finds the processes in it again.
  std::filesystem::remove(dir.State(), error);
  return absl::OkStatus();
}

}  // namespace onepiece::local
