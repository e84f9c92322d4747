// Decodes frames whose rows are parted among the ranks of a group. Convolutions take the rows next
// to a strip from the ranks that have them, so that the result is that of whole frames. Private to
// stages/wan.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "stages/model/parallel_plan.h"

namespace onepiece::wan::vae {

/// This rank's strip. Its rows are at the scale of the latents; layers that enlarge frames enlarge
/// all strips alike.
///
/// The first error of the group stays in status(). After it the methods return tensors of the right
/// shapes and unspecified values: layers compute on, and their caller looks at status() after each
/// chunk.
///
/// Threading: thread-confined.
class Strips {
 public:
  /// REQUIRES: rows >= ranks.
  Strips(const model::Parallel& parallel, std::int64_t rows);

  [[nodiscard]] std::int64_t begin() const { return offsets_[rank_]; }
  [[nodiscard]] std::int64_t count() const { return offsets_[rank_ + 1] - begin(); }
  [[nodiscard]] const absl::Status& status() const { return status_; }

  /// Fills the first and the last row of `window`, [..., rows + 2, width], whose other rows are
  /// filled: with the neighbours' rows, or with zeros at the edge of the frame.
  void FillMargins(at::Tensor& window);

  /// Puts the rows [..., rows, width] of all strips together, in frames `scale` times as large as
  /// the latents'.
  at::Tensor Gather(const at::Tensor& x, std::int64_t scale);

 private:
  model::Parallel parallel_;
  std::vector<std::int64_t> offsets_;
  std::size_t rank_ = 0;
  absl::Status status_;
};

/// Returns a copy of x, [..., rows, width], with a margin of one row above and one below.
at::Tensor WithMargins(const at::Tensor& x, Strips& strips);

}  // namespace onepiece::wan::vae
