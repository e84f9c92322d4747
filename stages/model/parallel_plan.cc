#include "stages/model/parallel_plan.h"

#include <numeric>
#include <string>

#include "cluster/base/status.h"

namespace onepiece::model {
namespace {

absl::Status BadPlan(const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PLAN", what);
}

std::string Ranks(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " rank" : " ranks");
}

/// Lists the numbers of Ulysses neighbours that fit.
std::string FittingUlysses(int sequence, std::int64_t heads) {
  const std::int64_t most = std::gcd<std::int64_t>(sequence, heads);
  std::string text;
  for (std::int64_t count = 1; count <= most; ++count) {
    if (most % count == 0) text += (text.empty() ? "" : ", ") + std::to_string(count);
  }
  return text;
}

}  // namespace

absl::Status CheckPlan(const ParallelPlan& plan, int ranks, const ParallelWork& work) {
  if (plan.cfg < 1 || plan.sequence < 1 || plan.ulysses < 1)
    return BadPlan("cfg, sequence and ulysses are numbers from 1");
  if (plan.cfg > 2)
    return BadPlan("cfg " + std::to_string(plan.cfg) +
                   ": there are only two predictions; use 1 or 2");
  if (plan.cfg == 2 && !work.guided)
    return BadPlan("cfg 2 needs guidance (a guidance_scale above 1); use cfg 1");
  // In 64 bits: the numbers may come from a file.
  if (const std::int64_t asked = std::int64_t{plan.cfg} * plan.sequence; asked != ranks) {
    std::string fitting = "cfg 1, sequence " + std::to_string(ranks);
    if (work.guided && ranks % 2 == 0)
      fitting += ", or cfg 2, sequence " + std::to_string(ranks / 2);
    return BadPlan("cfg " + std::to_string(plan.cfg) + " times sequence " +
                   std::to_string(plan.sequence) + " is " + Ranks(asked) + ", and the group has " +
                   std::to_string(ranks) + "; use " + fitting);
  }
  if (plan.sequence > work.tokens) {
    return BadPlan(Ranks(plan.sequence) + " cannot share " + std::to_string(work.tokens) +
                   " tokens; use sequence " + std::to_string(work.tokens) + " or less");
  }
  if (plan.sequence % plan.ulysses != 0 || work.heads % plan.ulysses != 0) {
    return BadPlan("ulysses " + std::to_string(plan.ulysses) + " does not divide both sequence " +
                   std::to_string(plan.sequence) + " and the " + std::to_string(work.heads) +
                   " heads; use " + FittingUlysses(plan.sequence, work.heads) +
                   " (1 takes any number of heads)");
  }
  return absl::OkStatus();
}

ParallelPlan DefaultPlan(int ranks, const ParallelWork& work) {
  // The two predictions meet once in a step, and the tokens of one in every layer.
  const int cfg = work.guided && ranks % 2 == 0 ? 2 : 1;
  return {.cfg = cfg, .sequence = ranks / cfg};
}

Parallel ParallelOf(const sdk::Collaboration& collaboration, const ParallelWork& work) {
  if (collaboration.group == nullptr) return {};
  return {.group = collaboration.group,
          .plan = collaboration.plan.value_or(DefaultPlan(collaboration.group->size(), work)),
          .deadline = collaboration.deadline};
}

}  // namespace onepiece::model
