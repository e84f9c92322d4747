// The feeds of a Session: each runs on a thread of its own until `stop`, keeps some parts of the
// board up to date, and survives whatever the network does. Internal to gui/client.
//
// Bounds     Every call has a deadline and ends with `stop`; what is kept is bounded by the
//            cluster's size or by a constant.
#pragma once

#include <google/protobuf/message_lite.h>

#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/rpc/channel.h"
#include "cluster/session/board.h"
#include "cluster/session/session.h"

namespace onepiece::gui {

/// How long one question may take.
inline constexpr std::chrono::seconds kReadTimeout(2);

/// Connections to processes, by host:port. Thread-safe.
class Channels {
 public:
  explicit Channels(std::string user_agent) : user_agent_(std::move(user_agent)) {}
  std::shared_ptr<grpc::Channel> To(const std::string& address);

 private:
  static constexpr std::size_t kMax = 4096;  ///< Then all are let go: those in use come back.

  const std::string user_agent_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;  // Guarded by mutex_.
};

/// What every feed needs; outlives them.
struct Feeds {
  const Target& target;
  const SessionOptions& options;
  Board& board;
  Channels& channels;
  client::Client& reads;  ///< For questions to whoever leads; its deadlines are short.
};

/// One call that ends with `stop`.
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

/// As far as their bytes tell; messages without maps, or a false "no" does no harm.
bool Same(const google::protobuf::MessageLite& a, const google::protobuf::MessageLite& b);

/// `value` in place of `before`, or `before` where that is the same: readers compare pointers.
template <typename T>
std::shared_ptr<const T> Keep(const std::shared_ptr<const T>& before, T value) {
  if (before != nullptr && Same(*before, value)) return before;
  return std::make_shared<const T>(std::move(value));
}

/// A process that is asked.
struct Asked {
  std::string node_id;
  std::uint64_t incarnation = 0;
  std::string address;
  bool alive = false;
};
/// Processes of the cluster in the roles `wanted`, by node id; those that are dead too.
std::vector<Asked> Processes(const v1::Cluster& cluster, bool (*wanted)(v1::Role));

/// Nodes with load, workflows; the connection's state.
void FollowCluster(Feeds& feeds, const std::stop_token& stop);
/// Elasticity, plans, audit.
void FollowPlans(Feeds& feeds, const std::stop_token& stop);
void FollowRings(Feeds& feeds, const std::stop_token& stop);
/// Databases and replicas.
void FollowStores(Feeds& feeds, const std::stop_token& stop);
void FollowJobs(Feeds& feeds, const std::stop_token& stop);

}  // namespace onepiece::gui
