// The data directory of an embedded cluster: where its files are, who may use it, and what is known
// of the cluster that does.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/local/process.h"

namespace onepiece::local {

/// The paths inside a data directory. A value type.
struct DataDir {
  std::string path;  ///< Absolute.
  [[nodiscard]] std::string Lock() const { return path + "/lock"; }
  [[nodiscard]] std::string State() const { return path + "/cluster.json"; }
  [[nodiscard]] std::string RunDir() const { return path + "/run"; }
  [[nodiscard]] std::string LogDir() const { return path + "/logs"; }
  [[nodiscard]] std::string ConfigDir() const { return path + "/config"; }
  [[nodiscard]] std::string Identity() const { return path + "/identity"; }
  [[nodiscard]] std::string ReadyFile(std::string_view node) const {
    return RunDir() + "/" + std::string(node) + ".json";
  }
  [[nodiscard]] std::string LogFile(std::string_view node) const {
    return LogDir() + "/" + std::string(node) + ".log";
  }
  [[nodiscard]] std::string ConfigFile(std::string_view node) const {
    return ConfigDir() + "/" + std::string(node) + ".yaml";
  }
};

/// Makes the directory (mode 0700) and its folders.
///
/// Errors: PERMISSION_DENIED, FAILED_PRECONDITION, RESOURCE_EXHAUSTED (DISK_FULL) when less than 16
/// MiB are free.
absl::StatusOr<DataDir> PrepareDataDir(const std::string& path);

/// The lock of a data directory. The process that holds it may run a cluster there, or clean up
/// after one. The lock lives exactly as long as any process holds the descriptor.
class DataDirLock {
 public:
  /// Errors: FAILED_PRECONDITION (CLUSTER_RUNNING) when another process holds it.
  static absl::StatusOr<DataDirLock> Acquire(const DataDir& dir);
  /// Takes over the descriptor that this process inherited from the one that acquired the lock.
  static DataDirLock Adopt(int fd);
  DataDirLock(DataDirLock&& other) noexcept;
  DataDirLock& operator=(DataDirLock&& other) noexcept;
  ~DataDirLock();
  [[nodiscard]] int fd() const { return fd_; }

 private:
  explicit DataDirLock(int fd) : fd_(fd) {}
  int fd_;
};

struct ProcessRecord {
  std::string node_id;
  std::string role;  ///< "nodemanager", "proxy", "database", "instance".
  ProcessId process;
  std::string address;          ///< Empty until the process is ready.
  std::string metrics_address;  ///< Empty until the process is ready.
  std::string log;
  int restarts = 0;
};

/// The content of cluster.json.
struct ClusterState {
  std::string cluster_id;
  std::string fabric;  ///< URI.
  /// The folder of the admin's identity. Empty: the cluster is insecure.
  std::string identity;
  std::vector<std::string> nodemanagers;
  ProcessId supervisor;
  bool ready = false;
  std::vector<ProcessRecord> processes;

  [[nodiscard]] std::string ToJson() const;
  /// Errors: INVALID_ARGUMENT.
  static absl::StatusOr<ClusterState> FromJson(std::string_view text);
};

/// Returns nullopt when there is no cluster.json.
///
/// Errors: INVALID_ARGUMENT.
absl::StatusOr<std::optional<ClusterState>> ReadState(const DataDir& dir);
absl::Status WriteState(const DataDir& dir, const ClusterState& state);

/// Returns the data directory's cluster id, and makes it at the first call. The id is random, so
/// that two clusters on a host never meet.
absl::StatusOr<std::string> ClusterId(const DataDir& dir);

/// Removes what a cluster without a supervisor left behind: processes, shared memory, run files and
/// cluster.json.
/// REQUIRES: the caller holds the lock.
///
/// Errors: ABORTED when a process cannot be ended, and those of fabric::UnlinkStale.
absl::Status CleanUp(const DataDir& dir);

/// Returns the content of a file, or an empty text when the file cannot be read.
std::string ReadFile(const std::string& path);

}  // namespace onepiece::local
