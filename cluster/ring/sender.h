// How one message gets into a segment; each shape of ring has its own way. Internal to the ring.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <span>

#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/grant.h"
#include "cluster/ring/layout.h"
#include "cluster/ring/options.h"
#include "cluster/ring/producer.h"

namespace onepiece::ring {

/// Threading: one thread at a time, as Producer. channel_counters(): any thread.
class Sender {
 public:
  static std::unique_ptr<Sender> Make(std::unique_ptr<fabric::Channel> channel,
                                      const ProducerGrant& grant, const ProducerOptions& options,
                                      base::Clock& clock);
  virtual ~Sender() = default;
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  /// Sends `message`, whose seq, offset and state Send itself decides. REQUIRES: the pieces have
  /// the message's length, and the segment takes a message of that length.
  virtual SendResult Send(Slot message, fabric::Op::Pieces pieces,
                          base::MonotonicTime deadline) = 0;
  /// As Producer::Look.
  virtual std::optional<Position> Look() = 0;
  [[nodiscard]] const ProducerCounters& counters() const { return counters_; }
  [[nodiscard]] fabric::ChannelCounters channel_counters() const { return channel_->counters(); }

 protected:
  Sender(std::unique_ptr<fabric::Channel> channel, const ProducerGrant& grant,
         const ProducerOptions& options, base::Clock& clock);

  /// How often a send rereads a line that fails its check, because it is being written, before it
  /// gives up.
  static constexpr int kMaxRereads = 64;

  /// How many bytes to skip at `offset` so that the next `footprint` bytes do not wrap.
  [[nodiscard]] std::uint64_t PadBefore(std::uint64_t offset, std::uint64_t footprint) const;
  /// What a message takes of the ring, its PAD included.
  struct Room {
    std::uint64_t bytes = 0;
    std::uint64_t slots = 0;
  };
  /// Whether `room` is free behind `tail`. The ring counts as full when the tail is behind the
  /// head, which no correct peer writes.
  [[nodiscard]] bool HasRoom(const Tail& tail, const Head& head, const Room& room) const;
  /// True while the generation of the grant lasts, with the grant's geometry.
  [[nodiscard]] bool IsCurrent(const Head& head) const;
  [[nodiscard]] Slot PadSlot(const Tail& tail, std::uint64_t pad_bytes) const;
  /// Decides the outcome after a chain that committed `message` and then read the head into
  /// `words`. Stores the decoded head in `head`.
  SendResult Confirm(const Slot& message, const HeadWords& words, bool notified, Head& head);
  /// Waits before try number `attempt` + 1. The wait grows exponentially, with jitter over its
  /// upper half, so that two producers that collided once do not collide again.
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
