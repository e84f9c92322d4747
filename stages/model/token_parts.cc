#include "stages/model/token_parts.h"

#include <optional>
#include <string>
#include <utility>

#include "cluster/base/status.h"
#include "stages/model/lane.h"
#include "stages/model/layers.h"
#include "stages/model/online_attention.h"

namespace onepiece::model {
namespace {

absl::Status DoesNotPart(const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PLAN", what);
}

/// This rank's neighbours, which are the ranks that exchange tokens for heads.
Lane Neighbours(const Parallel& parallel) {
  const int ulysses = parallel.plan.ulysses;
  return {parallel, parallel.group->rank() / ulysses * ulysses, 1, ulysses};
}

/// The ranks that have the same heads as this one, one of each set of neighbours.
Lane SameHeads(const Parallel& parallel) {
  const ParallelPlan& plan = parallel.plan;
  return {parallel, parallel.branch() * plan.sequence + parallel.place() % plan.ulysses,
          plan.ulysses, plan.sequence / plan.ulysses};
}

}  // namespace

absl::StatusOr<TokenParts> TokenParts::Make(const Parallel& parallel, const ParallelWork& work) {
  const sdk::GroupDescriptor& group = parallel.group->descriptor();
  ONEPIECE_RETURN_IF_ERROR(CheckPlan(parallel.plan, parallel.group->size(), work));
  sdk::GroupDescriptor branch = group;
  if (parallel.plan.cfg > 1) {
    if (!group.offsets.empty())
      return DoesNotPart("cfg 2 takes even parts, and the group says where parts begin");
    branch.members.resize(static_cast<std::size_t>(parallel.plan.sequence));
  }
  ONEPIECE_ASSIGN_OR_RETURN(std::vector<std::int64_t> offsets,
                            sdk::PartOffsets(branch, work.tokens));
  for (std::size_t place = 0; place + 1 < offsets.size(); ++place) {
    if (offsets[place] == offsets[place + 1])
      return DoesNotPart("rank " + std::to_string(place) + " would have no tokens");
  }
  return TokenParts(parallel, work, std::move(offsets));
}

std::vector<std::int64_t> TokenParts::SetOffsets() const {
  std::vector<std::int64_t> sets;
  for (std::size_t place = 0; place < offsets_.size(); place += Index(parallel_.plan.ulysses))
    sets.push_back(offsets_[place]);
  return sets;
}

std::vector<std::int64_t> TokenParts::NeighbourCounts() const {
  const int ulysses = parallel_.plan.ulysses;
  const std::size_t first = Index(parallel_.place() / ulysses * ulysses);
  std::vector<std::int64_t> counts;
  for (std::size_t place = first; place < first + Index(ulysses); ++place)
    counts.push_back(offsets_[place + 1] - offsets_[place]);
  return counts;
}

absl::StatusOr<std::vector<at::Tensor>> TokenParts::TokensToHeads(
    const std::vector<at::Tensor>& tensors) const {
  const std::int64_t ulysses = parallel_.plan.ulysses;
  if (ulysses == 1) return tensors;
  const at::Tensor& x = tensors.front();
  const auto several = static_cast<std::int64_t>(tensors.size());
  const std::int64_t batch = x.size(0), heads = x.size(2) / ulysses, dim = x.size(3);
  const auto elements = [&](std::int64_t tokens) { return several * batch * tokens * heads * dim; };
  at::Tensor sent = at::empty({ulysses, several, batch, count(), heads, dim}, x.options());
  for (std::int64_t i = 0; i < several; ++i) {
    sent.select(1, i).copy_(tensors[static_cast<std::size_t>(i)]
                                .view({batch, count(), ulysses, heads, dim})
                                .permute({2, 0, 1, 3, 4}));
  }
  const std::vector<std::int64_t> counts = NeighbourCounts();
  std::vector<std::int64_t> receive;
  for (const std::int64_t tokens : counts) receive.push_back(elements(tokens));
  ONEPIECE_ASSIGN_OR_RETURN(
      const at::Tensor received,
      Neighbours(parallel_).AllToAll(
          sent, std::vector<std::int64_t>(counts.size(), elements(count())), receive));
  std::vector<at::Tensor> parts;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    parts.push_back(
        received.narrow(0, begin, receive[i]).view({several, batch, counts[i], heads, dim}));
    begin += receive[i];
  }
  return at::cat(parts, 2).unbind(0);
}

absl::StatusOr<at::Tensor> TokenParts::HeadsToTokens(const at::Tensor& x) const {
  const std::int64_t ulysses = parallel_.plan.ulysses;
  if (ulysses == 1) return x.flatten(2);
  const std::int64_t batch = x.size(0), width = x.size(2) * x.size(3);
  const std::vector<std::int64_t> counts = NeighbourCounts();
  std::vector<std::int64_t> send;
  for (const std::int64_t tokens : counts) send.push_back(batch * tokens * width);
  at::Tensor sent = x.flatten(2);
  if (batch > 1) {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& part : sent.split_with_sizes(counts, 1)) flat.push_back(part.flatten());
    sent = at::cat(flat);
  }
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor received,
                            Neighbours(parallel_).AllToAll(
                                sent.contiguous(), send,
                                std::vector<std::int64_t>(counts.size(), batch * count() * width)));
  return received.view({ulysses, batch, count(), width}).permute({1, 2, 0, 3}).flatten(2);
}

absl::StatusOr<at::Tensor> TokenParts::Round(const at::Tensor& q, const at::Tensor& k,
                                             const at::Tensor& v, double scale) const {
  const Lane lane = SameHeads(parallel_);
  const std::vector<std::int64_t> sets = SetOffsets();
  OnlineAttention online(q.transpose(1, 2), scale);
  at::Tensor now = at::stack({k, v});
  for (int step = 0; step < lane.count(); ++step) {
    std::optional<Lane::Travel> travel;
    if (step + 1 < lane.count()) {
      // The place before this one holds what began one place further back.
      const std::size_t origin = Index((lane.place() + lane.count() - step - 1) % lane.count());
      std::vector<std::int64_t> shape = now.sizes().vec();
      shape[2] = sets[origin + 1] - sets[origin];
      travel.emplace(lane, now, at::empty(shape, now.options()));
    }
    online.Add(now[0].transpose(1, 2), now[1].transpose(1, 2));
    if (travel) {
      ONEPIECE_ASSIGN_OR_RETURN(now, travel->Finish());
    }
  }
  return online.Result().transpose(1, 2);
}

absl::StatusOr<at::Tensor> TokenParts::OverSets(const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v, double scale) const {
  if (parallel_.plan.way == KeyValueWay::kRing) return Round(q, k, v, scale);
  const Lane lane = SameHeads(parallel_);
  const std::vector<std::int64_t> sets = SetOffsets();
  const auto all = [&](const at::Tensor& x) -> absl::StatusOr<at::Tensor> {
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor gathered, lane.Gather(x.flatten(2), sets));
    return gathered.unflatten(2, {x.size(2), x.size(3)}).transpose(1, 2);
  };
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor keys, all(k));
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor values, all(v));
  return model::Attention(q.transpose(1, 2), keys, values, scale).transpose(1, 2);
}

absl::StatusOr<at::Tensor> TokenParts::Attention(const at::Tensor& q, const at::Tensor& k,
                                                 const at::Tensor& v, double scale) const {
  const auto by_head = [&](const at::Tensor& x) {
    return x.unflatten(2, {work_.heads, x.size(2) / work_.heads});
  };
  ONEPIECE_ASSIGN_OR_RETURN(const auto mine, TokensToHeads({by_head(q), by_head(k), by_head(v)}));
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor attended, OverSets(mine[0], mine[1], mine[2], scale));
  return HeadsToTokens(attended);
}

absl::StatusOr<at::Tensor> TokenParts::Gather(const at::Tensor& x) const {
  // One call for all branches: their ranks lie one after the other.
  std::vector<std::int64_t> offsets = {0};
  for (int branch = 0; branch < parallel_.plan.cfg; ++branch) {
    for (std::size_t place = 1; place < offsets_.size(); ++place)
      offsets.push_back(branch * work_.tokens + offsets_[place]);
  }
  const Lane whole(parallel_, 0, 1, parallel_.group->size());
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor all, whole.Gather(x, offsets));
  return at::cat(all.split(work_.tokens, 1));
}

}  // namespace onepiece::model
