// One generation of a ring, as its consumer sees it. Internal to the ring.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/ids.h"
#include "cluster/ring/layout.h"

namespace onepiece::ring {

/// A segment's region, the consumer's position in it (the cursor), and which of its bytes
/// deliveries still hold.
///
/// Threading: not thread-safe; the consumer's mutex guards it. Any thread may call payload(),
/// region(), layout() and generation().
///
/// Invariants: head.seq <= cursor_seq <= head.seq + slots, and head.offset <= cursor_offset <=
/// head.offset + capacity.
class Segment {
 public:
  static absl::StatusOr<std::shared_ptr<Segment>> Create(fabric::Fabric& fabric,
                                                         const Layout& layout,
                                                         std::string_view label,
                                                         std::shared_ptr<fabric::Doorbell> doorbell,
                                                         Shape shape, Generation generation);

  [[nodiscard]] fabric::Region& region() const { return *region_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] Generation generation() const { return generation_; }
  [[nodiscard]] const Head& head() const { return head_; }
  [[nodiscard]] std::uint64_t cursor_seq() const { return cursor_seq_; }
  [[nodiscard]] std::uint64_t cursor_offset() const { return cursor_offset_; }

  /// The published slot at the cursor, if there is one. Its own check and number are right, and in
  /// a shared ring it is not RESERVED. The caller checks everything else.
  [[nodiscard]] std::optional<Slot> Next();
  /// The published messages that are not yet released.
  struct Fill {
    std::uint64_t bytes = 0;
    std::uint64_t messages = 0;
  };
  [[nodiscard]] Fill fill() const;
  /// One more than the number of the last published message; nullopt while the tail is being
  /// written.
  [[nodiscard]] std::optional<std::uint64_t> End() const;
  /// The content of the slot of `seq`; nullopt while it fails its check.
  [[nodiscard]] std::optional<Slot> ReadSlot(std::uint64_t seq) const;
  /// The number that the slot of `seq` carries. Nothing has checked it.
  [[nodiscard]] std::uint64_t RawSlotSeq(std::uint64_t seq) const;
  /// nullopt while the line fails its check or names a place that the ring cannot hold.
  [[nodiscard]] std::optional<Tail> ReadTail() const;
  /// REQUIRES: every owner that might write the tail is fenced.
  void RewriteTail(const Tail& tail);
  [[nodiscard]] std::uint64_t ReadLock() const;
  /// Frees the lock if it still is `word`. False when it is another word or the loopback channel
  /// failed.
  bool BreakLock(std::uint64_t word);

  /// True when the slot's payload starts at `offset`, and its bytes are inside the buffer and free.
  [[nodiscard]] bool Fits(const Slot& slot, std::uint64_t offset) const;
  [[nodiscard]] std::uint64_t EndOf(const Slot& slot) const {
    return slot.offset + Layout::Footprint(slot.length_bytes);
  }
  /// Moves the cursor past `slot`. Its bytes stay held until Release. REQUIRES: Fits(slot,
  /// cursor_offset()).
  void Advance(const Slot& slot);
  /// Gives the bytes of a slot behind the cursor back, in any order. The head moves over the
  /// released prefix. Publishing the head moves a line between two processors, so producers see it
  /// only once an eighth of the ring is free anew, at once while the consumer sleeps, or at
  /// ShowHead.
  void Release(std::uint64_t seq);
  /// Publishes the head.
  void ShowHead();
  void SetSleeping(bool sleeping);
  /// Tells producers that this generation is over.
  void Retire();
  [[nodiscard]] bool retired() const { return (head_.flags & kFlagRetired) != 0; }

  [[nodiscard]] std::span<const std::byte> payload(std::uint64_t offset,
                                                   std::uint64_t length) const;

 private:
  Segment(std::unique_ptr<fabric::Region> region, fabric::Loopback loopback,
          base::Clock& fabric_clock, const Layout& layout, Shape shape, Generation generation);
  enum class Order : std::uint8_t { kRelaxed, kBeforeLooking };
  void PublishHead(Order order);
  bool Published(std::uint64_t seq);

  const std::unique_ptr<fabric::Region> region_;
  const fabric::Loopback loopback_;
  base::Clock& fabric_clock_;  // Its channels' deadlines are of it, whatever clock the ring has.
  const Layout layout_;
  const Shape shape_;
  const Generation generation_;
  std::byte* const memory_;
  Head head_;
  HeadWords published_{};
  std::uint64_t cursor_seq_ = 0;
  std::uint64_t cursor_offset_ = 0;
  std::uint64_t known_tail_seq_ = 0;  // Shared ring: the last valid tail seen; never ahead of it.
  // Indexed by seq % slots. Only the slots between head and cursor count.
  std::vector<bool> released_;
  std::vector<std::uint64_t> end_offset_;
};

}  // namespace onepiece::ring
