// Finds proxies and repeats calls over them: the retry rules of the client library in one place.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/client/client.h"
#include "cluster/rpc/replicas.h"
#include "onepiece/v1/generation.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"

namespace onepiece::client {

/// One attempt's answer: what went wrong, and what the server advises.
struct Answer {
  absl::Status status;
  std::optional<base::Duration> retry_delay;  ///< google.rpc.RetryInfo.
};

/// Reads status, ErrorInfo and RetryInfo off the wire.
Answer ReadAnswer(const grpc::Status& status);

struct Proxy {
  std::string workflow_set;
  std::string address;
  std::shared_ptr<v1::GenerationService::Stub> stub;
  bool unlisted = false;  ///< Configured, but the NodeManager does not list it: asked last.
  bool away = false;      ///< Did not answer lately: asked when nobody else is left.
};

/// Proxies that say "full" or "not here" for each other. A proxy of an unknown set speaks for
/// itself alone.
const std::string& SetOf(const Proxy& proxy);

/// How a call is spread and repeated.
struct CallOptions {
  base::Duration upload{};  ///< Each attempt and the whole may take so much longer than usual.
  /// Of a request that makes something; empty: none. Says in which order sets and their proxies are
  /// asked, so that the same request meets the same databases whoever repeats it.
  std::string request_id;
  /// The same request may have been made before (rpc::kRepeated), by anybody.
  bool repeated = false;
};

using ProxyCall =
    std::function<grpc::Status(v1::GenerationService::Stub& stub, grpc::ClientContext& context)>;
/// Makes a stub of the service that it means and calls it.
using ManagerCall = std::function<grpc::Status(const std::shared_ptr<grpc::Channel>& channel,
                                               grpc::ClientContext& context)>;

/// The proxies of a cluster: the one that answered last comes first, but for calls with a
/// request_id. Thread-safe; calls block up to `deadline`.
class ProxySet {
 public:
  explicit ProxySet(const Options& options);

  /// Calls proxies until one answers: UNAVAILABLE and a silent proxy lead to the next proxy,
  /// RESOURCE_EXHAUSTED to the next workflow set (the one with most room, when the refusal says)
  /// or, where it is about one proxy (QUOTA, INPUTS_BUSY), to the next proxy, NOT_FOUND to one
  /// proxy of each other set, DEADLINE_TOO_SHORT to the next set and never back; after a round
  /// without success, pauses (as long as RetryInfo asks) and begins again with a fresh list of
  /// proxies. Who did not answer is asked last for a while. A call with a request_id whose answer
  /// was lost stays with that set, which may do it already, for as long as a proxy of it is listed:
  /// another set would do it again. A repeated one goes to the set that has its job already, and to
  /// any only when every listed set has said that it has not (UNAVAILABLE with SET_SILENT: one does
  /// not say).
  absl::Status Call(const ProxyCall& call, const CallOptions& how = {});
  /// Calls the NodeManager's replicas until the leader answers.
  absl::Status CallManager(const ManagerCall& call);
  rpc::Replicas& managers() { return managers_; }
  /// Takes the replicas from what the NodeManager says of the cluster.
  void Learn(const v1::Cluster& cluster);

  /// Proxies in the order in which they should be asked. Lists them at the NodeManager when none
  /// are known or `refresh`; known ones are kept when it does not answer.
  absl::StatusOr<std::vector<Proxy>> Proxies(bool refresh, base::MonotonicTime deadline);
  /// There are no proxies but the known ones, as far as a NodeManager could say.
  bool Complete();
  /// Asks `proxy` first from now on.
  void Prefer(const Proxy& proxy);
  /// Waits `pause`, at most until `deadline`; false when `stop` was requested.
  bool Pause(base::Duration pause, base::MonotonicTime deadline, std::stop_token stop = {});
  /// What every call ends with once Options::stop is requested; OK before.
  absl::Status Stopped() const;

 private:
  struct Round {
    absl::Status error;
    std::optional<base::Duration> retry_delay;
    bool done = false;
  };
  /// What a call has met with, over all rounds.
  struct Past {
    bool repeated = false;                       ///< An attempt may have reached somebody.
    std::set<std::string> refused;               ///< Sets that cannot do it in time;
    absl::Status refusal;                        ///< what the last of them said.
    std::map<std::string, std::string> reached;  ///< Sets by address of whose answer was lost.
    std::set<std::string> strangers;             ///< Sets that do not have the job.
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

  const Options options_;
  rpc::Replicas managers_;
  std::mutex mutex_;
  std::condition_variable_any condition_;  // Only waited on: pauses end by time or stop.
  // Guarded by mutex_.
  std::vector<Proxy> proxies_;
  bool listed_ = false;  // By the NodeManager.
  bool asked_managers_ = false;
  std::string preferred_address_;
  std::map<std::string, base::MonotonicTime> away_until_;  // By address.
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace onepiece::client
