// What Consumer and its deliveries share. Internal to the ring.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "cluster/ring/consumer.h"
#include "cluster/ring/dedup.h"
#include "cluster/ring/segment.h"

namespace onepiece::ring {

/// Threading  As Consumer's. One mutex guards everything below it; no code holds it while it waits
/// for a producer,
///            allocates a segment or copies a payload.
class ConsumerCore : public std::enable_shared_from_this<ConsumerCore> {
 public:
  ConsumerCore(fabric::Fabric& fabric, ConsumerOptions options, base::Clock& clock,
               std::shared_ptr<fabric::Doorbell> doorbell, std::shared_ptr<Segment> segment);

  absl::StatusOr<ProducerGrant> Admit(const ProducerIdentity& identity);
  absl::Status Dismiss(std::uint64_t producer_id, std::uint64_t incarnation);
  std::optional<Delivery> Poll();
  std::optional<Delivery> Wait(base::MonotonicTime deadline);
  void Interrupt();
  bool Tick(base::MonotonicTime now);
  void Close();
  void Settle(const Delivery& delivery, bool bad_payload, bool read);
  ConsumerCounters counters() const;
  std::uint64_t generation() const;
  Consumer::Fill fill() const;
  [[nodiscard]] const ConsumerOptions& options() const { return options_; }

 private:
  struct Owner {
    ProducerIdentity identity;
    std::unique_ptr<fabric::Access> access;
    bool fenced = false;                     ///< Nothing of it can take effect any more.
    std::optional<std::uint64_t> until_seq;  ///< Fenced: no slot of it lies at or behind this one.
  };
  /// Since when recovery sees the same thing.
  struct Suspicion {
    std::uint64_t what = 0;
    std::optional<base::MonotonicTime> since;
    base::Duration Age(std::uint64_t what_now, base::MonotonicTime now);
    void Clear() { since.reset(); }
  };
  struct Drained {
    std::shared_ptr<Segment> segment;
    Slot slot;
    ProducerIdentity identity;
  };
  enum class Advice : std::uint8_t { kNothing, kChanged, kMove };

  // All of these REQUIRE mutex_ held.
  std::optional<Delivery> PollLocked();
  std::optional<Delivery> NextDrained();
  bool Published(std::uint64_t seq);
  bool ReadyLocked();
  Delivery MakeDelivery(std::shared_ptr<Segment> segment, const Slot& slot,
                        const ProducerIdentity& identity);
  void SweepDead();
  void ForgetGoneOwners();
  bool Fence(Owner& owner, bool suspected);
  Advice CheckLock(base::MonotonicTime now);
  Advice CheckHole(base::MonotonicTime now);
  Advice CheckReserved(const Slot& slot, base::MonotonicTime now);
  bool RepairTail();
  void LastLook(Segment& old);

  bool Move();  // Takes mutex_ itself.

  fabric::Fabric& fabric_;
  const ConsumerOptions options_;
  base::Clock& clock_;
  const std::shared_ptr<fabric::Doorbell> doorbell_;
  std::atomic<bool> interrupted_{false};

  mutable std::mutex mutex_;
  std::shared_ptr<Segment> segment_;
  std::unordered_map<std::uint16_t, Owner> owners_;  // Accesses do not outlive segment_.
  std::uint16_t last_owner_ = 0;
  DedupWindow dedup_;
  std::deque<Drained> drained_;       // Committed messages of moved segments, delivered first.
  std::uint64_t known_tail_seq_ = 0;  // Last valid tail of segment_; never ahead of it.
  bool unusable_ = false;             // segment_ holds what no honest producer writes.
  Suspicion lock_suspicion_;
  Suspicion hole_suspicion_;
  Suspicion tail_suspicion_;
  std::optional<base::MonotonicTime> next_sweep_;
  ConsumerCounters counters_;
};

}  // namespace onepiece::ring
