// Tensors that move among all ranks of a group.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "stages/model/parallel_plan.h"

namespace onepiece::model {

/// Returns the tensors of all ranks, by rank. Rank i gives one of shapes[i], which may have no
/// elements. All are of one element type.
///
/// Errors: those of sdk::Group.
absl::StatusOr<std::vector<at::Tensor>> GatherTensors(
    const Parallel& parallel, const at::Tensor& mine,
    const std::vector<std::vector<std::int64_t>>& shapes);

/// Gives rank `to` a tensor, and returns the one of the same shape that rank `from` gives.
///
/// Errors: those of sdk::Group.
absl::StatusOr<at::Tensor> ExchangeTensors(const Parallel& parallel, const at::Tensor& sent, int to,
                                           int from);

}  // namespace onepiece::model
