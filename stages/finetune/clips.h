// The clips that fine-tuning shows to the model. Code makes them; no data comes from outside.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

namespace onepiece::finetune {

struct Clip {
  std::string caption;  ///< "a cyan square moving diagonally down"
  at::Tensor video;     ///< F32 [1, 3, 9, 64, 64] in [-1, 1].
};

/// The clips are circles and squares in colours and on paths that tiny-wan has not seen. Every
/// combination occurs once.
inline constexpr std::int64_t kClips = 32;

/// REQUIRES: 0 <= index < kClips. The same index gives the same clip.
Clip MakeClip(std::int64_t index);

}  // namespace onepiece::finetune
