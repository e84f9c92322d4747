// A part of the light nodes, in a process of its own, and how that process is asked about them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/control_plane/sightings.h"

namespace onepiece::bench {

enum class FleetKind { kNodes, kEtcd };

/// What a process of light nodes is started with.
struct FleetPlan {
  FleetKind kind = FleetKind::kNodes;
  std::vector<std::string> addresses;  ///< The group's.
  std::size_t first = 0, count = 0;    ///< Its nodes are node-`first` and the following.
};

/// All nodes have started when the object is made.
///
/// Ownership: a fleet lives until its process ends, and never ends before that. Its nodes say no
/// goodbye, because the group that they belong to ends with them.
/// Threading: the methods may be called from any thread.
class Fleet {
 public:
  explicit Fleet(std::size_t count) : tables(count), heartbeats(count) {}
  virtual ~Fleet() = default;
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  /// Says what a node complains about: "node-17: watch routing: …".
  virtual std::string Complaint(std::size_t index) = 0;

  /// The versions of the watched value, by the node's index in this fleet.
  Sightings tables;
  /// When an answered heartbeat was sent, in nanoseconds of the monotonic clock. Light nodes of
  /// ours fill in nothing, because the NodeManager says when they have reported.
  Sightings heartbeats;
};

/// Proxies, databases and instances of our own: each has a real NodeAgent.
///
/// Errors: those of rpc::Server::Start.
absl::StatusOr<std::unique_ptr<Fleet>> StartNodes(const FleetPlan& plan);
/// Nodes as an application with etcd has them: each watches a key over a connection of its own, and
/// keeps a lease alive once a second.
std::unique_ptr<Fleet> StartEtcdNodes(const FleetPlan& plan);

/// What the nodes watch: the display name of this application in their routing tables, and the
/// value of this key of etcd. Both begin with the version.
inline constexpr char kChangingApp[] = "changing", kEtcdKey[] = "table";
/// How often a node says that it lives, and after how long a silence it is dead.
inline constexpr base::Duration kHeartbeat = std::chrono::seconds(1),
                                kDeadAfter = std::chrono::seconds(10);

/// The roles of the nodes with the lowest numbers. All others are instances.
inline constexpr std::size_t kProxies = 4, kDatabases = 4;
inline std::string NodeId(std::size_t number) { return "node-" + std::to_string(number); }

/// The version that `text` begins with, or 0.
std::int64_t VersionOf(std::string_view text);

/// The questions that a process of light nodes answers, each in a line: "tables VERSION LIMIT_MS"
/// and "heartbeats SINCE_NS LIMIT_MS". An answer is "LAST_NS MISSING", and the complaint of the
/// first missing node.
inline constexpr char kTables[] = "tables", kHeartbeats[] = "heartbeats";

/// Starts the nodes and answers until `in_fd` ends. Returns the process's exit code.
int RunFleet(const FleetPlan& plan, int in_fd, int out_fd);

}  // namespace onepiece::bench
