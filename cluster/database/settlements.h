// Settlements: which ends of jobs wait for which other keepers, and for how long.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

/// Returns whether a keeper that holds `theirs` agrees to the end of `ours`. With `bytes_needed` a
/// keeper agrees to a success only when it has the result.
bool Agrees(const v1::JobRecord& ours, const v1::JobRecord& theirs, bool bytes_needed);

/// Returns whether a keeper that was sent `theirs` answers with `ours`: its sender proposes an end,
/// or does not know the end that is known here.
bool IsAnswered(const v1::JobRecord& ours, const v1::JobRecord& theirs);

/// The ends that are not told yet, because other keepers may not know them. Pure: the time is
/// passed in.
///
/// Threading: externally synchronised (by Replicator).
class Settlements {
 public:
  /// A keeper that says nothing for `patience` is not waited for. While a result is still being
  /// sent to it, it is waited for up to `limit`, counted from the beginning.
  Settlements(base::Duration patience, base::Duration limit) : patience_(patience), limit_(limit) {}

  /// From now on the end of this job waits for these keepers, whatever it waited for before.
  /// Without any it is overdue at once.
  void Begin(const base::Uid& uid, std::set<std::string> keepers, base::MonotonicTime now);
  [[nodiscard]] bool WaitsFor(const std::string& keeper, const base::Uid& uid) const;
  /// The keeper agrees, or cannot be asked. Returns true when nobody else is waited for: the end is
  /// settled, and is forgotten here.
  bool Resolve(const std::string& keeper, const base::Uid& uid);

  struct Overdue {
    base::Uid uid;
    std::set<std::string> silent;
  };
  /// Says whether a result is being sent to a keeper, or will be without delay.
  using IsSending = std::function<bool(const std::string& keeper, const base::Uid& uid)>;
  /// Removes and returns the ends that wait no longer. Call it at least every second: after a
  /// longer pause the process was stopped, so nobody could answer it, and all that wait get
  /// `patience` anew.
  std::vector<Overdue> TakeOverdue(base::MonotonicTime now, const IsSending& is_sending);
  /// When TakeOverdue should be called next; nullopt while nothing waits.
  [[nodiscard]] std::optional<base::MonotonicTime> next_due() const;

 private:
  struct Waiting {
    std::set<std::string> keepers;
    base::MonotonicTime since, until;
    bool sending = false;  ///< A result was still being sent when it was last looked at.
  };

  bool MayWaitLonger(const base::Uid& uid, base::MonotonicTime now, const IsSending& is_sending,
                     Waiting& waiting) const;

  const base::Duration patience_, limit_;
  std::unordered_map<base::Uid, Waiting> waiting_;
  // When the entries of waiting_ are overdue, soonest first. It may name some that are settled, or
  // that have been begun anew.
  std::deque<std::pair<base::MonotonicTime, base::Uid>> due_;
  std::optional<base::MonotonicTime> last_look_;
};

}  // namespace onepiece::database
