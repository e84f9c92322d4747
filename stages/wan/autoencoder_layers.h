// The layers of Wan's autoencoder. Its convolutions over time are causal and remember the end of
// the last chunk. Private to stages/wan.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "stages/model/layers.h"
#include "stages/model/weights.h"
#include "stages/wan/autoencoder.h"
#include "stages/wan/autoencoder_strips.h"

namespace onepiece::wan::vae {

/// The memory of the causal convolutions of one run between chunks, in the order in which data
/// passes them.
class FeatureCache {
 public:
  struct Slot {
    at::Tensor frames;  ///< The last two frames. Undefined before the first.
    int chunks = 0;     ///< Chunks so far.
  };
  /// With `strips` the run computes those rows of the frames alone.
  explicit FeatureCache(Strips* strips = nullptr) : strips_(strips) {}
  [[nodiscard]] Strips* strips() const { return strips_; }
  /// Callers call this before every chunk.
  void Rewind() { next_ = 0; }
  /// Returns the slot of the next convolution, valid until the next call.
  Slot& Next();

 private:
  Strips* const strips_;
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
};

/// A 3D convolution that is padded in time on the left only, so that no frame sees a later one. Its
/// kernel spans one frame or three.
class CausalConv {
 public:
  void Bind(model::WeightBinder& weights, const std::string& name, std::int64_t in,
            std::int64_t out, std::array<std::int64_t, 3> kernel);
  /// REQUIRES: a kernel of one frame.
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x) const { return conv_.Apply(x); }
  /// Applies the convolution with memory. Zeros precede the first frame of the run.
  ///
  /// REQUIRES: a kernel of three frames.
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, FeatureCache& cache) const {
    return Apply(x, cache.Next(), cache.strips());
  }
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, FeatureCache::Slot& memory,
                                 Strips* strips) const;
  /// Returns Apply(silu(norm(x))). `gamma` is the norm's.
  [[nodiscard]] at::Tensor ApplyNormed(const at::Tensor& x, const at::Tensor& gamma,
                                       FeatureCache& cache) const;

 private:
  /// `fill` writes the new frames into its argument.
  template <typename Fill>
  [[nodiscard]] at::Tensor Run(at::IntArrayRef shape, const at::TensorOptions& options,
                               FeatureCache::Slot& memory, Strips* strips, const Fill& fill) const;

  bool high_ = false;  ///< The kernel spans several rows.
  model::Convolution conv_;
  model::Convolution
      single_;  ///< The kernel's last frame, which is all that the first frame of a run meets.
};

class ResidualBlock {
 public:
  void Bind(model::WeightBinder& weights, const std::string& name, std::int64_t in,
            std::int64_t out);
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, FeatureCache& cache) const;

 private:
  bool shortcut_used_ = false;
  at::Tensor norm1_, norm2_;
  CausalConv conv1_, conv2_, shortcut_;
};

/// Two residual blocks, and between them attention among the pixels of each frame.
class MiddleBlock {
 public:
  void Bind(model::WeightBinder& weights, const std::string& name, std::int64_t dim);
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, FeatureCache& cache) const;

 private:
  [[nodiscard]] at::Tensor Attend(const at::Tensor& x, Strips* strips) const;

  ResidualBlock first_, second_;
  at::Tensor norm_;
  model::Convolution qkv_, out_;
};

enum class Time { kKeep, kResample };

/// Doubles height and width, and halves the channels. On request also doubles the frames, except
/// those of the first chunk.
class Upsample {
 public:
  void Bind(model::WeightBinder& weights, const std::string& name, std::int64_t dim, Time time);
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, FeatureCache& cache) const;

 private:
  Time time_ = Time::kKeep;
  model::Convolution conv_;
  CausalConv time_conv_;
};

/// Halves height and width. On request also halves the frames, except those of the first chunk.
class Downsample {
 public:
  void Bind(model::WeightBinder& weights, const std::string& name, std::int64_t dim, Time time);
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, FeatureCache& cache) const;

 private:
  Time time_ = Time::kKeep;
  model::Convolution conv_, time_conv_;
};

class Encoder {
 public:
  void Bind(model::WeightBinder& weights, const VaeConfig& config);
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, FeatureCache& cache) const;

 private:
  struct Level {
    std::vector<ResidualBlock> blocks;
    std::vector<Downsample> resample;  // None or one.
  };
  CausalConv in_, out_;
  std::vector<Level> levels_;
  MiddleBlock middle_;
  at::Tensor norm_;
};

class Decoder {
 public:
  void Bind(model::WeightBinder& weights, const VaeConfig& config);
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, FeatureCache& cache) const;

 private:
  struct Level {
    std::vector<ResidualBlock> blocks;
    std::vector<Upsample> resample;  // None or one.
  };
  CausalConv in_, out_;
  MiddleBlock middle_;
  std::vector<Level> levels_;
  at::Tensor norm_;
};

}  // namespace onepiece::wan::vae
