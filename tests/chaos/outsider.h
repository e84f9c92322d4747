// Somebody on the network who wishes the cluster ill: it floods, fuzzes, replays, and reads and
// writes slowly, on every port, while others work.
//
// It has no identity, but for one bearer token that may submit and nothing else. Each attack has a
// source address of its own (127.66.0.N), so that the limits of an address can be told from those
// of the honest clients.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/mutex.h"
#include "tests/chaos/ledger_cluster.h"

namespace onepiece::ledger {

/// By attack: how often it was tried, and how often the peer let it in, or refused it.
using Attacks = std::map<std::string, std::map<std::string, std::int64_t>>;

/// Threading: Start() and Stop() are one thread's.
class Outsider {
 public:
  /// Borrows the cluster.
  Outsider(const Cluster& cluster, std::uint64_t seed) : cluster_(cluster), seed_(seed) {}
  /// Calls Stop().
  ~Outsider();
  Outsider(const Outsider&) = delete;
  Outsider& operator=(const Outsider&) = delete;

  /// Sets the cluster's limits, which loopback addresses else have none of, gets the token, and
  /// begins.
  ///
  /// Errors: those of RunVerb().
  absl::Status Start();
  void Stop();
  [[nodiscard]] Attacks attacks() const;

 private:
  struct Attack;
  friend struct Attack;
  void Look(const std::stop_token& stop);
  void LookOnce();

  const Cluster& cluster_;
  const std::uint64_t seed_;
  std::string token_;
  mutable base::Mutex mutex_;
  std::vector<std::string> servers_ ABSL_GUARDED_BY(mutex_);    // gRPC.
  std::vector<std::string> endpoints_ ABSL_GUARDED_BY(mutex_);  // Metrics.
  Attacks attacks_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::jthread> threads_;
};

/// The resident memory of each process of the cluster that runs, in bytes.
std::map<std::string, std::int64_t> ResidentBytesOf(const Cluster& cluster);

}  // namespace onepiece::ledger
