// ConsumerCore: breaks locks and skips holes, always behind a fence; and the thread that does it.
//
// There are two fences. An owner that is dead, suspected or has said good-bye is revoked, where the
// backend can do that. From an owner that may still write, the ring moves away to a fresh segment.
// On shm that includes one that has said good-bye: nobody can check that it has.
#include "cluster/ring/recovery.h"

#include <algorithm>
#include <utility>

#include "cluster/base/mutex.h"
#include "cluster/ring/consumer_core.h"
#include "spdlog/spdlog.h"

namespace onepiece::ring {

base::Duration ConsumerCore::Suspicion::Age(std::uint64_t what_now, base::MonotonicTime now) {
  if (!since.has_value() || what != what_now) {
    what = what_now;
    since = now;
    counted = false;
  }
  return now - *since;
}

// True when `limit` has passed since `what_now` was first seen. Past half of it, Tick makes the
// memory to move to. For a large ring that takes long, and would otherwise come on top of the
// timeout.
bool ConsumerCore::TimedOut(Suspicion& suspicion, std::uint64_t what_now, base::MonotonicTime now,
                            base::Duration limit, Findings& findings) {
  const base::Duration age = suspicion.Age(what_now, now);
  findings.prepare |= age >= limit / 2;
  return age >= limit;
}

bool ConsumerCore::Tick(base::MonotonicTime now) {
  bool changed = false;
  while (true) {
    Findings findings;
    {
      Trash trash;  // Emptied once the mutex is free.
      const base::MutexLock lock(mutex_);
      trash.swap(dropped_);
      findings = Look(now, trash);
    }
    changed |= findings.changed;
    Prepare(findings.prepare);
    if (findings.move) return Move() || changed;
    if (findings.suspects.empty()) break;
    // Every turn fences at least one more owner.
    if (FenceAll(findings)) continue;
    if (std::ranges::any_of(findings.suspects, &Findings::Suspect::timed_out)) {
      return Move() || changed;
    }
    break;
  }
  if (changed) doorbell_->Ring();
  return changed;
}

// Returns true when at least one suspect is fenced now.
bool ConsumerCore::FenceAll(const Findings& findings) {
  bool any = false;
  for (const Findings::Suspect& suspect : findings.suspects) {
    // Revoke may take the backend milliseconds. The mutex is free, so nobody waits for it.
    if (!suspect.owner->access->Revoke()) continue;
    const base::MutexLock lock(mutex_);
    any = true;
    if (suspect.owner->fenced) continue;  // An enrollment or a good-bye was faster.
    suspect.owner->fenced = true;
    ++counters_.owners_fenced;
  }
  return any;
}

ConsumerCore::Findings ConsumerCore::Look(base::MonotonicTime now, Trash& trash) {
  Findings findings;
  ++counters_.looks;
  if (!next_sweep_.has_value() || now >= *next_sweep_) {
    next_sweep_ = now + options_.timeouts.Sweep();
    SweepDead(findings, trash);
    ForgetGoneOwners(trash);
    NoteSeen(now);
  }
  if (!shared()) {
    findings.changed |= RetireUnusable(trash);
    NoteOldest(now);
    return findings;
  }
  if (active_.empty()) return findings;
  ActiveSegment& active = *active_.front();
  const Advice lock_advice = CheckLock(active, now, findings);
  const Advice hole_advice = CheckHole(active, now, findings);
  NoteOldest(now);
  findings.changed |= lock_advice == Advice::kChanged || hole_advice == Advice::kChanged;
  findings.move = active.unusable || lock_advice == Advice::kMove || hole_advice == Advice::kMove;
  return findings;
}

void ConsumerCore::SweepDead(Findings& findings, Trash& trash) {
  std::vector<std::shared_ptr<ActiveSegment>> left;
  for (const auto& [id, owner] : owners_) {
    if (owner->fenced || !owner->access->PeerIsDead()) continue;
    if (shared()) {
      findings.suspects.push_back({.owner = owner});
    } else {
      left.push_back(owner->home);
    }
  }
  for (auto& active : left) {
    ++counters_.owners_fenced;
    Retire(std::move(active), trash);
    findings.changed = true;
  }
}

ConsumerCore::Advice ConsumerCore::CheckLock(ActiveSegment& active, base::MonotonicTime now,
                                             Findings& findings) {
  Segment& segment = *active.segment;
  const std::uint64_t word = segment.ReadLock();
  if (word == 0) {
    active.lock.Clear();
    return Advice::kNothing;
  }
  const bool suspected = TimedOut(active.lock, word, now, options_.timeouts.Lock(), findings);
  const auto owner = owners_.find(LockOwner(word));
  if (owner == owners_.end()) {
    if (!suspected) return Advice::kNothing;
    spdlog::warn("ring {}: lock held by nobody's owner {}", options_.label, LockOwner(word));
    return Advice::kMove;
  }
  if (!owner->second->fenced) {
    NoteSuspect(owner->second, suspected, active.lock, "holds the lock", findings);
    return Advice::kNothing;
  }
  // The owner is fenced. If it held this lock then, the lock word is unchanged. Otherwise the lock
  // is free or another owner's, and there is nothing to break.
  if (segment.ReadLock() != word) return Advice::kNothing;
  // The tail is repaired while the lock is still taken, because until then nobody else writes it.
  if (!segment.ReadTail().has_value() && !RepairTail(segment)) return Advice::kMove;
  if (!segment.BreakLock(word)) return Advice::kMove;
  ++counters_.locks_broken;
  active.lock.Clear();
  return Advice::kChanged;
}

// A dead owner becomes a suspect at once, a live one only after a timeout.
void ConsumerCore::NoteSuspect(const std::shared_ptr<Owner>& owner, bool timed_out,
                               Suspicion& suspicion, const char* why, Findings& findings) {
  if (!timed_out && !owner->access->PeerIsDead()) return;
  if (timed_out && !suspicion.counted) {
    suspicion.counted = true;
    ++counters_.stalls;
    ++owner->record->health.stalls;
    spdlog::warn("ring {}: producer {} of {} (process {}) {} for too long", options_.label,
                 owner->identity.producer_id.value, owner->identity.name, owner->access->peer().pid,
                 why);
  }
  findings.suspects.push_back({.owner = owner, .timed_out = timed_out});
}

// The owner died while it wrote the tail. It completes every slot before it publishes it with the
// tail, so the tail is where the unbroken chain of slots ends. Publishing a reservation of a fenced
// owner is harmless: recovery skips it.
bool ConsumerCore::RepairTail(Segment& segment) {
  Tail tail{.seq = segment.cursor_seq(), .offset = segment.cursor_offset()};
  while (tail.seq - segment.head().seq < options_.slots) {
    const auto slot = segment.ReadSlot(tail.seq);
    if (!slot.has_value()) {
      // This slot may be another owner's commit under way, which looks the same as the end of the
      // chain. Then only a move is safe.
      if (segment.RawSlotSeq(tail.seq) == tail.seq) return false;
      break;
    }
    if (slot->seq != tail.seq || slot->generation != segment.generation() ||
        !segment.Fits(*slot, tail.offset)) {
      break;
    }
    ++tail.seq;
    tail.offset = segment.EndOf(*slot);
  }
  segment.RewriteTail(tail);
  ++counters_.tails_repaired;
  return true;
}

ConsumerCore::Advice ConsumerCore::CheckHole(ActiveSegment& active, base::MonotonicTime now,
                                             Findings& findings) {
  Segment& segment = *active.segment;
  Advice advice = Advice::kNothing;
  for (std::uint32_t turn = 0; turn < options_.slots; ++turn) {
    const std::uint64_t seq = segment.cursor_seq();
    const auto tail = segment.ReadTail();
    if (!tail.has_value()) {
      // While the lock is held, CheckLock decides. With a free lock nobody else repairs the tail.
      const bool held = segment.ReadLock() != 0;
      if (held) active.tail.Clear();
      const bool stays =
          !held && TimedOut(active.tail, seq, now, options_.timeouts.Lock(), findings);
      return stays ? Advice::kMove : advice;
    }
    active.tail.Clear();
    if (tail->seq <= seq) {
      // Nothing is published here. A reservation belongs to an owner that has not yet written the
      // tail.
      active.hole.Clear();
      return advice;
    }
    const auto slot = segment.ReadSlot(seq);
    if (!slot.has_value() || slot->seq != seq) {
      const bool stays = TimedOut(active.hole, seq, now,
                                  options_.timeouts.Fill(options_.capacity_bytes / 2), findings);
      return stays ? Advice::kMove : advice;
    }
    if (slot->state != SlotState::kReserved) {
      active.hole.Clear();
      return advice;
    }
    const Advice one = CheckReserved(active, *slot, now, findings);
    if (one == Advice::kMove) return one;
    if (one == Advice::kNothing) return advice;
    advice = Advice::kChanged;
  }
  return advice;
}

// Judges a published reservation at the cursor.
ConsumerCore::Advice ConsumerCore::CheckReserved(ActiveSegment& active, const Slot& slot,
                                                 base::MonotonicTime now, Findings& findings) {
  Segment& segment = *active.segment;
  // This check comes first, because the length below sets the timeout and the size of the skip.
  if (!segment.Fits(slot, segment.cursor_offset())) {
    ++counters_.bad_structure;
    active.unusable = true;
    return Advice::kMove;
  }
  const bool suspected =
      TimedOut(active.hole, slot.seq, now, options_.timeouts.Fill(slot.length_bytes), findings);
  const auto owner = owners_.find(slot.owner);
  if (owner == owners_.end()) return suspected ? Advice::kMove : Advice::kNothing;
  if (!owner->second->fenced) {
    NoteSuspect(owner->second, suspected, active.hole, "does not finish its message", findings);
    return Advice::kNothing;
  }
  // Looks again, behind the fence: the owner may have committed just before it died.
  const auto again = segment.ReadSlot(slot.seq);
  if (again != slot) return Advice::kNothing;
  segment.Advance(slot);
  segment.Release(slot.seq);
  ++counters_.holes_skipped;
  active.hole.Clear();
  return Advice::kChanged;
}

// True when a producer holds the lock, or has published a reservation and not yet committed it.
bool ConsumerCore::SomebodyMidway() const {
  if (!shared() || active_.empty()) return false;
  const Segment& segment = *active_.front()->segment;
  const auto tail = segment.ReadTail();
  return segment.ReadLock() != 0 || !tail.has_value() || tail->seq != segment.cursor_seq();
}

void ConsumerCore::Rest(const std::stop_token& stop, base::Duration watchful, base::Duration calm) {
  base::MutexLock lock(mutex_);
  resting_calmly_ = asleep_ && !care_wanted_ && !SomebodyMidway();
  const base::MonotonicTime until = clock_.Now() + (resting_calmly_ ? calm : watchful);
  care_wanted_ = false;
  clock_.WaitUntil(
      care_changed_, lock, stop, until,
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return resting_calmly_ && care_wanted_; });
  resting_calmly_ = false;
  care_wanted_ = false;
}

RecoveryRunner::RecoveryRunner(Consumer& consumer, base::Clock& clock, base::Duration watchful,
                               base::Duration calm)
    : thread_([&consumer, &clock, watchful, calm](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          consumer.Tick(clock.Now());
          consumer.Rest(stop, watchful, calm);
        }
      }) {}

}  // namespace onepiece::ring
