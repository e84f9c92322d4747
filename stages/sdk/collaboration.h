// What a stage is told when several workers compute one job together (docs/wan.md).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "stages/sdk/group.h"

namespace onepiece::sdk {

/// How attention on one rank meets the keys and values of the other ranks' tokens.
enum class KeyValueWay : std::uint8_t {
  kGather,  ///< Every rank gets all of them, and then computes. Any number of ranks.
  kRing,    ///< They go round: a rank computes with one part while the next part travels. Holds two
            ///< parts at a time instead of all.
};

/// How the ranks of a group share a job: `cfg` × `sequence` ranks. Rank r is in the branch
/// r / sequence, at the place r % sequence.
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
  auto operator<=>(const ParallelPlan&) const = default;
};

/// The workers that compute a job together, as one of them is told. All members run the stage on
/// the same inputs and parameters; the runtime passes on what rank 0 makes.
struct Collaboration {
  /// Null: this worker computes alone. It lives until the stage asks for the next one.
  Group* group = nullptr;
  /// The plan that the workflow asks for. None: the stage chooses one that fits the group.
  std::optional<ParallelPlan> plan;
  /// Returns the deadline of a collective call that begins now. Set when `group` is.
  std::function<Group::Deadline()> deadline;
  /// The step boundary at which this group begins: so many steps of the stage are done.
  int steps_done = 0;
  /// Ranks that have not computed those steps, and hold none of the job's state. The stage gives
  /// them the state, from the other ranks, before the next step.
  std::vector<int> newcomers;
};

}  // namespace onepiece::sdk
