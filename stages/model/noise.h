// The noise that a generation starts from, as PyTorch draws it.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace onepiece::model {

/// Returns the noise that torch.randn(shape, generator=torch.Generator().manual_seed(seed)) draws,
/// F32 on the CPU. Advances `generator` (MakeGenerator).
at::Tensor InitialLatents(const at::Generator& generator, at::IntArrayRef shape);
at::Generator MakeGenerator(std::int64_t seed);

}  // namespace onepiece::model
