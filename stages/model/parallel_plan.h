// How the ranks of a group share the computation of one job. Without LibTorch.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "stages/sdk/group.h"

namespace onepiece::model {

/// How attention on one rank meets the keys and values of the other ranks' tokens.
enum class KeyValueWay : std::uint8_t {
  kGather,  ///< Every rank gets all of them, and then computes. Any number of ranks.
  kRing,    ///< They go round: a rank computes with one part while the next part travels. Holds two
            ///< parts at a time instead of all.
};

/// `cfg` × `sequence` ranks. Rank r is in the branch r / sequence, at the place r % sequence.
struct ParallelPlan {
  /// 2: the first half of the ranks computes the prediction for the prompt, and the other half the
  /// one for the negative prompt. 1: every rank takes part in both, one after the other.
  int cfg = 1;
  int sequence = 1;  ///< Ranks that share the tokens of one prediction.
  /// Neighbours among those that exchange tokens for heads in attention, so that each has all their
  /// tokens for its share of the heads (Ulysses). 1: none. `sequence`: Ulysses alone. In between:
  /// keys and values of each such set of neighbours go `way` to the other sets.
  int ulysses = 1;
  KeyValueWay way = KeyValueWay::kGather;

  [[nodiscard]] int ranks() const { return cfg * sequence; }
  bool operator==(const ParallelPlan&) const = default;
};

/// What a plan must fit.
struct ParallelWork {
  std::int64_t heads = 1;   ///< Of self-attention.
  std::int64_t tokens = 1;  ///< Of one prediction.
  bool guided = false;      ///< Each step needs two predictions (classifier-free guidance).
};

/// Checks that a group of `ranks` can compute `work` by `plan`.
///
/// Errors: INVALID_ARGUMENT BAD_PLAN, which says what would fit.
absl::Status CheckPlan(const ParallelPlan& plan, int ranks, const ParallelWork& work);

/// Returns the plan for groups that nobody gave one. Uses all `ranks`, which must be within
/// [1, tokens].
ParallelPlan DefaultPlan(int ranks, const ParallelWork& work);

/// The ranks that compute a job together, as one of them sees them. A value.
///
/// Lifetime: the group must outlive it.
struct Parallel {
  sdk::Group* group = nullptr;  ///< Null: this worker computes alone.
  ParallelPlan plan;
  /// Returns the deadline of a collective call that begins now.
  std::function<sdk::Group::Deadline()> deadline;

  [[nodiscard]] int branch() const { return group == nullptr ? 0 : group->rank() / plan.sequence; }
  [[nodiscard]] int place() const { return group == nullptr ? 0 : group->rank() % plan.sequence; }
};

}  // namespace onepiece::model
