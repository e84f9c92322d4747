// How one message gets into a segment: one way for each shape. Internal to the ring.
#pragma once

#include <memory>
#include <random>
#include <span>

#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/grant.h"
#include "cluster/ring/layout.h"
#include "cluster/ring/options.h"
#include "cluster/ring/producer.h"

namespace onepiece::ring {

/// Threading: As Producer's.
class Sender {
 public:
  static std::unique_ptr<Sender> Make(std::unique_ptr<fabric::Channel> channel,
                                      const ProducerGrant& grant, const ProducerOptions& options,
                                      base::Clock& clock);
  virtual ~Sender() = default;
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  /// `message` says everything but where it goes. REQUIRES: the pieces have its length, and that is
  /// one the segment takes.
  virtual SendResult Send(Slot message, fabric::Op::Pieces pieces,
                          base::MonotonicTime deadline) = 0;
  [[nodiscard]] const ProducerCounters& counters() const { return counters_; }
  [[nodiscard]] fabric::ChannelCounters channel_counters() const { return channel_->counters(); }

 protected:
  Sender(std::unique_ptr<fabric::Channel> channel, const ProducerGrant& grant,
         const ProducerOptions& options, base::Clock& clock);

  /// A line that fails its check is being written; how often it is read again before the send gives
  /// up.
  static constexpr int kMaxRereads = 64;

  /// Bytes to skip so that `footprint` bytes from `offset` on do not wrap.
  [[nodiscard]] std::uint64_t PadBefore(std::uint64_t offset, std::uint64_t footprint) const;
  /// What a message takes of the ring, its PAD included.
  struct Room {
    std::uint64_t bytes = 0;
    std::uint64_t slots = 0;
  };
  /// Whether `room` is free behind `tail`. A tail behind its head, which no honest peer makes,
  /// counts as full.
  [[nodiscard]] bool HasRoom(const Tail& tail, const Head& head, const Room& room) const;
  /// This generation goes on, with the geometry of the grant.
  [[nodiscard]] bool IsCurrent(const Head& head) const;
  [[nodiscard]] Slot PadSlot(const Tail& tail, std::uint64_t pad_bytes) const;
  /// What follows the chain that committed `message` and read `words` of the head, the last word on
  /// the send. `head` is what was read.
  SendResult Confirm(const Slot& message, const HeadWords& words, bool notified, Head& head);
  /// Waits: exponential in `attempt`, with jitter over the upper half, so that two that collided
  /// once do not collide again.
  void BackOff(int attempt, base::MonotonicTime deadline);
  SendResult Busy(std::uint64_t& counter, const char* reason, bool reconnect);
  SendResult Unknown(absl::Status detail);
  absl::Status Execute(std::span<const fabric::Op> chain);

  const std::unique_ptr<fabric::Channel> channel_;
  const ProducerGrant grant_;
  const Layout layout_;
  const ProducerOptions options_;
  base::Clock& clock_;
  ProducerCounters counters_;

 private:
  absl::Status ReadHeadAgain(HeadWords& line, std::optional<Head>& seen);

  std::mt19937_64 random_;
};

std::unique_ptr<Sender> MakeSharedSender(std::unique_ptr<fabric::Channel> channel,
                                         const ProducerGrant& grant, const ProducerOptions& options,
                                         base::Clock& clock);
std::unique_ptr<Sender> MakeLaneSender(std::unique_ptr<fabric::Channel> channel,
                                       const ProducerGrant& grant, const ProducerOptions& options,
                                       base::Clock& clock);

}  // namespace onepiece::ring
