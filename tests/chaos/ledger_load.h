// The clients of a ledger run: they submit jobs, look at them, fetch, acknowledge, cancel and
// delete, and write every answer into the ledger before they do anything else.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "onepiece/v1/generation.grpc.pb.h"
#include "tests/chaos/ledger.h"
#include "tests/chaos/ledger_audit.h"
#include "tests/chaos/ledger_cluster.h"
#include "tests/nodemanager/paxos/sim/random.h"

namespace onepiece::ledger {

/// The time of all that the ledger hears.
inline base::MonotonicTime Now() { return base::SystemClock().Now(); }

/// One proxy process. Its address is its name in the ledger.
struct ProxyStub {
  std::string address;
  std::shared_ptr<v1::GenerationService::Stub> stub;
};

/// The proxies that run just now.
///
/// Threading: may be used from any thread.
class Proxies {
 public:
  explicit Proxies(const Cluster& cluster) : cluster_(cluster) {}
  /// Reads the list again when it is older than 300 ms.
  std::vector<ProxyStub> List();

 private:
  const Cluster& cluster_;
  base::Mutex mutex_;
  base::MonotonicTime read_ ABSL_GUARDED_BY(mutex_) = base::MonotonicTime::min();
  std::vector<ProxyStub> list_ ABSL_GUARDED_BY(mutex_);
};

/// One question to one proxy.
///
/// Blocking: at most 5 s, a fetch 30 s, scaled.
absl::StatusOr<Word> AskProxy(const ProxyStub& proxy, const std::string& uid);
absl::StatusOr<std::string> FetchSha256(const ProxyStub& proxy, const std::string& uid);

/// Watches a job until it ends or the stream does, and writes every word into the ledger.
///
/// Blocking: at most `limit`, scaled.
/// Returns the last state that it heard.
v1::Job::State WatchProxy(const ProxyStub& proxy, const std::string& uid, base::Duration limit,
                          Ledger& ledger);

/// Draws a result's size: most are small, and a few as large as `largest` allows.
std::int64_t DrawSize(paxos::sim::Random& random, std::int64_t largest);
/// The digest of the Bytes of a seed, made piece by piece.
std::string ExpectedSha256(std::uint64_t seed, std::int64_t size);
inline constexpr std::int64_t kSmallBytes = 1 << 10, kMediumBytes = 256 << 10;
/// Of the results that a client has left in the store. From so many on it takes the large ones.
inline constexpr std::int64_t kMakeRoomBytes = std::int64_t{128} << 20;

struct LoadOptions {
  std::uint64_t seed = 0;
  int clients = 4;
  double jobs_per_s = 5;
  std::int64_t largest_bytes = 0;
  int cancel_percent = 0;  ///< Of the jobs.
  bool fetch_all = false;  ///< Every result is fetched at once, so that no fault can take one.
  /// Is told of every accepted job.
  std::function<void(const std::string& uid, base::MonotonicTime sent)> accepted =
      [](const std::string&, base::MonotonicTime) {};
};

/// Threading: thread-confined; its clients have threads of their own.
class LedgerLoad {
 public:
  /// Borrows all of them.
  LedgerLoad(const LoadOptions& options, Ledger& ledger, Proxies& proxies);
  /// Calls Stop().
  ~LedgerLoad();
  LedgerLoad(const LedgerLoad&) = delete;
  LedgerLoad& operator=(const LedgerLoad&) = delete;

  void Start();
  void Stop();
  /// Returns what was not accepted, by reason. "silent": no proxy gave an answer in time.
  [[nodiscard]] std::map<std::string, std::int64_t> Refused() const;  ///< REQUIRES: Stop().

 private:
  class Client;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::jthread> threads_;
};

/// Asks the proxies for the audit, each in turn, and one that was silent last.
///
/// Threading: thread-confined.
class ProxySource final : public Source {
 public:
  /// From `deadline` on nobody is asked any more.
  ProxySource(Proxies& proxies, base::MonotonicTime deadline)
      : proxies_(proxies), deadline_(deadline) {}
  absl::StatusOr<Word> Ask(const std::string& uid) override;
  absl::StatusOr<std::string> Fetch(const std::string& uid) override;
  bool Wait() override;

 private:
  std::vector<ProxyStub> InOrder();
  void Heard(const ProxyStub& proxy, const absl::Status& status);

  Proxies& proxies_;
  const base::MonotonicTime deadline_;
  std::set<std::string> silent_;  // Addresses.
};

}  // namespace onepiece::ledger
