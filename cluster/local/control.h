// Starts and ends an embedded cluster from another process, as `onepiece up` and `onepiece down`
// do.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/local/data_dir.h"
#include "cluster/local/supervisor.h"
#include "onepiece/v1/config.pb.h"

namespace onepiece::local {

/// The hidden verb by which the CLI runs itself as a detached supervisor.
inline constexpr char kSuperviseVerb[] = "__supervise";

struct UpOptions {
  std::string data_dir;
  std::string config_file;  ///< Empty means the default cluster.
  std::string fabric;       ///< Overrides the configuration's, unless it is empty.
  int nodemanagers = 0;     ///< Overrides the configuration's, unless it is 0.
  int workflow_sets = 0;    ///< Overrides the configuration's, unless it is 0.
  bool read_only = false;   ///< See MakeReadOnly().
  bool insecure = false;    ///< No TLS: as in NodeConfig, for all nodes.
  std::function<void(const Progress&)> on_progress;
};

/// Reads a cluster's configuration and fills in what it leaves open.
///
/// Errors: those of the file, INVALID_ARGUMENT, NOT_FOUND.
absl::StatusOr<v1::LocalClusterConfig> LoadConfig(const std::string& config_file);

/// Starts a cluster under a detached supervisor.
///
/// Blocking: until the cluster takes jobs.
/// Errors: those of Supervisor::Start, LoadConfig and PrepareDataDir, FAILED_PRECONDITION
/// (CLUSTER_RUNNING).
absl::StatusOr<ClusterState> Up(const UpOptions& options);

/// Runs a cluster in this process until SIGTERM, SIGINT or SIGHUP. Calls `on_ready` when the
/// cluster takes jobs.
absl::Status UpInForeground(const UpOptions& options,
                            const std::function<void(const ClusterState&)>& on_ready);

/// The body of the detached supervisor. It holds the lock `lock_fd` and reports its start on
/// `report_fd`.
absl::Status Supervise(const UpOptions& options, int lock_fd, int report_fd);

enum class DownResult { kStopped, kNothingRan };
/// Ends the data directory's cluster, and removes what it or a killed cluster left behind.
///
/// Errors: DEADLINE_EXCEEDED, ABORTED.
absl::StatusOr<DownResult> Down(const std::string& data_dir);

/// Returns the cluster that uses `data_dir` now.
///
/// Errors: UNAVAILABLE (NO_CLUSTER).
absl::StatusOr<ClusterState> FindCluster(const std::string& data_dir);

}  // namespace onepiece::local
