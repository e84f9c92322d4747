// The two ways between this worker and one peer: the peer's area in this worker's region, and a
// channel into this worker's area in the peer's region.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/fabric/fabric.h"
#include "stages/collectives/slots.h"

namespace onepiece::collectives {

/// Flow control: a chunk is sent into a slot only after the peer has said that it has read what was
/// there. A receiver says so in the headers of what it sends itself, and with a chain of its own
/// once half of the slots wait for it. So a sender that waits finds a free slot as soon as the
/// receiver has read all.
///
/// Waking: before it sleeps, a receiver counts up a word in its peers' regions and then looks at
/// its slots again. A sender reads that word after it has sent. One of the two sees the other, so a
/// sender rings only a peer that may sleep.
///
/// Threading: one thread at a time.
class Link {
 public:
  /// `region` is this worker's own. The access and the channel are those of the peer `peer`.
  Link(const AreaLayout& layout, std::uint32_t self, std::uint32_t peer, std::byte* region,
       std::unique_ptr<fabric::Access> access, std::unique_ptr<fabric::Channel> channel);

  [[nodiscard]] bool CanSend();
  /// Sends one chunk; the header's sequence and its count of read chunks are filled in.
  ///
  /// REQUIRES: CanSend(), and the chunk fits into a slot.
  ///
  /// Errors: those of Channel::Execute. Afterwards the link is broken.
  absl::Status Send(ChunkHeader header, std::span<const std::byte> chunk,
                    base::MonotonicTime deadline);

  /// The header of the chunk that comes next, once it is there.
  [[nodiscard]] const ChunkHeader* Peek();
  /// Its payload. REQUIRES: Peek() has returned it.
  [[nodiscard]] std::span<const std::byte> payload() const;
  /// Goes on to the next chunk. `epoch` is that of this worker.
  ///
  /// REQUIRES: Peek() has returned this one.
  ///
  /// Errors: as Send.
  absl::Status Read(std::uint64_t epoch, base::MonotonicTime deadline);

  /// Says that this worker may sleep from now on.
  ///
  /// Errors: as Send.
  absl::Status AnnounceSleep(base::MonotonicTime deadline);
  /// Rings the peer in any case.
  ///
  /// Errors: as Send.
  absl::Status Tell(const Notice& notice, base::MonotonicTime deadline);
  /// The last thing that the peer told.
  [[nodiscard]] std::optional<Notice> notice() const;

  /// The greatest epoch in which the peer is known to have been.
  [[nodiscard]] std::uint64_t peer_epoch() const;
  /// Looks whether the peer has done anything since the last look, and returns when it was last
  /// seen to have.
  base::MonotonicTime LastSign(base::MonotonicTime now);
  [[nodiscard]] bool PeerIsDead() const { return access_->PeerIsDead(); }
  [[nodiscard]] bool broken() const { return channel_->broken(); }
  /// Why the link is broken.
  [[nodiscard]] const absl::Status& failure() const { return failure_; }
  /// Ends the peer's way in, as fabric::Access::Revoke.
  [[nodiscard]] bool Revoke() { return access_->Revoke(); }

 private:
  absl::Status Run(base::MonotonicTime deadline);
  void RingIfAsleep(base::MonotonicTime deadline);
  void NoteRead(std::uint64_t count);

  const AreaLayout layout_;
  const std::uint32_t self_;
  const std::uint32_t peer_;
  std::byte* const region_;
  const std::unique_ptr<fabric::Access> access_;
  const std::unique_ptr<fabric::Channel> channel_;
  std::vector<fabric::Op> chain_;  // Kept, so that a message allocates nothing.
  absl::Status failure_;

  std::uint64_t sent_ = 0;  // Chunks to the peer, and how many of them it has read.
  std::uint64_t sent_read_ = 0;
  std::uint64_t received_ = 0;  // Chunks of the peer that were read, and what it knows of that.
  std::uint64_t received_told_ = 0;
  std::uint64_t naps_ = 0;  // Of this worker, and those of the peer that were answered.
  std::uint64_t naps_rung_ = 0;
  std::vector<std::uint64_t> former_checks_;  // By slot: the check of the chunk read last.
  std::optional<ChunkHeader> next_;
  std::uint64_t signs_ = 0;
  base::MonotonicTime last_sign_{};
};

}  // namespace onepiece::collectives
