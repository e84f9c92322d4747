// Where the branches of a job come together before a stage that takes the outputs of several others
// (StageSpec.after).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "stages/runtime/work_item.h"

namespace onepiece::runtime {

/// The outputs of one stage for the next.
struct Branch {
  std::string stage;
  std::span<const message::Artifact> artifacts;
};

/// Returns all artifacts of all branches, in their order.
///
/// Errors: INVALID_ARGUMENT (ARTIFACT_TWICE) when two branches have an artifact of the same name.
/// The message names both stages.
absl::StatusOr<std::vector<message::Artifact>> Unite(std::span<const Branch> branches);

/// Bounds of a JoinTable. It takes every part, even beyond them, because a part of a join that is
/// there already can complete it, which frees memory. Its owner keeps the bounds: it asks before it
/// takes a message whose content it cannot know yet (RequestScheduler::WaitForRoom), and before a
/// large part gets room (RequestScheduler::Admit).
struct JoinLimits {
  std::size_t max_joins = 4096;
  std::size_t max_bytes = std::size_t{2} << 30;  ///< Of parts that came through the ring.
  /// Of parts that came as values; also of those of one join that wait together.
  std::size_t max_large_bytes = std::size_t{2} << 30;
};

/// Holds the parts of joins that are not complete. Pure: the time is passed in.
///
/// Ownership: owns the parts.
/// Threading: externally synchronised (by RequestScheduler).
class JoinTable {
 public:
  /// A join that was given up.
  struct Lost {
    message::Header header;  ///< The header of one of its parts.
    absl::Status why;        ///< DEADLINE_EXCEEDED (BRANCH_LOST); names the missing stages.
  };

  explicit JoinTable(JoinLimits limits) : limits_(limits) {}

  /// Takes the part that `part.message.header.from` made for header.stage. When the part of every
  /// predecessor is there, returns the work: the header of the part that came last, with the
  /// largest attempt, the artifacts of all parts, and the parts. A second part of the same stage
  /// replaces the first if its attempt is larger, and is counted and dropped otherwise. After an
  /// error nothing of the join is held.
  ///
  /// Errors: INVALID_ARGUMENT (ARTIFACT_TWICE; NOT_A_BRANCH: the part's stage is not among
  /// `predecessors`).
  ///
  /// A part of a larger run drops the parts of a smaller one, and a part of a smaller run is
  /// dropped; both are counted in fenced().
  absl::StatusOr<std::optional<WorkItem>> Add(WorkItem part,
                                              std::span<const std::string> predecessors);
  /// Whether a part of `bytes` may come as a value, while `coming` bytes of such parts are on their
  /// way. Returns true when it will wait here for others, and false when it completes its join.
  ///
  /// Errors: RESOURCE_EXHAUSTED (JOINS_FULL: not now), INVALID_ARGUMENT (JOIN_TOO_LARGE: never, the
  /// parts of its join that wait together would have more than max_large_bytes).
  [[nodiscard]] absl::StatusOr<bool> MayCome(const message::Header& part,
                                             std::span<const std::string> predecessors,
                                             std::uint64_t bytes, std::uint64_t coming) const;
  /// Exchanges the artifacts of this part (uid, run, stage, `from`, `attempt`), if it is held, with
  /// a copy of them.
  void SwapArtifacts(message::Message& copy);
  /// Gives up joins whose time is over. That is shortly before the job's deadline (a second, or a
  /// tenth of the time that it had when its first part came, if that is less), so that the job's
  /// record can still name the missing branch.
  std::vector<Lost> Expire(base::MonotonicTime now);
  /// Returns the header of a part of each join that has waited for `pause`, and again after each
  /// further `pause`. It returns `most` of them at most, those that have waited longest, so that
  /// each join gets its turn however many wait.
  std::vector<message::Header> Waiting(base::MonotonicTime now, base::Duration pause,
                                       std::size_t most);
  /// Removes and returns the parts of the joins for which `wanted` accepts every part's header.
  std::vector<WorkItem> Take(const std::function<bool(const message::Header&)>& wanted);
  /// Drops the part of this edge (uid, run, stage, `from`) if its attempt is smaller.
  void RemovePart(const message::Header& edge, std::uint32_t attempt);
  /// Drops the job's parts of runs up to this one, and returns how many there were.
  std::size_t Remove(const base::Uid& uid,
                     std::uint64_t run = std::numeric_limits<std::uint64_t>::max());

  /// Returns whether half of what the limits allow is held: senders should be slowed down.
  [[nodiscard]] bool scarce() const {
    return Holds((limits_.max_joins + 1) / 2, limits_.max_bytes / 2);
  }
  /// Returns whether all of what the limits allow is held.
  [[nodiscard]] bool full() const { return Holds(limits_.max_joins, limits_.max_bytes); }
  [[nodiscard]] std::size_t joins() const { return joins_.size(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t duplicates() const { return duplicates_; }
  [[nodiscard]] std::uint64_t fenced() const { return fenced_; }

 private:
  using JoinKey = std::pair<base::Uid, std::string>;  // Job and stage.
  struct Join {
    std::vector<std::string> predecessors;
    std::map<std::string, WorkItem> parts;  // Keyed by the stage that made them.
    base::MonotonicTime give_up{};
    base::MonotonicTime waits_since{};  // It began, or Waiting returned it.
    std::uint64_t run = 0;
    std::uint64_t number = 0;  // Joins that begin later have larger ones.
  };
  using Joins = std::map<JoinKey, Join>;

  Joins::iterator Erase(Joins::iterator join);
  /// The sum that the part counts in.
  std::size_t& SumOf(const WorkItem& part) { return part.by_value ? large_bytes_ : bytes_; }
  [[nodiscard]] bool Holds(std::size_t joins, std::size_t bytes) const {
    return joins_.size() >= joins || bytes_ >= bytes;
  }

  const JoinLimits limits_;
  Joins joins_;
  std::size_t bytes_ = 0;        // Of the parts that came through the ring,
  std::size_t large_bytes_ = 0;  // and of those that came as values.
  std::uint64_t next_number_ = 0;
  std::uint64_t duplicates_ = 0;
  std::uint64_t fenced_ = 0;
};

}  // namespace onepiece::runtime
