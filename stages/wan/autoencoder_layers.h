// The layers of Wan's autoencoder: causal convolutions over time that remember the end of the last
// chunk. Private to stages/wan.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "stages/wan/autoencoder.h"
#include "stages/wan/weights.h"

namespace onepiece::wan::vae {

/// What the causal convolutions of one run remember between chunks, in the order in which they are
/// passed.
class FeatureCache {
 public:
  struct Slot {
    at::Tensor frames;  ///< Undefined before the first chunk.
    int chunks = 0;     ///< Chunks that went by.
  };
  /// To be called before every chunk.
  void Rewind() { next_ = 0; }
  /// The slot of the next convolution. Valid until the next call.
  Slot& Next();

 private:
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
};

/// A 3D convolution padded in time on the left only, so that no frame sees a later one.
class CausalConv {
 public:
  void Bind(WeightBinder& weights, const std::string& name, std::int64_t in, std::int64_t out,
            std::array<std::int64_t, 3> kernel);
  /// Without memory: zeros stand before the first frame.
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x) const { return Apply(x, at::Tensor()); }
  /// `before`: frames that stand before x, at most kernel - 1; zeros fill up what is missing.
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, const at::Tensor& before) const;
  /// With memory in the cache's next slot.
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, FeatureCache& cache) const;
  /// Convolves with a stride of two in time and no padding.
  [[nodiscard]] at::Tensor HalveTime(const at::Tensor& x) const;

 private:
  std::array<std::int64_t, 3> kernel_{};
  at::Tensor weight_, bias_;
};

class ResidualBlock {
 public:
  void Bind(WeightBinder& weights, const std::string& name, std::int64_t in, std::int64_t out);
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, FeatureCache& cache) const;

 private:
  bool shortcut_used_ = false;
  at::Tensor norm1_, norm2_;
  CausalConv conv1_, conv2_, shortcut_;
};

/// Two residual blocks around attention among the pixels of each frame.
class MiddleBlock {
 public:
  void Bind(WeightBinder& weights, const std::string& name, std::int64_t dim);
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, FeatureCache& cache) const;

 private:
  [[nodiscard]] at::Tensor Attend(const at::Tensor& x) const;

  ResidualBlock first_, second_;
  at::Tensor norm_, qkv_weight_, qkv_bias_, out_weight_, out_bias_;
};

enum class Time { kKeep, kResample };

/// Doubles height and width, and the frames when asked (but not those of the first chunk); halves
/// the channels.
class Upsample {
 public:
  void Bind(WeightBinder& weights, const std::string& name, std::int64_t dim, Time time);
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, FeatureCache& cache) const;

 private:
  Time time_ = Time::kKeep;
  at::Tensor weight_, bias_;
  CausalConv time_conv_;
};

/// Halves height and width, and the frames when asked (but not those of the first chunk).
class Downsample {
 public:
  void Bind(WeightBinder& weights, const std::string& name, std::int64_t dim, Time time);
  [[nodiscard]] at::Tensor Apply(const at::Tensor& x, FeatureCache& cache) const;

 private:
  Time time_ = Time::kKeep;
  at::Tensor weight_, bias_;
  CausalConv time_conv_;
};

class Encoder {
 public:
  void Bind(WeightBinder& weights, const VaeConfig& config);
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
  void Bind(WeightBinder& weights, const VaeConfig& config);
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
