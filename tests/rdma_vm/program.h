// The steps of rdma_vm_ring in a guest. Each function returns the exit code, and prints the test's
// result.
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
/// The number of rings: one for each operation before which a producer's guest is killed, and one
/// with long messages, in the middle of which it is killed anywhere.
inline constexpr int kRings = kOperations + 1;
inline constexpr int kLongRing = kOperations;
inline constexpr std::uint64_t kLongBytes = 200'000;

/// The acknowledged messages of a producer before it stalls, and the messages of another one after
/// that.
inline constexpr std::uint64_t kBefore = 20;
inline constexpr std::uint64_t kAfter = 50;

/// Producer ids: in the guest that is killed first, in the consumer's guest, and in the guest that
/// sees the consumer's die.
inline constexpr std::uint64_t kKilled = 1;
inline constexpr std::uint64_t kNeighbour = 2;
inline constexpr std::uint64_t kSurvivor = 3;

/// The start of the consumer's answer when it refuses a producer. The reason follows.
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
/// Stops before each operation of a send, in one ring each, and prints "stalled". Goes on once the
/// file `go` is there (never when `go` is empty); by then the consumer must be dead.
int Stall(const std::string& uri, const std::string& address, std::uint64_t producer_id,
          const std::string& go);
/// Prints the counts of the consumer at `address`.
int Report(const std::string& address);

}  // namespace onepiece::rdma_vm
