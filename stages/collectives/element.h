// Arithmetic on elements of host memory, without LibTorch.
#pragma once

#include <cstddef>
#include <span>

#include "stages/sdk/group.h"

namespace onepiece::collectives {

/// The size of one element.
std::size_t ElementBytes(sdk::ElementType type);

/// Sets each element of `into` to the reduction of itself and the element of `from`. Elements of
/// 16 bits are widened to F32 and rounded to the nearest, ties to even. The maximum of a number and
/// NaN is NaN. The memory need not be aligned.
///
/// REQUIRES: both have the same size, in whole elements, and do not overlap.
void Reduce(sdk::ElementType type, sdk::Reduction reduction, std::span<const std::byte> from,
            std::span<std::byte> into);

}  // namespace onepiece::collectives
