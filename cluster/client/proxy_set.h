// Finds proxies and repeats calls over them: the retry rules of the client library in one place.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/client/client.h"
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
};

using ProxyCall =
    std::function<grpc::Status(v1::GenerationService::Stub& stub, grpc::ClientContext& context)>;
using ManagerCall =
    std::function<grpc::Status(v1::NodeManagerService::Stub& stub, grpc::ClientContext& context)>;

/// The proxies of a cluster, with the one that answered last first. Thread-safe; calls block up to
/// `deadline`.
class ProxySet {
 public:
  explicit ProxySet(const Options& options);

  /// Calls proxies until one answers: UNAVAILABLE and a silent proxy lead to the next proxy,
  /// RESOURCE_EXHAUSTED to the next workflow set, NOT_FOUND to one proxy of each other set; after a
  /// round without success, pauses (as long as RetryInfo asks) and begins again with a fresh list
  /// of proxies. Each attempt and the whole may take `upload` longer than usual.
  absl::Status Call(const ProxyCall& call, base::Duration upload = {});
  /// The same over the NodeManager's replicas.
  absl::Status CallManager(const ManagerCall& call);

  /// Proxies in the order in which they should be asked. Lists them at a NodeManager when `refresh`
  /// or unknown.
  absl::StatusOr<std::vector<Proxy>> Proxies(bool refresh, base::MonotonicTime deadline);
  /// Asks `proxy` first from now on.
  void Prefer(const Proxy& proxy);
  /// Waits `pause`, at most until `deadline`; false when `stop` was requested.
  bool Pause(base::Duration pause, base::MonotonicTime deadline, std::stop_token stop = {});

 private:
  struct Round {
    absl::Status error;
    std::optional<base::Duration> retry_delay;
    bool done = false;
  };
  Round CallEachProxy(const std::vector<Proxy>& proxies, const ProxyCall& call,
                      base::Duration upload, base::MonotonicTime deadline);
  absl::Status CallManagerUntil(const ManagerCall& call, base::MonotonicTime deadline);
  std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address);
  void SetDeadline(grpc::ClientContext& context, base::MonotonicTime deadline,
                   base::Duration upload = {}) const;

  const Options options_;
  std::mutex mutex_;
  std::condition_variable_any condition_;  // Only waited on: pauses end by time or stop.
  // Guarded by mutex_.
  std::vector<Proxy> proxies_;
  std::string preferred_address_;
  std::size_t first_manager_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;
};

}  // namespace onepiece::client
