// What rdma_vm_ring does in a guest. Each function returns the exit code; what it prints is the
// test's result.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/producer.h"

namespace onepiece::rdma_vm {

/// The operations of a send without contention: two in its first round trip, six in its second.
inline constexpr int kOperations = 8;
/// One for each operation that a producer's guest is killed before, and one of long messages, in
/// the middle of which it is killed anywhere.
inline constexpr int kRings = kOperations + 1;
inline constexpr int kLongRing = kOperations;
inline constexpr std::uint64_t kLongBytes = 200'000;

/// Messages that a producer gets acknowledged before it stalls, and that another one sends after.
inline constexpr std::uint64_t kBefore = 20;
inline constexpr std::uint64_t kAfter = 50;

/// Producer ids: in the guest that is killed first, in the consumer's own, in the one that sees the
/// consumer's die.
inline constexpr std::uint64_t kKilled = 1;
inline constexpr std::uint64_t kNeighbour = 2;
inline constexpr std::uint64_t kSurvivor = 3;

/// How the consumer's answer starts when it lets nobody in; why follows.
inline constexpr char kRefused[] = "refused: ";

inline std::size_t MessageBytes(int ring, std::uint64_t id) {
  return ring == kLongRing ? kLongBytes : 1 + id * 37 % 1500;
}

/// Asks the consumer at `address` to let `producer_id` into ring number `ring`, and connects.
absl::StatusOr<std::unique_ptr<ring::Producer>> Join(fabric::Fabric& fabric,
                                                     const std::string& address, int ring,
                                                     std::uint64_t producer_id,
                                                     std::uint64_t incarnation);

/// Sends within this process and counts: "sends=… ops_per_send=… round_trips=… lost=… dup=…".
int Count(const std::string& uri);
/// Keeps kRings rings and answers on the control plane until it is killed.
[[noreturn]] void Consume(const std::string& uri);
/// Sends kAfter messages into each ring.
int Send(const std::string& uri, const std::string& address);
/// Stops before each operation of a send, in one ring each, and prints "stalled"; goes on once the
/// file `go` is there (never when empty), when the consumer is expected to be dead.
int Stall(const std::string& uri, const std::string& address, std::uint64_t producer_id,
          const std::string& go);
/// Prints what the consumer at `address` has seen.
int Report(const std::string& address);

}  // namespace onepiece::rdma_vm
