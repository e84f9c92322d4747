// The paper's double ring (docs/decisions/0007-fenced-ring.md), for comparison and for tests only.
// Its lock has no owner: a producer that has waited long enough "releases and reacquires" it. It
// has a busy bit for each size, and a checksum over the header only. After one timeout it loses,
// duplicates and alters messages; docs/ring-protocol.md, "How does the paper's ring fail", says
// how.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::ring {

struct PaperLayout {
  static constexpr std::uint64_t kLock = 0;
  static constexpr std::uint64_t kTail = 64;   ///< seq, offset; written by producers.
  static constexpr std::uint64_t kHead = 128;  ///< seq, offset; written by the consumer.
  static constexpr std::uint64_t kSizes = 192;
  static constexpr std::uint64_t kSlots = 16;
  static constexpr std::uint64_t kBuffer = kSizes + kSlots * sizeof(std::uint64_t);
  static constexpr std::uint64_t kCapacityBytes = 4096;
  static constexpr std::uint64_t kBusy = std::uint64_t{1} << 63;
  static constexpr std::uint64_t kRegionBytes = kBuffer + kCapacityBytes;
  /// Where an entry of `bytes` bytes lies when the ring is at `offset`.
  static std::uint64_t Place(std::uint64_t offset, std::uint64_t bytes);
};

struct PaperMessage {
  std::uint64_t producer = 0;
  std::uint64_t id = 0;
  std::vector<std::byte> bytes;
};

/// Ownership: borrows the memory.
///
/// Threading: not thread-safe.
class PaperConsumer {
 public:
  explicit PaperConsumer(std::span<std::byte> memory) : memory_(memory) {}
  /// The next message. Entries whose header has a wrong checksum are discarded.
  std::optional<PaperMessage> Poll();

 private:
  std::span<std::byte> memory_;
  std::uint64_t seq_ = 0;
  std::uint64_t offset_ = 0;
};

/// Threading: one thread at a time.
class PaperProducer {
 public:
  PaperProducer(std::unique_ptr<fabric::Channel> channel, std::uint64_t id)
      : channel_(std::move(channel)), id_(id) {}
  /// Returns true when the producer believes that the message was sent. After `patience` attempts
  /// at the lock it takes the lock's holder for dead.
  bool Send(std::uint64_t message, std::span<const std::byte> bytes, int patience);

 private:
  bool Lock(int patience);

  const std::unique_ptr<fabric::Channel> channel_;
  const std::uint64_t id_;
};

}  // namespace onepiece::ring
