#include "stages/wan/autoencoder.h"

#include <algorithm>
#include <utility>

#include "cluster/base/status.h"
#include "stages/model/config_reader.h"
#include "stages/tensor/compute.h"
#include "stages/wan/autoencoder_layers.h"
#include "stages/wan/autoencoder_tiles.h"

namespace onepiece::wan {

namespace {

/// Counts the chunks that are done.
struct Counter {
  const ChunkProgress& progress;
  std::int64_t total = 0, done = 0;

  absl::Status Next() {
    ++done;
    return progress ? progress(static_cast<int>(done), static_cast<int>(total)) : absl::OkStatus();
  }
};

}  // namespace

struct WanVae::Impl {
  VaeConfig config;
  std::int64_t weight_bytes = 0;
  at::Device device = at::kCPU;
  vae::Encoder encoder;
  vae::Decoder decoder;
  vae::CausalConv quant, post_quant;
  at::Tensor mean, std;  // [1, z_dim, 1, 1, 1]

  void Bind(model::WeightBinder& weights) {
    encoder.Bind(weights, config);
    quant.Bind(weights, "quant_conv", 2 * config.z_dim, 2 * config.z_dim, {1, 1, 1});
    post_quant.Bind(weights, "post_quant_conv", config.z_dim, config.z_dim, {1, 1, 1});
    decoder.Bind(weights, config);
    weight_bytes = weights.bytes();
  }

  /// Returns the frames before clamping. With `strips` this rank computes its rows of them.
  absl::StatusOr<at::Tensor> Decode(const at::Tensor& z, Counter& counter,
                                    vae::Strips* strips = nullptr) const {
    const at::Tensor x = post_quant.Apply(z);
    const std::int64_t total = x.size(2), pixels = config.spatial_scale();
    // The chunks go straight into the video. Joined at the end, they would take its memory twice.
    at::Tensor video = at::empty({x.size(0), 3, 1 + (total - 1) * config.temporal_scale(),
                                  pixels * x.size(3), pixels * x.size(4)},
                                 x.options());
    vae::FeatureCache cache(strips);
    std::int64_t frames = 0;
    for (std::int64_t i = 0; i < total; ++i) {
      cache.Rewind();
      at::Tensor chunk = x.narrow(2, i, 1);
      if (strips != nullptr) {
        chunk = decoder.Apply(chunk.narrow(3, strips->begin(), strips->count()), cache);
        chunk = strips->Gather(chunk, pixels);
        if (!strips->status().ok()) return strips->status();
      } else {
        chunk = decoder.Apply(chunk, cache);
      }
      video.narrow(2, frames, chunk.size(2)).copy_(chunk);
      frames += chunk.size(2);
      ONEPIECE_RETURN_IF_ERROR(counter.Next());
    }
    return video;
  }

  /// Returns means and then logarithms of variances, along the channels.
  absl::StatusOr<at::Tensor> Encode(const at::Tensor& video, Counter& counter) const {
    const std::int64_t group = config.temporal_scale(), total = 1 + (video.size(2) - 1) / group;
    vae::FeatureCache cache;
    std::vector<at::Tensor> chunks;
    for (std::int64_t i = 0; i < total; ++i) {
      // The first frame is a chunk of its own, so that an image is a video of one frame.
      cache.Rewind();
      chunks.push_back(encoder.Apply(
          i == 0 ? video.narrow(2, 0, 1) : video.narrow(2, 1 + group * (i - 1), group), cache));
      ONEPIECE_RETURN_IF_ERROR(counter.Next());
    }
    return quant.Apply(at::cat(chunks, 2));
  }
};

namespace {

absl::Status BadShape(const std::string& message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SHAPE", message);
}

absl::Status CheckTiling(const std::optional<WanVae::Tiling>& tiling, std::int64_t pixels) {
  if (!tiling) return absl::OkStatus();
  const bool good = tiling->stride > 0 && tiling->stride <= tiling->side &&
                    tiling->side % pixels == 0 && tiling->stride % pixels == 0;
  if (good) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_TILING",
                         "tiles need sides and strides that are multiples of " +
                             std::to_string(pixels) + ", the stride not above the side");
}

void CheckVariant(model::ConfigReader& reader) {
  if (reader.BoolOr("is_residual", false))
    reader.Unimplemented("is_residual", "residual autoencoders are not supported yet");
  if (reader.Has("patch_size") && reader.Int("patch_size", 1, 64) != 1) {
    reader.Unimplemented("patch_size", "patched autoencoders are not supported yet");
  }
  if (reader.Has("attn_scales") && !reader.Numbers("attn_scales", 16).empty()) {
    reader.Unimplemented("attn_scales", "attention inside the levels is not supported");
  }
  for (const char* field : {"in_channels", "out_channels"}) {
    if (reader.IntOr(field, 1, 64, 3) != 3) reader.Unimplemented(field, "only 3 is supported");
  }
}

}  // namespace

std::int64_t VaeConfig::temporal_scale() const {
  return std::int64_t{1} << std::count(temporal_downsample.begin(), temporal_downsample.end(),
                                       true);
}

std::int64_t VaeConfig::spatial_scale() const {
  return std::int64_t{1} << temporal_downsample.size();
}

absl::StatusOr<VaeConfig> WanVae::ParseConfig(const nlohmann::json& json) {
  model::ConfigReader reader(json);
  VaeConfig config;
  CheckVariant(reader);
  config.base_dim = reader.Int("base_dim", 1, 4096);
  config.decoder_base_dim = reader.IntOr("decoder_base_dim", 1, 4096, config.base_dim);
  config.z_dim = reader.Int("z_dim", 1, 4096);
  config.num_res_blocks = reader.Int("num_res_blocks", 1, 64);
  config.dim_mult = reader.Ints("dim_mult", 8, 1, 256);
  config.temporal_downsample = reader.Bools("temperal_downsample", 8);
  config.latents_mean = reader.Numbers("latents_mean", 4096);
  config.latents_std = reader.Numbers("latents_std", 4096);
  const auto z_dim = static_cast<std::size_t>(config.z_dim);
  if (config.dim_mult.size() < 2) reader.Bad("dim_mult", "must have 2 numbers or more");
  if (config.temporal_downsample.size() + 1 != config.dim_mult.size()) {
    reader.Bad("temperal_downsample", "must be one shorter than dim_mult");
  }
  if (config.latents_mean.size() != z_dim) reader.Bad("latents_mean", "must have z_dim numbers");
  if (config.latents_std.size() != z_dim) reader.Bad("latents_std", "must have z_dim numbers");
  for (const double deviation : config.latents_std) {
    if (!(deviation > 0)) reader.Bad("latents_std", "must be above 0");
  }
  // Every level but the innermost halves the channels and doubles the size.
  for (std::size_t i = 1; i < config.dim_mult.size(); ++i) {
    if (config.decoder_base_dim * config.dim_mult[i] % 2 != 0)
      reader.Bad("dim_mult", "an odd number of channels");
  }
  if (!reader.status().ok()) return reader.status();
  return config;
}

std::vector<model::TensorSpec> WanVae::Tensors(const VaeConfig& config) {
  Impl recorded;
  recorded.config = config;
  model::WeightBinder recorder;
  recorded.Bind(recorder);
  return recorder.specs();
}

absl::StatusOr<WanVae> WanVae::Load(const std::string& dir, at::Device device) {
  ONEPIECE_ASSIGN_OR_RETURN(const model::ComponentFiles files, model::ComponentFiles::Open(dir));
  auto config = ParseConfig(files.config());
  if (!config.ok()) return base::Annotate(config.status(), dir + "/config.json");
  ONEPIECE_RETURN_IF_ERROR(model::CheckFit(files, Tensors(*config)));
  auto impl = std::make_unique<Impl>();
  impl->config = *std::move(config);
  impl->device = device;
  model::WeightBinder weights(files, device);
  impl->Bind(weights);
  if (!weights.status().ok()) return weights.status();
  files.Forget();  // The convolutions hold copies of the weights in a layout of their own.
  const auto column = [&](const std::vector<double>& values) {
    return at::tensor(values, at::TensorOptions(at::kDouble))
        .to(device, at::kFloat)
        .view({1, -1, 1, 1, 1});
  };
  impl->mean = column(impl->config.latents_mean);
  impl->std = column(impl->config.latents_std);
  return WanVae(std::move(impl));
}

WanVae::WanVae(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
WanVae::~WanVae() = default;
WanVae::WanVae(WanVae&&) noexcept = default;
WanVae& WanVae::operator=(WanVae&&) noexcept = default;

const VaeConfig& WanVae::config() const { return impl_->config; }
std::int64_t WanVae::weight_bytes() const { return impl_->weight_bytes; }

at::Tensor WanVae::Denormalise(const at::Tensor& latents) const {
  return latents.to(impl_->device, at::kFloat) * impl_->std + impl_->mean;
}

at::Tensor WanVae::Normalise(const at::Tensor& latents) const {
  return (latents.to(impl_->device, at::kFloat) - impl_->mean) / impl_->std;
}

absl::StatusOr<at::Tensor> WanVae::Decode(const at::Tensor& z, const ChunkProgress& progress,
                                          const std::optional<Tiling>& tiling,
                                          const model::Parallel& parallel) const {
  return tensor::Guarded([&]() -> absl::StatusOr<at::Tensor> {
    if (z.dim() != 5 || z.numel() == 0 || z.size(1) != impl_->config.z_dim) {
      return BadShape("latents must be [batch, " + std::to_string(impl_->config.z_dim) +
                      ", frames, height, width]");
    }
    const std::int64_t pixels = impl_->config.spatial_scale();
    ONEPIECE_RETURN_IF_ERROR(CheckTiling(tiling, pixels));
    const at::Tensor x = z.to(impl_->device, at::kFloat);
    const std::int64_t reach = std::max(x.size(3), x.size(4)) * pixels;
    const std::int64_t ranks = parallel.group == nullptr ? 1 : parallel.group->size();
    Counter counter{progress, x.size(2)};
    at::Tensor video;
    if (tiling && reach > tiling->side) {
      const vae::TileSize out{tiling->side, tiling->stride},
          in{tiling->side / pixels, tiling->stride / pixels};
      const std::int64_t tiles = vae::CountTiles(x, in);
      // The first rank computes a tile in each wave.
      const std::int64_t waves = (tiles + ranks - 1) / ranks;
      counter.total *=
          ranks == 1 || parallel.group->rank() < tiles - (waves - 1) * ranks ? waves : waves - 1;
      const vae::TileShare share{parallel, 3, 1 + (x.size(2) - 1) * impl_->config.temporal_scale()};
      ONEPIECE_ASSIGN_OR_RETURN(
          video,
          vae::RunTiled(
              x, in, out, [&](const at::Tensor& tile) { return impl_->Decode(tile, counter); },
              ranks > 1 ? &share : nullptr));
    } else if (ranks > 1 && x.size(3) >= ranks) {
      vae::Strips strips(parallel, x.size(3));
      ONEPIECE_ASSIGN_OR_RETURN(video, impl_->Decode(x, counter, &strips));
    } else {
      // A frame of fewer rows than ranks is not worth parting: every rank computes all of it.
      ONEPIECE_ASSIGN_OR_RETURN(video, impl_->Decode(x, counter));
    }
    return video.clamp_(-1.0, 1.0);
  });
}

absl::StatusOr<WanVae::Posterior> WanVae::Encode(const at::Tensor& video,
                                                 const ChunkProgress& progress,
                                                 const std::optional<Tiling>& tiling) const {
  return tensor::Guarded([&]() -> absl::StatusOr<Posterior> {
    const std::int64_t group = impl_->config.temporal_scale(),
                       pixels = impl_->config.spatial_scale();
    if (video.dim() != 5 || video.numel() == 0 || video.size(1) != 3 || video.size(3) < pixels ||
        video.size(4) < pixels) {
      return BadShape("video must be [batch, 3, frames, height, width] with sides of " +
                      std::to_string(pixels) + " or more");
    }
    ONEPIECE_RETURN_IF_ERROR(CheckTiling(tiling, pixels));
    const at::Tensor x = video.to(impl_->device, at::kFloat);
    Counter counter{progress, 1 + (x.size(2) - 1) / group};
    at::Tensor moments;
    if (tiling && std::max(x.size(3), x.size(4)) > tiling->side) {
      const vae::TileSize in{tiling->side, tiling->stride},
          out{tiling->side / pixels, tiling->stride / pixels};
      counter.total *= vae::CountTiles(x, in);
      ONEPIECE_ASSIGN_OR_RETURN(moments, vae::RunTiled(x, in, out, [&](const at::Tensor& tile) {
                                  return impl_->Encode(tile, counter);
                                }));
    } else {
      ONEPIECE_ASSIGN_OR_RETURN(moments, impl_->Encode(x, counter));
    }
    const auto parts = moments.chunk(2, 1);
    return Posterior{parts[0], parts[1].clamp(-30.0, 20.0)};
  });
}

}  // namespace onepiece::wan
