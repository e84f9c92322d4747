#include "stages/wan/autoencoder_strips.h"

#include "cluster/base/check.h"
#include "stages/model/group_tensors.h"

namespace onepiece::wan::vae {
namespace {

constexpr std::int64_t kRows = -2;

}  // namespace

Strips::Strips(const model::Parallel& parallel, std::int64_t rows)
    : parallel_(parallel), rank_(static_cast<std::size_t>(parallel.group->rank())) {
  const int ranks = parallel.group->size();
  ONEPIECE_CHECK(rows >= ranks);
  // The group's own offsets are those of tokens.
  offsets_ = sdk::EvenOffsets(static_cast<std::size_t>(ranks), rows);
}

void Strips::FillMargins(at::Tensor& window) {
  const int ranks = parallel_.group->size(), rank = parallel_.group->rank();
  const std::int64_t last = window.size(kRows) - 1;
  const int above = (rank + ranks - 1) % ranks, below = (rank + 1) % ranks;
  // The exchange goes round, so that all ranks do the same; what crosses the edge is not used.
  const auto fill = [&](std::int64_t from_row, int to, std::int64_t to_row, int from, bool edge) {
    at::Tensor margin = window.select(kRows, to_row);
    if (!status_.ok()) return;
    const auto got = model::ExchangeTensors(parallel_, window.select(kRows, from_row), to, from);
    if (!got.ok()) {
      status_ = got.status();
    } else if (edge) {
      margin.zero_();
    } else {
      margin.copy_(*got);
    }
  };
  fill(1, above, last, below, rank + 1 == ranks);
  fill(last - 1, below, 0, above, rank == 0);
}

at::Tensor Strips::Gather(const at::Tensor& x, std::int64_t scale) {
  std::vector<std::vector<std::int64_t>> shapes;
  const std::size_t axis = static_cast<std::size_t>(x.dim() + kRows);
  for (std::size_t rank = 0; rank + 1 < offsets_.size(); ++rank) {
    shapes.push_back(x.sizes().vec());
    shapes.back()[axis] = scale * (offsets_[rank + 1] - offsets_[rank]);
  }
  if (status_.ok()) {
    const auto parts = model::GatherTensors(parallel_, x, shapes);
    if (parts.ok()) return at::cat(*parts, kRows);
    status_ = parts.status();
  }
  shapes[rank_][axis] = scale * offsets_.back();
  return at::zeros(shapes[rank_], x.options());
}

at::Tensor WithMargins(const at::Tensor& x, Strips& strips) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape[shape.size() - 2] += 2;
  at::Tensor window = at::empty(shape, x.options());
  window.narrow(kRows, 1, x.size(kRows)).copy_(x);
  strips.FillMargins(window);
  return window;
}

}  // namespace onepiece::wan::vae
