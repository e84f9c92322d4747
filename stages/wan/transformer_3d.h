// Wan's diffusion transformer (diffusers' WanTransformer3DModel): text to video, and image to video
// with one image or with a first and a last one.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "stages/model/kernels.h"
#include "stages/model/parallel_plan.h"
#include "stages/model/token_parts.h"
#include "stages/model/weights.h"

namespace onepiece::wan {

struct TransformerConfig {
  std::int64_t patch_t = 1, patch_h = 2, patch_w = 2;
  std::int64_t num_heads = 0, head_dim = 0, in_channels = 0, out_channels = 0;
  std::int64_t text_dim = 0, freq_dim = 0, ffn_dim = 0, num_layers = 0, rope_max_seq_len = 0;
  std::int64_t image_dim = 0;      ///< Width of the image embeddings. 0 for text to video.
  std::int64_t image_pos_len = 0;  ///< Image tokens that have learned positions; 0 for none.
  bool cross_attn_norm = true;
  double epsilon = 1e-6;
  /// Returns how many images Prepare takes for one video: two if positions tell them apart.
  [[nodiscard]] std::int64_t images() const {
    return image_dim == 0 ? 0 : image_pos_len > 0 ? 2 : 1;
  }
  [[nodiscard]] std::int64_t dim() const { return num_heads * head_dim; }
};

/// Computes matrix products in the precision of Load and everything else in F32.
///
/// Threading: immutable after Load; the other methods may be called from any thread.
///
/// The class is made for inference. To train a model, let the WeightChange of Load return weights
/// that require gradients. Prepare and Forward then record for autograd (outside of inference
/// mode). While a caller changes the weights in place, nobody else may use the model.
class WanTransformer {
 public:
  /// Keys and values of every layer: [batch, heads, tokens, head_dim] each.
  struct KeyValues {
    std::vector<at::Tensor> keys, values;
  };
  /// The keys and values of cross-attention, which are the same in every step. Prepare makes them.
  /// Copies share the tensors.
  struct Context {
    KeyValues text, image;  ///< A text-to-video model has no image.
  };

  /// Reads a component folder. `change`: see WeightBinder.
  ///
  /// Errors: NOT_FOUND; INVALID_ARGUMENT BAD_CONFIG, BAD_WEIGHTS, BAD_SAFETENSORS; UNIMPLEMENTED
  /// for other variants; RESOURCE_EXHAUSTED.
  static absl::StatusOr<WanTransformer> Load(const std::string& dir, at::Device device = at::kCPU,
                                             at::ScalarType products = at::kFloat,
                                             const model::WeightChange& change = {});

  /// `text` is F32 [batch, tokens, text_dim]; the pipelines pad it with zeros to 512 tokens.
  /// `image` is F32 [batch * config().images(), tokens, image_dim]: the image encoder's output, the
  /// first image of a video before its last one; undefined for text to video. Call this once for a
  /// text: it costs more than a step of a small model.
  ///
  /// Errors: INVALID_ARGUMENT BAD_SHAPE (also a missing or needless image), RESOURCE_EXHAUSTED,
  /// INTERNAL.
  [[nodiscard]] absl::StatusOr<Context> Prepare(const at::Tensor& text,
                                                const at::Tensor& image = {}) const;

  /// Predicts the flow of `hidden`, F32 [batch, in_channels, frames, height, width] of latents (and
  /// for image to video of their condition, generation.h), at `timestep` (0 to 1000). Returns F32
  /// [batch, out_channels, frames, height, width], without the rest that does not fill a patch.
  ///
  /// With a group every rank gives the same `hidden` and the `context` of its branch, computes its
  /// part of the tokens, and gets the predictions of all branches: [cfg · batch, out_channels, …].
  /// A group's result equals one worker's up to rounding.
  ///
  /// Errors: INVALID_ARGUMENT (smaller than a patch, or past rope_max_seq_len; BAD_PLAN),
  /// RESOURCE_EXHAUSTED, INTERNAL; with a group those of sdk::Group, and UNIMPLEMENTED for
  /// training.
  [[nodiscard]] absl::StatusOr<at::Tensor> Forward(const at::Tensor& hidden, double timestep,
                                                   const Context& context,
                                                   const model::Parallel& parallel = {}) const;

  /// Returns what a plan must fit for predictions of latents of this shape ([batch, channels,
  /// frames, height, width]).
  [[nodiscard]] model::ParallelWork WorkOf(at::IntArrayRef latents, bool guided) const;

  [[nodiscard]] const TransformerConfig& config() const { return config_; }
  [[nodiscard]] std::int64_t weight_bytes() const { return weight_bytes_; }

  /// For tools. Parses the configuration in a config.json, and lists the tensors that it calls for.
  static absl::StatusOr<TransformerConfig> ParseConfig(const nlohmann::json& config);
  static std::vector<model::TensorSpec> Tensors(const TransformerConfig& config);

 private:
  struct Linear {
    at::Tensor weight, bias;
    /// Computes in the precision of the weight. The result has the same precision.
    [[nodiscard]] at::Tensor Apply(const at::Tensor& x) const {
      return at::linear(x.to(weight.scalar_type()), weight, bias);
    }
  };
  struct AttentionWeights {
    Linear q, k, v, out;
    at::Tensor norm_q, norm_k;
  };
  struct Norm {
    at::Tensor weight, bias;
  };
  struct ImageAttentionWeights {
    Linear k, v;
    at::Tensor norm_k;
  };
  struct ImageEmbedder {
    at::Tensor positions;  // [1, image_pos_len, image_dim], undefined without.
    Norm norm_in, norm_out;
    Linear in, out;
  };
  struct Block {
    at::Tensor modulation;  // [1, 6, dim]
    AttentionWeights self, cross;
    ImageAttentionWeights image;  // Undefined for text to video.
    Norm norm2;
    Linear ffn_in, ffn_out;
  };
  void Bind(model::WeightBinder& weights);
  void BindEmbedders(model::WeightBinder& weights);
  enum class Held { kF32, kFactor };
  Linear BindLinear(model::WeightBinder& weights, const std::string& name, std::int64_t in,
                    std::int64_t out, Held held = Held::kFactor) const;
  Norm BindNorm(model::WeightBinder& weights, const std::string& name, std::int64_t extent) const;
  AttentionWeights BindAttention(model::WeightBinder& weights, const std::string& name) const;
  [[nodiscard]] absl::Status CheckInput(const at::Tensor& hidden, const Context& context) const;
  [[nodiscard]] absl::StatusOr<at::Tensor> EmbedText(const at::Tensor& text) const;
  [[nodiscard]] absl::StatusOr<at::Tensor> EmbedImage(const at::Tensor& image) const;
  [[nodiscard]] model::Rotary MakeRotary(std::int64_t frames, std::int64_t height,
                                         std::int64_t width) const;
  /// Returns MakeRotary of the shape, which all steps and layers of a job share.
  [[nodiscard]] model::Rotary RotaryOf(std::int64_t frames, std::int64_t height,
                                       std::int64_t width) const;
  [[nodiscard]] at::Tensor TimeEmbedding(double timestep) const;
  [[nodiscard]] at::Tensor Heads(const at::Tensor& x) const;
  /// One call of Forward, as the layers see it.
  struct Pass {
    const Context& context;
    at::Tensor time;                 ///< Modulation, F32 [1, 6, dim].
    model::Rotary rotary;            ///< Of this rank's tokens.
    const model::TokenParts* parts;  ///< Null: this worker has all tokens.
  };
  /// Returns the embedded patches [batch, tokens, dim], those of `parts` if it is not null.
  [[nodiscard]] at::Tensor EmbedPatches(const at::Tensor& hidden,
                                        const model::TokenParts* parts) const;
  /// Computes one layer. Changes `hidden` in place.
  absl::Status RunBlock(const Block& block, at::Tensor& hidden, const Pass& pass,
                        std::size_t layer) const;
  [[nodiscard]] absl::StatusOr<at::Tensor> SelfAttention(const Block& block,
                                                         const at::Tensor& hidden,
                                                         const Pass& pass) const;
  [[nodiscard]] at::Tensor CrossAttention(const Block& block, const at::Tensor& hidden,
                                          const Context& context, std::size_t layer) const;
  [[nodiscard]] at::Tensor Unpatchify(const at::Tensor& patches, std::int64_t batch,
                                      std::int64_t frames, std::int64_t height,
                                      std::int64_t width) const;

  /// The tables of the last shape: 38 MB for 720p, so one is enough. Behind a pointer, because the
  /// class is movable.
  struct RotaryCache {
    base::Mutex mutex;
    std::array<std::int64_t, 3> shape ABSL_GUARDED_BY(mutex){};
    model::Rotary rotary ABSL_GUARDED_BY(mutex);
  };

  TransformerConfig config_;
  std::unique_ptr<RotaryCache> rotary_cache_ = std::make_unique<RotaryCache>();
  std::int64_t weight_bytes_ = 0;
  at::Device device_ = at::kCPU;
  Linear patch_, time_1_, time_2_, time_proj_, text_1_, text_2_, proj_out_;
  ImageEmbedder image_;    // Undefined for text to video.
  at::Tensor modulation_;  // [1, 2, dim]
  std::vector<Block> blocks_;
};

}  // namespace onepiece::wan
