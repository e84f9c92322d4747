// The feeds of a Session. Each feed runs on a thread of its own until `stop`, keeps some parts of
// the board up to date, and survives every failure of the network. Internal to cluster/session.
//
// Blocking: every call has a deadline and ends with `stop`.
// Invariants: the memory of a feed is bounded by the cluster's size or by a constant.
#pragma once

#include <google/protobuf/message_lite.h>

#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/replicas.h"
#include "cluster/session/board.h"
#include "cluster/session/session.h"

namespace onepiece::session {

/// The limit of one question.
inline constexpr std::chrono::seconds kReadTimeout(2);

/// Connections to processes, by host:port.
///
/// Threading: may be used from any thread.
class Channels {
 public:
  explicit Channels(std::string user_agent) : user_agent_(std::move(user_agent)) {}
  std::shared_ptr<grpc::Channel> To(const std::string& address);

 private:
  /// Beyond this many all channels are dropped. Those in use are made again.
  static constexpr std::size_t kMax = 4096;

  const std::string user_agent_;
  base::Mutex mutex_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mutex_);
};

/// What every feed needs. It outlives the feeds.
struct Feeds {
  const ClusterAddress& target;
  const SessionOptions& options;
  Board& board;
  Channels& channels;
  client::Client& reads;  ///< For questions to the leader. Its deadlines are short.
};

/// Makes one call, which ends early when `stop` is requested.
template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Ask(Stub& stub,
                             grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                          Response*),
                             const std::type_identity_t<Request>& request, base::Duration timeout,
                             const std::stop_token& stop) {
  grpc::ClientContext context;
  rpc::SetTimeout(context, timeout);
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  Response response;
  const grpc::Status status = (stub.*method)(&context, request, &response);
  if (!status.ok()) return rpc::FromGrpc(status);
  return response;
}

/// Compares the bytes of two messages. Equal messages with maps may give different bytes, so use it
/// only where a false "no" does no harm.
bool Same(const google::protobuf::MessageLite& a, const google::protobuf::MessageLite& b);

/// Returns `before` when `value` is the same, else a new pointer to `value`. Readers compare
/// pointers.
template <typename T>
std::shared_ptr<const T> Keep(const std::shared_ptr<const T>& before, T value) {
  if (before != nullptr && Same(*before, value)) return before;
  return std::make_shared<const T>(std::move(value));
}

/// A process that a feed may ask.
struct Asked {
  std::string node_id;
  std::uint64_t incarnation = 0;
  std::string address;
  bool alive = false;
};
/// Returns the processes of the cluster whose role is `wanted`, sorted by node id, including dead
/// ones.
std::vector<Asked> Processes(const v1::Cluster& cluster, bool (*wanted)(v1::Role));

/// Follows the nodes with their loads, the workflows, and the connection's state.
void FollowCluster(Feeds& feeds, const std::stop_token& stop);
/// Follows elasticity, plans and the audit log.
void FollowPlans(Feeds& feeds, const std::stop_token& stop);
/// Follows what a principal without the scope `read` may see, from a replica that has just answered
/// `why`: the workflows, and the proxies as the only nodes. Returns OK after a resync or when it
/// shall stop, or why asking failed.
absl::Status FollowWithoutRead(Feeds& feeds, const rpc::Replica& replica, const absl::Status& why,
                               const std::stop_token& stop);
void FollowRings(Feeds& feeds, const std::stop_token& stop);
/// Follows the databases and the NodeManager's replicas.
void FollowDatabases(Feeds& feeds, const std::stop_token& stop);
void FollowJobs(Feeds& feeds, const std::stop_token& stop);

}  // namespace onepiece::session
