// Starting and ending an embedded cluster from another process: what `onepiece up` and `onepiece
// down` do.
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

/// Hidden verb by which the CLI runs itself as a detached supervisor.
inline constexpr char kSuperviseVerb[] = "__supervise";

struct UpOptions {
  std::string data_dir;
  std::string config_file;  ///< Empty: the default cluster.
  std::string fabric;       ///< Before the configuration's, if not empty.
  int nodemanagers = 0;     ///< Before the configuration's, if not 0.
  int workflow_sets = 0;    ///< Before the configuration's, if not 0.
  bool read_only = false;   ///< MakeReadOnly().
  std::function<void(const Progress&)> on_progress;
};

/// Reads and completes a cluster's configuration. Errors: those of the file, INVALID_ARGUMENT or
/// NOT_FOUND.
absl::StatusOr<v1::LocalClusterConfig> LoadConfig(const std::string& config_file);

/// Starts a cluster under a detached supervisor and waits until it takes jobs. Errors: as
/// Supervisor::Start, FAILED_PRECONDITION (CLUSTER_RUNNING), those of LoadConfig and
/// PrepareDataDir.
absl::StatusOr<ClusterState> Up(const UpOptions& options);

/// Runs a cluster in this process until SIGTERM, SIGINT or SIGHUP. `on_ready` is told when it takes
/// jobs.
absl::Status UpInForeground(const UpOptions& options,
                            const std::function<void(const ClusterState&)>& on_ready);

/// Body of the detached supervisor: holds the lock `lock_fd` and reports its start on `report_fd`.
absl::Status Supervise(const UpOptions& options, int lock_fd, int report_fd);

enum class DownResult { kStopped, kNothingRan };
/// Ends the data directory's cluster and removes what it or a killed one left. Errors:
/// DEADLINE_EXCEEDED, ABORTED.
absl::StatusOr<DownResult> Down(const std::string& data_dir);

/// The cluster that uses `data_dir` now. Errors: UNAVAILABLE (NO_CLUSTER).
absl::StatusOr<ClusterState> FindCluster(const std::string& data_dir);

}  // namespace onepiece::local
