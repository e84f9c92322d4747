// How the ranks of a group share the computation of one job. Without LibTorch.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "stages/sdk/collaboration.h"
#include "stages/sdk/group.h"

namespace onepiece::model {

using sdk::KeyValueWay;
using sdk::ParallelPlan;

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

/// Returns what a stage was told, with DefaultPlan if it was given no plan.
Parallel ParallelOf(const sdk::Collaboration& collaboration, const ParallelWork& work);

}  // namespace onepiece::model
