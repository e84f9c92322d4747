// Clients that write and read at the replicas all the time and record what they saw.
//
// A register is a workflow of its own; its value is the workflow's display name. Writes are
// ApplyWorkflow, about 256 bytes each; reads are GetWorkflow.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "onepiece/v1/workflow.pb.h"
#include "tests/nodemanager/paxos/sim/history.h"

namespace onepiece::chaos {

/// Ownership: owns the clients and their threads.
///
/// Threading: one thread uses it, and may call WaitForWrite() and the counters while the load runs.
class Load {
 public:
  struct Options {
    std::vector<std::string> addresses;  ///< Of all replicas.
    std::uint64_t seed = 1;
    int clients = 32;
    double operations_per_s = 2500;  ///< Four of five are writes.
  };
  /// The outcomes of the writes.
  struct Counters {
    std::uint64_t acknowledged = 0;
    std::uint64_t unknown = 0;  ///< No answer in time, after all retries.
  };

  explicit Load(Options options);
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  void Start();
  /// Ends the clients. Operations under way become unknown.
  void Stop();

  /// From now on WaitForWrite() waits for writes that a client begins now or later.
  void ExpectWrite();
  /// Returns when the first of them was acknowledged, or nullopt if none is within `limit` from
  /// now. REQUIRES: ExpectWrite().
  std::optional<base::MonotonicTime> WaitForWrite(base::Duration limit);
  [[nodiscard]] std::vector<std::string> complaints() const;

  /// Reads every register that was ever written, as one more client. Returns the values by app_id,
  /// without registers that nobody wrote. REQUIRES: Stop().
  std::map<std::string, std::uint64_t> ReadAll();
  /// Returns all operations. Times are those of the monotonic clock. REQUIRES: Stop().
  [[nodiscard]] std::vector<paxos::sim::Operation> History() const;
  [[nodiscard]] Counters counters() const;  ///< REQUIRES: Stop().

  /// Returns the value that a workflow stands for, or 0 if it is not one of ours.
  static std::uint64_t ValueOf(const v1::Workflow& workflow);

 private:
  class Client;
  std::uint32_t DrawKey(std::uint64_t random);
  void Acknowledged(base::MonotonicTime began, base::MonotonicTime at);
  void Complain(std::string what);

  const Options options_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::jthread> threads_;
  std::vector<paxos::sim::Operation> last_reads_;
  std::atomic<std::uint64_t> drawn_{0};
  // What GetCluster has told any client so far.
  std::atomic<std::uint64_t> revision_{0}, epoch_{0};

  mutable base::Mutex mutex_;
  base::CondVar acknowledged_;
  // Guarded by mutex_.
  base::MonotonicTime since_ = base::MonotonicTime::max();
  std::optional<base::MonotonicTime> first_;
  std::vector<std::string> complaints_;
};

}  // namespace onepiece::chaos
