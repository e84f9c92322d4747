// The state that a Consumer and its deliveries share. Internal to the ring.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/ring/consumer.h"
#include "cluster/ring/dedup.h"
#include "cluster/ring/segment.h"

namespace onepiece::ring {

/// Implements Consumer: enrollment.cc lets producers in, consume.cc takes messages out, recovery.cc
/// breaks locks and skips holes, retirement.cc leaves segments behind, health.cc takes snapshots.
///
/// Threading: as Consumer. One mutex guards the state. No code holds it while it waits for a
/// producer, makes or destroys a segment or an access, fences a peer, or copies a payload.
class ConsumerCore : public std::enable_shared_from_this<ConsumerCore> {
 public:
  ConsumerCore(fabric::Fabric& fabric, ConsumerOptions options, base::Clock& clock,
               std::shared_ptr<fabric::Doorbell> doorbell);
  /// Makes the shared ring's segment. Call it first.
  ///
  /// Errors: those of Fabric::Register.
  absl::Status Open();

  absl::StatusOr<ProducerGrant> Enroll(const ProducerIdentity& identity);
  absl::Status Dismiss(ProducerId producer_id, Incarnation incarnation);
  std::optional<Delivery> Poll();
  std::optional<Delivery> Wait(base::MonotonicTime deadline);
  void Interrupt();
  bool Tick(base::MonotonicTime now);
  void Rest(const std::stop_token& stop, base::Duration watchful, base::Duration calm);
  void Shut();
  void Close();
  void Settle(const Delivery& delivery, bool bad_payload, bool read);
  ConsumerCounters counters() const;
  Generation generation() const;
  Consumer::Fill fill() const;
  std::function<bool()> MarkEnd();
  std::optional<std::string> NameOf(ProducerId producer_id) const;
  RingHealth health() const;
  [[nodiscard]] const ConsumerOptions& options() const { return options_; }

 private:
  /// Since when recovery has seen the same thing, for instance one lock word.
  struct Suspicion {
    std::uint64_t what = 0;
    std::optional<base::MonotonicTime> since;
    bool counted = false;  ///< The counters have it as a stall.
    /// Notes that recovery sees `what_now`; returns for how long that has been so.
    base::Duration Age(std::uint64_t what_now, base::MonotonicTime now);
    void Clear() { since.reset(); }
  };
  /// A segment that producers may write into, with what recovery watches in it. A shared ring has
  /// one for all owners, else each owner has its own. `mutex_` guards its members.
  struct ActiveSegment {
    std::shared_ptr<Segment> segment;
    bool unusable = false;  ///< It holds what no correct producer writes.
    Suspicion lock;
    Suspicion hole;
    Suspicion tail;
    Suspicion oldest;  ///< No suspicion: since when recovery has seen the oldest message.
  };
  struct Record {
    ProducerHealth health;
    std::uint64_t delivered_seen = 0;  ///< health.delivered when last_seen was noted.
  };
  /// One enrollment. `mutex_` guards `fenced`, `left` and `until_seq`; the rest never changes.
  struct Owner {
    ProducerIdentity identity;
    std::shared_ptr<ActiveSegment> home;  ///< Where it writes.
    std::shared_ptr<Record> record;
    std::unique_ptr<fabric::Access> access;  ///< Does not outlive the region of `home`.
    bool fenced = false;                     ///< None of its operations can take effect any more.
    /// Where the tail was when its producer said good-bye, although nothing fences it. nullopt: it
    /// has not, or has sent since.
    std::optional<std::uint64_t> left;
    /// Once it is fenced: all its slots have smaller numbers.
    std::optional<std::uint64_t> until_seq;
  };
  /// A committed message of a retired segment.
  struct Drained {
    std::shared_ptr<Segment> segment;
    Slot slot;
    ProducerIdentity identity;
    std::shared_ptr<Record> record;
  };
  enum class Advice : std::uint8_t { kNothing, kChanged, kMove };
  /// The result of a look at a ring's memory: what Tick does next, without the mutex.
  struct Findings {
    bool changed = false;
    bool move = false;
    bool prepare = false;  ///< A move may come soon.
    struct Suspect {
      std::shared_ptr<Owner> owner;
      bool timed_out = false;  ///< False: its process is dead.
    };
    std::vector<Suspect> suspects;
  };
  /// Things to destroy once the mutex is free. Declare it before the lock.
  using Trash = std::vector<std::shared_ptr<void>>;
  using Owners = std::unordered_map<std::uint16_t, std::shared_ptr<Owner>>;

  [[nodiscard]] bool shared() const { return options_.shape == Shape::kShared; }
  absl::StatusOr<std::shared_ptr<ActiveSegment>> NewSegment();

  /// Polls once. When it finds nothing and `show_heads` is set, it shows producers the room there
  /// is.
  std::optional<Delivery> Look(bool show_heads);
  /// Polls until the options' spin time is over.
  std::optional<Delivery> Spin(base::MonotonicTime deadline);

  std::optional<Delivery> PollLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShowHeads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Delivery> TakeFrom(ActiveSegment& active, std::uint32_t& turns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Delivery> NextDrained() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ReadyLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetSleeping(bool sleeping) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Delivery MakeDelivery(std::shared_ptr<Segment> segment, const Slot& slot,
                        const ProducerIdentity& identity, Record& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<std::shared_ptr<Owner>> OwnersOf(ProducerId producer_id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MayEnroll(const ProducerIdentity& identity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FenceOldestLeft() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetGoneOwners(Trash& trash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Findings Look(base::MonotonicTime now, Trash& trash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SweepDead(Findings& findings, Trash& trash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Advice CheckLock(ActiveSegment& active, base::MonotonicTime now, Findings& findings)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Advice CheckHole(ActiveSegment& active, base::MonotonicTime now, Findings& findings)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Advice CheckReserved(ActiveSegment& active, const Slot& slot, base::MonotonicTime now,
                       Findings& findings) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteSuspect(const std::shared_ptr<Owner>& owner, bool timed_out, Suspicion& suspicion,
                   const char* why, Findings& findings) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool TimedOut(Suspicion& suspicion, std::uint64_t what_now, base::MonotonicTime now,
                       base::Duration limit, Findings& findings);
  void NoteOldest(base::MonotonicTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool SomebodyMidway() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::shared_ptr<Record> RecordOf(const ProducerIdentity& identity)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteSeen(base::MonotonicTime now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool RepairTail(Segment& segment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool RetireUnusable(Trash& trash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Retire(std::shared_ptr<ActiveSegment> active, Trash& trash)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LastLook(const std::shared_ptr<Segment>& old) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeRest(const std::shared_ptr<Segment>& old) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TooManyRetired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // These lock mutex_ themselves.
  absl::StatusOr<ProducerGrant> TryEnroll(const ProducerIdentity& identity);
  bool MakeRoom();
  bool FenceAll(const Findings& findings);
  void Prepare(bool wanted);
  bool Move();

  fabric::Fabric& fabric_;
  const ConsumerOptions options_;
  base::Clock& clock_;
  const std::shared_ptr<fabric::Doorbell> doorbell_;
  std::atomic<bool> interrupted_{false};

  mutable base::Mutex mutex_;
  std::vector<std::shared_ptr<ActiveSegment>> active_ ABSL_GUARDED_BY(mutex_);
  std::size_t next_active_ ABSL_GUARDED_BY(mutex_) = 0;  // Whose turn it is.
  Generation last_generation_ ABSL_GUARDED_BY(mutex_);
  Owners owners_ ABSL_GUARDED_BY(mutex_);
  std::uint16_t last_owner_ ABSL_GUARDED_BY(mutex_) = 0;
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;  // No segment is active any more.
  DedupWindow dedup_ ABSL_GUARDED_BY(mutex_);
  // Committed messages of retired segments, delivered first.
  std::deque<Drained> drained_ ABSL_GUARDED_BY(mutex_);
  // Retired segments whose memory messages may still hold.
  std::vector<std::weak_ptr<Segment>> retired_ ABSL_GUARDED_BY(mutex_);
  // Memory of drained messages that nobody gets. The next Tick frees it, because Poll must not
  // wait.
  Trash dropped_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<ProducerId, std::shared_ptr<Record>> records_ ABSL_GUARDED_BY(mutex_);
  std::optional<base::MonotonicTime> next_sweep_ ABSL_GUARDED_BY(mutex_);
  bool asleep_ ABSL_GUARDED_BY(mutex_) = false;  // Wait is at its doorbell.
  // Rest rests for its longer time; setting care_wanted_ ends that.
  bool resting_calmly_ ABSL_GUARDED_BY(mutex_) = false;
  bool care_wanted_ ABSL_GUARDED_BY(mutex_) = false;
  base::CondVar care_changed_;
  ConsumerCounters counters_ ABSL_GUARDED_BY(mutex_);

  // Only the ticking thread uses these.
  // Memory to move to, made while a stall is not yet a suspicion.
  std::shared_ptr<ActiveSegment> spare_;
  // No move before this time, after one that failed.
  std::optional<base::MonotonicTime> next_move_;
};

}  // namespace onepiece::ring
