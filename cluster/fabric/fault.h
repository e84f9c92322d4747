// Faults on purpose, for tests and soak runs: a decorator of any fabric. Before each operation of a
// chain its policy decides whether the operation is delayed, lost, torn, the last one of its
// process, or the last one of its channel.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::fabric {

enum class FaultKind : std::uint8_t {
  kNone,
  kDelay,  ///< Waits `delay` of the fabric's clock, then goes on.
  kDrop,   ///< The operation and the rest of the chain are lost; the channel breaks
           ///< (DEADLINE_EXCEEDED).
  kTear,   ///< As kDie, but half of the words or bytes of this write still arrive.
  kDie,    ///< The process dies here: none of its operations takes effect any more.
  kBreak,  ///< The operation takes effect, its completion is lost; the channel breaks.
  kSplit,  ///< Half of this write arrives; the policy is asked again before the whole of it does.
  kLate,   ///< The operation and the rest of the chain stay on their way until FaultBoard::Land;
           ///< the channel breaks (DEADLINE_EXCEEDED).
};

struct Fault {
  FaultKind kind = FaultKind::kNone;
  base::Duration delay{};
};

/// An operation about to be executed.
struct FaultPoint {
  std::uint64_t index = 0;  ///< The operation's number over the channel's life, from 0.
  const char* name = "";
  Op::Kind kind = Op::Kind::kNotify;
};

/// Decides about faults. Before may block, which stalls the operation.
///
/// Threading: thread-safe.
class FaultPolicy {
 public:
  virtual ~FaultPolicy() = default;
  virtual Fault Before(const FaultPoint& point) = 0;
};

/// One fault at operation `index`, once. Without a fault the operation stalls until Release.
class PlannedFault final : public FaultPolicy {
 public:
  PlannedFault(std::uint64_t index, std::optional<FaultKind> fault)
      : index_(index), fault_(fault) {}
  Fault Before(const FaultPoint& point) override;
  /// Waits until the operation has been reached; false when `limit` of real time passes first.
  bool AwaitReached(base::Duration limit);
  /// Lets the stalled operation go on, even when it stalls only later.
  void Release();
  [[nodiscard]] std::string reached_name() const;

 private:
  const std::uint64_t index_;
  const std::optional<FaultKind> fault_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  bool reached_ ABSL_GUARDED_BY(mutex_) = false;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  std::string reached_name_ ABSL_GUARDED_BY(mutex_);
};

/// Probability of each fault at each operation.
struct FaultRates {
  double delay = 0;
  double drop = 0;
  double tear = 0;
  double die = 0;
  double break_channel = 0;
  double split = 0;
  double late = 0;
  base::Duration max_delay = std::chrono::microseconds(200);
};

/// Draws faults from a seeded generator.
class RandomFaults final : public FaultPolicy {
 public:
  RandomFaults(std::uint64_t seed, FaultRates rates) : rates_(rates), random_(seed) {}
  Fault Before(const FaultPoint& point) override;

 private:
  const FaultRates rates_;
  base::Mutex mutex_;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
};

class FaultLink;

/// Knows which pretended processes of a test are dead, and which operations of the living are still
/// on their way.
///
/// Threading: thread-safe.
class FaultBoard {
 public:
  /// With `revokes`, Access::Revoke fences a pretended process, as on verbs. Without it only death
  /// does, as on shm, and a destroyed channel loses its operations that are on their way.
  explicit FaultBoard(bool revokes = false) : revokes_(revokes) {}
  [[nodiscard]] bool revokes() const { return revokes_; }
  /// Adds a pretended process.
  PeerIdentity NewProcess();
  void Kill(const PeerIdentity& process);
  [[nodiscard]] bool Knows(const PeerIdentity& process) const;
  [[nodiscard]] bool IsDead(const PeerIdentity& process) const;
  /// Lets up to `limit` operations that kLate held back take effect, the oldest first. Those that
  /// are fenced by now are lost. Returns how many it has taken, lost ones included.
  int Land(int limit = std::numeric_limits<int>::max());

  /// For the decorator: its connections have numbers.
  std::uint64_t AddLink(std::shared_ptr<FaultLink> link);
  [[nodiscard]] std::shared_ptr<FaultLink> FindLink(std::uint64_t number) const;
  /// For the decorator: `link` has operations on their way.
  void AddLate(std::shared_ptr<FaultLink> link);

 private:
  const bool revokes_;
  mutable base::Mutex mutex_;
  std::int32_t last_pid_ ABSL_GUARDED_BY(mutex_) = 1 << 28;  // Above any real process id.
  std::set<std::int32_t> dead_ ABSL_GUARDED_BY(mutex_);
  // The links with operations on their way.
  std::deque<std::shared_ptr<FaultLink>> late_ ABSL_GUARDED_BY(mutex_);
  std::map<std::uint64_t, std::weak_ptr<FaultLink>> links_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t last_link_ ABSL_GUARDED_BY(mutex_) = 0;
};

/// The decorator: `inner` as the process `self` of the board sees it. Its regions accept the
/// board's pretended processes as well as real ones.
///
/// Ownership: borrows `inner`, which must outlive it; shares the rest.
class FaultyFabric final : public Fabric {
 public:
  /// A null policy makes no faults.
  FaultyFabric(Fabric& inner, std::shared_ptr<FaultBoard> board, PeerIdentity self,
               std::shared_ptr<FaultPolicy> policy);
  [[nodiscard]] const PeerIdentity& self() const { return self_; }
  [[nodiscard]] base::Clock& clock() const override { return inner_.clock(); }
  absl::StatusOr<std::shared_ptr<Doorbell>> MakeDoorbell(std::string_view label) override;
  absl::StatusOr<std::unique_ptr<Region>> Register(std::uint64_t length_bytes,
                                                   std::string_view label,
                                                   std::shared_ptr<Doorbell> doorbell) override;
  absl::StatusOr<std::unique_ptr<Dialer>> Dial() override;

 private:
  Fabric& inner_;
  const std::shared_ptr<FaultBoard> board_;
  const PeerIdentity self_;
  const std::shared_ptr<FaultPolicy> policy_;
};

}  // namespace onepiece::fabric
