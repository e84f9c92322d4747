// Finds proxies and retries calls over them. All retry rules of the client library are here.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/client/client.h"
#include "cluster/rpc/replicas.h"
#include "onepiece/v1/generation.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"

namespace onepiece::client {

/// The answer to one attempt: what went wrong, and what the server advises.
struct Answer {
  absl::Status status;
  std::optional<base::Duration> retry_delay;  ///< google.rpc.RetryInfo.
};

/// Reads the status with its ErrorInfo and RetryInfo.
Answer ReadAnswer(const grpc::Status& status);

struct Proxy {
  std::string workflow_set;
  std::string address;
  std::shared_ptr<v1::GenerationService::Stub> stub;
  bool unlisted = false;  ///< Configured, and not listed by the NodeManager. It is asked last.
  bool away = false;      ///< Did not answer recently. It is asked when no other proxy is left.
};

/// Returns the name under which proxies answer "full" and "not here" for each other. A proxy of an
/// unknown set answers for itself only, under its address.
const std::string& SetOf(const Proxy& proxy);

/// How a call is spread and retried.
struct CallOptions {
  base::Duration upload{};  ///< How much longer each attempt and the whole call may take.
  /// The id of a request that makes something. Empty: it makes nothing. The id decides in which
  /// order sets and their proxies are asked, so that the same request meets the same databases
  /// whoever repeats it.
  std::string request_id;
  /// Somebody may have made the same request before (rpc::kRepeated).
  bool repeated = false;
};

using ProxyCall =
    std::function<grpc::Status(v1::GenerationService::Stub& stub, grpc::ClientContext& context)>;
/// Makes a stub of a NodeManager's service on the channel and calls it.
using ManagerCall = std::function<grpc::Status(const std::shared_ptr<grpc::Channel>& channel,
                                               grpc::ClientContext& context)>;

/// The proxies of a cluster. The proxy that answered last is asked first, except for calls with a
/// request_id.
///
/// Threading: may be used from any thread.
/// Blocking: calls block up to their deadline.
class ProxySet {
 public:
  explicit ProxySet(const ClientOptions& options);

  /// Calls proxies until one answers.
  ///
  /// An answer decides who is asked next:
  ///   - UNAVAILABLE, or silence: the next proxy. The silent one is asked last for a while.
  ///   - RESOURCE_EXHAUSTED: the next workflow set, the one with the most room if the refusal says.
  ///     If it is about one proxy only (QUOTA, INPUTS_BUSY): the next proxy.
  ///   - NOT_FOUND: one proxy of each other set.
  ///   - DEADLINE_TOO_SHORT: the next set, and this set never again.
  /// After a round without success the call pauses, as long as RetryInfo asks, and begins again
  /// with a fresh list of proxies.
  ///
  /// A call with a request_id whose answer was lost stays with that set while a proxy of the set is
  /// listed. That set may be doing the job already, and another set would do it again. A repeated
  /// call goes to the set that already has its job. It goes to any other set only after every
  /// listed set has said that it does not have the job.
  ///
  /// Errors: UNAVAILABLE (SET_SILENT) when a listed set does not say whether it has the job.
  absl::Status Call(const ProxyCall& call, const CallOptions& how = {});
  /// Calls the NodeManager's replicas until the leader answers.
  absl::Status CallManager(const ManagerCall& call);
  rpc::Replicas& managers() { return managers_; }
  /// Learns the replicas from the NodeManager's nodes in `cluster`.
  void Learn(const v1::Cluster& cluster);

  /// Returns the proxies in the order in which they should be asked. Asks the NodeManager for the
  /// list when no proxy is known, and with `refresh`. When it does not answer, the known proxies
  /// stay.
  absl::StatusOr<std::vector<Proxy>> Proxies(bool refresh, base::MonotonicTime deadline);
  /// Returns true when a NodeManager has listed the proxies, or when there is none that could.
  bool Complete();
  /// Asks `proxy` first from now on.
  void Prefer(const Proxy& proxy);
  /// Waits `pause`, at most until `deadline`. Returns false when a stop was requested.
  bool Pause(base::Duration pause, base::MonotonicTime deadline, std::stop_token stop = {});
  /// Returns the status with which every call ends once ClientOptions::stop is requested, and OK
  /// before.
  absl::Status Stopped() const;

 private:
  struct Round {
    absl::Status error;
    std::optional<base::Duration> retry_delay;
    bool done = false;
  };
  /// What a call has learned, over all rounds.
  struct Past {
    bool repeated = false;          ///< An earlier attempt may have reached a proxy.
    std::set<std::string> refused;  ///< The sets that cannot finish the job in time.
    absl::Status refusal;           ///< The last refusal of such a set.
    /// The sets of proxies whose answer was lost, by the proxy's address.
    std::map<std::string, std::string> reached;
    std::set<std::string> strangers;  ///< The sets that do not have the job.
  };
  Round CallEachProxy(std::vector<Proxy> proxies, const ProxyCall& call, const CallOptions& how,
                      base::MonotonicTime deadline, Past& past);
  absl::Status AskForJob(const Proxy& proxy, const std::string& request_id,
                         base::MonotonicTime deadline);
  absl::Status KeepWhoKnows(std::vector<Proxy>& proxies, const std::string& request_id,
                            base::MonotonicTime deadline, std::set<std::string>& strangers);
  absl::StatusOr<std::vector<Proxy>> Find(bool refresh, base::MonotonicTime deadline);
  void LeaveOut(const Proxy& proxy);
  std::vector<Proxy> Spread(std::vector<Proxy> proxies, const std::string& request_id) const;
  bool Connect(const Proxy& proxy, base::MonotonicTime deadline);
  absl::Status CallManagerUntil(const ManagerCall& call, base::MonotonicTime deadline,
                                bool one_round);
  std::vector<Proxy> Keep(std::vector<Proxy> proxies);
  void LearnManagers(base::MonotonicTime deadline);
  std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address);
  void SetDeadline(grpc::ClientContext& context, base::MonotonicTime deadline,
                   base::Duration limit) const;

  const ClientOptions options_;
  rpc::Replicas managers_;
  base::Mutex mutex_;
  std::vector<Proxy> proxies_ ABSL_GUARDED_BY(mutex_);
  bool listed_ ABSL_GUARDED_BY(mutex_) = false;  // By the NodeManager.
  bool asked_managers_ ABSL_GUARDED_BY(mutex_) = false;
  std::string preferred_address_ ABSL_GUARDED_BY(mutex_);
  // By address.
  std::map<std::string, base::MonotonicTime> away_until_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::client
