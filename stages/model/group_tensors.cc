#include "stages/model/group_tensors.h"

#include "cluster/base/status.h"
#include "stages/model/lane.h"

namespace onepiece::model {

absl::StatusOr<std::vector<at::Tensor>> GatherTensors(
    const Parallel& parallel, const at::Tensor& mine,
    const std::vector<std::vector<std::int64_t>>& shapes) {
  std::vector<std::int64_t> counts;
  std::vector<std::size_t> sizes;
  std::int64_t total = 0;
  for (const auto& shape : shapes) {
    counts.push_back(c10::multiply_integers(shape));
    sizes.push_back(static_cast<std::size_t>(counts.back()) * mine.element_size());
    total += counts.back();
  }
  const at::Tensor whole = mine.contiguous(), all = at::empty({total}, mine.options());
  ONEPIECE_RETURN_IF_ERROR(
      parallel.group->AllGather(BytesOf(whole), sizes, BytesOf(all), parallel.deadline()));
  std::vector<at::Tensor> parts = all.split_with_sizes(counts);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = parts[i].view(shapes[i]);
  return parts;
}

absl::StatusOr<at::Tensor> ExchangeTensors(const Parallel& parallel, const at::Tensor& sent, int to,
                                           int from) {
  const at::Tensor whole = sent.contiguous();
  at::Tensor received = at::empty(sent.sizes(), sent.options());
  const auto deadline = parallel.deadline();
  ONEPIECE_RETURN_IF_ERROR(
      parallel.group->StartExchange(BytesOf(whole), to, BytesOf(received), from, deadline));
  ONEPIECE_RETURN_IF_ERROR(parallel.group->FinishExchange(deadline));
  return received;
}

}  // namespace onepiece::model
