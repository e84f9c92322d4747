#include "tests/bench/wan/workload.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "cluster/base/status.h"
#include "cluster/local/resources.h"
#include "stages/wan/autoencoder.h"
#include "stages/wan/transformer_3d.h"
#include "stages/wan/umt5_encoder.h"

namespace onepiece::bench {
namespace {

using Json = nlohmann::json;
using Shape = std::vector<std::int64_t>;

struct Tensor {
  std::string name, dtype;
  Shape shape;
  std::string bytes;
};

std::int64_t Elements(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Returns normally distributed values, the same on every run.
class Noise {
 public:
  Tensor Make(const std::string& name, const Shape& shape, double deviation, double mean = 0) {
    std::normal_distribution<float> normal(static_cast<float>(mean), static_cast<float>(deviation));
    std::vector<float> values(static_cast<std::size_t>(Elements(shape)));
    for (float& value : values) value = normal(random_);
    return {name, "F32", shape, Bytes(values)};
  }

 private:
  std::mt19937_64 random_{20260101};
};

absl::Status WriteSafetensors(const std::string& path, const std::vector<Tensor>& tensors) {
  Json header = Json::object();
  std::uint64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // Keeps the data aligned.
  const std::uint64_t size = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof(size));
  file << text;
  for (const Tensor& tensor : tensors) file << tensor.bytes;
  if (!file.flush()) return absl::InternalError(path + ": cannot be written");
  return absl::OkStatus();
}

/// Makes weights whose activations stay near one, so that errors do not vanish in large or small
/// numbers.
absl::Status WriteModel(const std::string& dir, const Json& config,
                        const std::vector<model::TensorSpec>& specs) {
  std::filesystem::create_directories(dir);
  std::ofstream(dir + "/config.json") << config.dump(2);
  Noise noise;
  std::vector<Tensor> tensors;
  for (const model::TensorSpec& spec : specs) {
    const std::string& name = spec.name;
    const double fan_in =
        static_cast<double>(Elements(spec.shape)) / static_cast<double>(spec.shape.front());
    const bool gain = name.ends_with("gamma") || name.find("norm") != std::string::npos;
    if (name.ends_with("bias")) {
      tensors.push_back(noise.Make(name, spec.shape, 0.02));
    } else if (gain) {
      tensors.push_back(noise.Make(name, spec.shape, 0.1, 1.0));
    } else {
      const bool table = name.find("table") != std::string::npos || name == "shared.weight";
      tensors.push_back(noise.Make(name, spec.shape, table ? 0.3 : 1.0 / std::sqrt(fan_in)));
    }
  }
  return WriteSafetensors(dir + "/model.safetensors", tensors);
}

/// Sizes of the inputs of one model.
struct Sizes {
  std::string label;     ///< Precedes the component in a row's name.
  std::string model;     ///< Folder with transformer, vae and text_encoder.
  Shape hidden;          ///< The transformer's input.
  Shape latents, video;  ///< The autoencoder's inputs.
  std::int64_t text_dim = 0, tokens = 0, vocabulary = 0;
};

absl::Status WriteMidSize(const std::string& dir) {
  const Json transformer = {{"_class_name", "WanTransformer3DModel"},
                            {"patch_size", {1, 2, 2}},
                            {"num_attention_heads", 8},
                            {"attention_head_dim", 64},
                            {"in_channels", 16},
                            {"out_channels", 16},
                            {"text_dim", 512},
                            {"freq_dim", 256},
                            {"ffn_dim", 2048},
                            {"num_layers", 4},
                            {"cross_attn_norm", true},
                            {"qk_norm", "rms_norm_across_heads"},
                            {"eps", 1e-6},
                            {"rope_max_seq_len", 1024}};
  const Json vae = {{"_class_name", "AutoencoderKLWan"},
                    {"base_dim", 32},
                    {"z_dim", 16},
                    {"dim_mult", {1, 2, 4, 4}},
                    {"num_res_blocks", 1},
                    {"attn_scales", Json::array()},
                    {"temperal_downsample", {false, true, true}},
                    {"latents_mean", std::vector<double>(16, 0.0)},
                    {"latents_std", std::vector<double>(16, 1.0)}};
  const Json encoder = {{"architectures", {"UMT5EncoderModel"}},
                        {"vocab_size", 1000},
                        {"d_model", 512},
                        {"d_kv", 64},
                        {"d_ff", 1024},
                        {"num_layers", 4},
                        {"num_heads", 8},
                        {"relative_attention_num_buckets", 32},
                        {"relative_attention_max_distance", 128},
                        {"layer_norm_epsilon", 1e-6},
                        {"feed_forward_proj", "gated-gelu"}};
  ONEPIECE_ASSIGN_OR_RETURN(const auto transformer_config,
                            wan::WanTransformer::ParseConfig(transformer));
  ONEPIECE_ASSIGN_OR_RETURN(const auto vae_config, wan::WanVae::ParseConfig(vae));
  ONEPIECE_ASSIGN_OR_RETURN(const auto encoder_config, wan::UMT5Encoder::ParseConfig(encoder));
  ONEPIECE_RETURN_IF_ERROR(WriteModel(dir + "/transformer", transformer,
                                      wan::WanTransformer::Tensors(transformer_config)));
  ONEPIECE_RETURN_IF_ERROR(WriteModel(dir + "/vae", vae, wan::WanVae::Tensors(vae_config)));
  return WriteModel(dir + "/text_encoder", encoder, wan::UMT5Encoder::Tensors(encoder_config));
}

absl::Status AddModel(const Sizes& sizes, const std::string& scratch,
                      std::vector<Workload>& workloads) {
  Noise noise;
  std::vector<std::int64_t> ids, mask;
  for (std::int64_t i = 0; i < sizes.tokens; ++i) {
    ids.push_back(3 + i * 7 % (sizes.vocabulary - 3));
    mask.push_back(1);
  }
  const Shape row = {1, sizes.tokens};
  struct Entry {
    const char *component, *folder;
    std::vector<Tensor> inputs;
    std::string description;
  };
  const Entry entries[] = {
      {"text_encode",
       "text_encoder",
       {{"input_ids", "I64", row, Bytes(ids)}, {"attention_mask", "I64", row, Bytes(mask)}},
       "UMT5, " + std::to_string(sizes.tokens) + " tokens"},
      {"transformer",
       "transformer",
       {noise.Make("hidden_states", sizes.hidden, 1.0),
        noise.Make("encoder_hidden_states", {1, 512, sizes.text_dim}, 1.0),
        {"timestep", "F32", {1}, Bytes(std::vector<float>{500.0F})}},
       "one step, one branch, latents " + Json(sizes.hidden).dump() + ", 512 text tokens"},
      {"vae_encode",
       "vae",
       {noise.Make("video", sizes.video, 0.5)},
       "video of " + Json(sizes.video).dump()},
      {"vae_decode",
       "vae",
       {noise.Make("z", sizes.latents, 1.0)},
       "latents of " + Json(sizes.latents).dump()},
  };
  for (const Entry& entry : entries) {
    const std::string name = sizes.label + "_" + entry.component;
    const std::string path = scratch + "/" + name + ".safetensors";
    ONEPIECE_RETURN_IF_ERROR(WriteSafetensors(path, entry.inputs));
    workloads.push_back({name, entry.component, sizes.model + "/" + entry.folder, path,
                         sizes.label + " " + entry.description});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Workload>> MakeWorkloads(const std::string& scratch) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string tiny, local::ResourcePath("models/tiny-wan-t2v"));
  const std::string mid = scratch + "/mid";
  ONEPIECE_RETURN_IF_ERROR(WriteMidSize(mid));
  std::vector<Workload> workloads;
  ONEPIECE_RETURN_IF_ERROR(
      AddModel({"tiny", tiny, {1, 16, 3, 8, 8}, {1, 16, 3, 8, 8}, {1, 3, 9, 64, 64}, 64, 16, 160},
               scratch, workloads));
  ONEPIECE_RETURN_IF_ERROR(AddModel(
      {"mid", mid, {1, 16, 3, 32, 32}, {1, 16, 3, 12, 12}, {1, 3, 9, 96, 96}, 512, 128, 1000},
      scratch, workloads));
  return workloads;
}

}  // namespace onepiece::bench
