// Wan's causal 3D video autoencoder (diffusers' AutoencoderKLWan). It works chunk by chunk, with
// feature caches.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stages/model/parallel_plan.h"
#include "stages/model/weights.h"

namespace onepiece::wan {

struct VaeConfig {
  std::int64_t base_dim = 0, decoder_base_dim = 0, z_dim = 0, num_res_blocks = 0;
  std::vector<std::int64_t> dim_mult;
  std::vector<bool> temporal_downsample;          ///< One less than dim_mult.
  std::vector<double> latents_mean, latents_std;  ///< z_dim each.
  /// Frames of a video per frame of latents (after the first), and pixels per latent.
  [[nodiscard]] std::int64_t temporal_scale() const;
  [[nodiscard]] std::int64_t spatial_scale() const;
};

/// Called when chunk `done` of `total` is finished. An error stops the work, and the caller gets
/// it.
using ChunkProgress = std::function<absl::Status(int done, int total)>;

/// Computes in F32.
///
/// Threading: immutable after Load; the other methods may be called from any thread.
class WanVae {
 public:
  struct Posterior {
    at::Tensor mean, logvar;  ///< F32 [batch, z_dim, frames, height, width]; logvar in [-30, 20].
  };

  /// Large frames are cut into overlapping tiles, so that memory grows with the tile and not with
  /// the frame. A frame that fits into one tile gives the same result as without tiles. The default
  /// values are the reference's.
  ///
  /// Units: a tile's side and the stride from one tile to the next are pixels and multiples of
  /// spatial_scale(); stride <= side.
  struct Tiling {
    std::int64_t side = 256, stride = 192;
  };

  /// Reads a component folder.
  ///
  /// Errors: NOT_FOUND; INVALID_ARGUMENT BAD_CONFIG, BAD_WEIGHTS, BAD_SAFETENSORS; UNIMPLEMENTED
  /// for residual and patched variants; RESOURCE_EXHAUSTED.
  static absl::StatusOr<WanVae> Load(const std::string& dir, at::Device device = at::kCPU);
  ~WanVae();
  WanVae(WanVae&&) noexcept;
  WanVae& operator=(WanVae&&) noexcept;

  /// Turns latents of the diffusion into latents that Decode takes: latents × std + mean.
  [[nodiscard]] at::Tensor Denormalise(const at::Tensor& latents) const;

  /// The inverse of Denormalise.
  [[nodiscard]] at::Tensor Normalise(const at::Tensor& latents) const;

  /// `z` is F32 [batch, z_dim, t, h, w] (denormalised). Returns F32 [batch, 3, 1 + 4 (t - 1), 8 h,
  /// 8 w] in [-1, 1] for the published scales. One chunk is one frame of latents of one tile.
  ///
  /// With a group every rank gives the same `z` and gets the whole video. The ranks compute a tile
  /// each at a time; without tiles each has a strip of the frames' rows, and the result equals one
  /// worker's up to rounding. `progress` counts this rank's chunks. The plan does not matter.
  ///
  /// Errors: INVALID_ARGUMENT (shape, tiling), the error of `progress`, RESOURCE_EXHAUSTED,
  /// INTERNAL; with a group those of sdk::Group.
  [[nodiscard]] absl::StatusOr<at::Tensor> Decode(
      const at::Tensor& z, const ChunkProgress& progress = {},
      const std::optional<Tiling>& tiling = std::nullopt,
      const model::Parallel& parallel = {}) const;

  /// `video` is F32 [batch, 3, 1 + 4 n, 8 h, 8 w] in [-1, 1]. Frames beyond a multiple of four and
  /// pixels beyond a multiple of eight are dropped. Returns the posterior before normalisation.
  [[nodiscard]] absl::StatusOr<Posterior> Encode(
      const at::Tensor& video, const ChunkProgress& progress = {},
      const std::optional<Tiling>& tiling = std::nullopt) const;

  [[nodiscard]] const VaeConfig& config() const;
  [[nodiscard]] std::int64_t weight_bytes() const;

  /// For tools. Parses the configuration in a config.json, and lists the tensors that it calls for.
  static absl::StatusOr<VaeConfig> ParseConfig(const nlohmann::json& config);
  static std::vector<model::TensorSpec> Tensors(const VaeConfig& config);

 private:
  struct Impl;
  explicit WanVae(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace onepiece::wan
