#include "stages/model/lane.h"

#include <numeric>
#include <utility>

#include "cluster/base/check.h"
#include "cluster/base/status.h"

namespace onepiece::model {

sdk::Group::Bytes BytesOf(const at::Tensor& x) {
  ONEPIECE_CHECK(x.is_contiguous());
  return {static_cast<std::byte*>(x.data_ptr()), x.nbytes()};
}

Lane::Lane(const Parallel& parallel, int first, int stride, int count)
    : parallel_(parallel), first_(first), stride_(stride), count_(count) {
  const int distance = parallel.group->rank() - first;
  place_ = distance / stride;
  ONEPIECE_CHECK(distance >= 0 && distance % stride == 0 && place_ < count);
}

absl::Status Lane::GatherBytes(sdk::Group::Bytes all, const std::vector<std::size_t>& sizes) const {
  std::vector<std::size_t> begins(sizes.size() + 1, 0);
  std::partial_sum(sizes.begin(), sizes.end(), begins.begin() + 1);
  const auto part = [&](int place) {
    const auto index = static_cast<std::size_t>(place % count_);
    return all.subspan(begins[index], sizes[index]);
  };
  sdk::Group& group = *parallel_.group;
  const auto deadline = parallel_.deadline();
  if (count_ == group.size()) return group.AllGather(part(place_), sizes, all, deadline);
  // Every part goes round. A rank passes on in each step what it got in the one before.
  for (int step = 0; step + 1 < count_; ++step) {
    ONEPIECE_RETURN_IF_ERROR(group.StartExchange(part(place_ + count_ - step), RankAt(place_ + 1),
                                                 part(place_ + count_ - step - 1),
                                                 RankAt(place_ + count_ - 1), deadline));
    ONEPIECE_RETURN_IF_ERROR(group.FinishExchange(deadline));
  }
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> Lane::Gather(const at::Tensor& part,
                                        const std::vector<std::int64_t>& offsets) const {
  if (count_ == 1) return part;
  const std::int64_t batch = part.size(0), width = part.size(2), tokens = offsets.back();
  const auto elements = [&](std::int64_t some) { return batch * some * width; };
  at::Tensor all = at::empty({elements(tokens)}, part.options());
  std::vector<std::size_t> sizes;
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const std::int64_t count = offsets[i + 1] - offsets[i];
    sizes.push_back(static_cast<std::size_t>(elements(count)) * part.element_size());
    parts.push_back(
        all.narrow(0, elements(offsets[i]), elements(count)).view({batch, count, width}));
  }
  parts[static_cast<std::size_t>(place_)].copy_(part);
  ONEPIECE_RETURN_IF_ERROR(GatherBytes(BytesOf(all), sizes));
  // The parts of one item lie one after the other.
  return batch == 1 ? all.view({1, tokens, width}) : at::cat(parts, 1);
}

absl::StatusOr<at::Tensor> Lane::AllToAll(const at::Tensor& sent,
                                          const std::vector<std::int64_t>& send,
                                          const std::vector<std::int64_t>& receive) const {
  sdk::Group& group = *parallel_.group;
  // Nothing goes to ranks outside of the lane.
  std::vector<std::size_t> send_sizes(static_cast<std::size_t>(group.size()), 0);
  std::vector<std::size_t> receive_sizes = send_sizes;
  std::int64_t total = 0;
  for (int place = 0; place < count_; ++place) {
    const auto rank = static_cast<std::size_t>(RankAt(place)), at = static_cast<std::size_t>(place);
    send_sizes[rank] = static_cast<std::size_t>(send[at]) * sent.element_size();
    receive_sizes[rank] = static_cast<std::size_t>(receive[at]) * sent.element_size();
    total += receive[at];
  }
  at::Tensor received = at::empty({total}, sent.options());
  ONEPIECE_RETURN_IF_ERROR(group.AllToAll(BytesOf(sent), send_sizes, BytesOf(received),
                                          receive_sizes, parallel_.deadline()));
  return received;
}

Lane::Travel::Travel(const Lane& lane, at::Tensor sent, at::Tensor received)
    : group_(*lane.parallel_.group),
      deadline_(lane.parallel_.deadline()),
      sent_(std::move(sent)),
      received_(std::move(received)) {
  status_ = group_.StartExchange(BytesOf(sent_), lane.RankAt(lane.place_ + 1), BytesOf(received_),
                                 lane.RankAt(lane.place_ + lane.count_ - 1), deadline_);
  under_way_ = status_.ok();
}

Lane::Travel::~Travel() {
  if (under_way_) group_.FinishExchange(deadline_).IgnoreError();
}

absl::StatusOr<at::Tensor> Lane::Travel::Finish() {
  if (under_way_) status_ = group_.FinishExchange(deadline_);
  under_way_ = false;
  if (!status_.ok()) return status_;
  return received_;
}

}  // namespace onepiece::model
