// The tokens of one prediction, parted among the ranks of a group. Each rank computes with its own,
// and meets the others' in self-attention and at the end.
//
// Bytes that all ranks of a branch receive together, for T tokens of `width` elements each, n
// ranks, u of them Ulysses neighbours, r = n / u:
//   gather or ring      2 (r - 1) T width   (keys and values, of a share of 1 / u of the heads)
//   Ulysses             4 (u - 1) / u T width   (queries, keys, values and the result)
//   the end (Gather)    (cfg n - 1) T width'   for every branch
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "stages/model/parallel_plan.h"

namespace onepiece::model {

/// Threading: as the group. For inference only.
class TokenParts {
 public:
  /// The group's offsets part the tokens. Without any the parts are as even as can be.
  ///
  /// Errors: INVALID_ARGUMENT BAD_PLAN (CheckPlan; a rank without tokens), BAD_GROUP (offsets of
  /// another number of tokens).
  static absl::StatusOr<TokenParts> Make(const Parallel& parallel, const ParallelWork& work);

  /// This rank's tokens.
  [[nodiscard]] std::int64_t begin() const { return offsets_[Index(parallel_.place())]; }
  [[nodiscard]] std::int64_t count() const {
    return offsets_[Index(parallel_.place()) + 1] - begin();
  }

  /// Self-attention among the tokens of all ranks of this branch. `q`, `k` and `v` are those of
  /// this rank's tokens, [batch, count(), heads · dim] of one element type; so is the result.
  ///
  /// Errors: those of sdk::Group.
  [[nodiscard]] absl::StatusOr<at::Tensor> Attention(const at::Tensor& q, const at::Tensor& k,
                                                     const at::Tensor& v, double scale) const;

  /// Returns on every rank the tokens of all ranks and branches, [cfg · batch, tokens, width], from
  /// each rank's [batch, count(), width].
  ///
  /// Errors: those of sdk::Group.
  [[nodiscard]] absl::StatusOr<at::Tensor> Gather(const at::Tensor& x) const;

 private:
  TokenParts(const Parallel& parallel, const ParallelWork& work, std::vector<std::int64_t> offsets)
      : parallel_(parallel), work_(work), offsets_(std::move(offsets)) {}
  static std::size_t Index(int place) { return static_cast<std::size_t>(place); }
  /// Exchanges tokens for heads: from [batch, count(), heads, dim] to [batch, the neighbours'
  /// tokens, heads / ulysses, dim] of each of `tensors`, and back for one.
  [[nodiscard]] absl::StatusOr<std::vector<at::Tensor>> TokensToHeads(
      const std::vector<at::Tensor>& tensors) const;
  [[nodiscard]] absl::StatusOr<at::Tensor> HeadsToTokens(const at::Tensor& x) const;
  /// Attention of this set's queries over all sets. [batch, tokens of the set, heads, dim] each.
  [[nodiscard]] absl::StatusOr<at::Tensor> OverSets(const at::Tensor& q, const at::Tensor& k,
                                                    const at::Tensor& v, double scale) const;
  [[nodiscard]] absl::StatusOr<at::Tensor> Round(const at::Tensor& q, const at::Tensor& k,
                                                 const at::Tensor& v, double scale) const;

  /// Where the tokens of each set of neighbours begin.
  [[nodiscard]] std::vector<std::int64_t> SetOffsets() const;
  /// The tokens of each of this rank's neighbours.
  [[nodiscard]] std::vector<std::int64_t> NeighbourCounts() const;

  Parallel parallel_;
  ParallelWork work_;
  std::vector<std::int64_t> offsets_;  // By place; one more than places.
};

}  // namespace onepiece::model
