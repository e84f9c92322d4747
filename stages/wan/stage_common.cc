#include "stages/wan/stage_common.h"

#include <string>

#include "cluster/base/status.h"
#include "stages/sdk/parameters.h"
#include "stages/tensor/compute.h"
#include "stages/tensor/torch_convert.h"
#include "stages/model/component_store.h"
#include "stages/model/conditioning_cache.h"
#include "stages/model/content_hash.h"
#include "stages/wan/merged_transformers.h"
#include "stages/model/weights.h"

namespace onepiece::wan {
namespace {

constexpr std::string_view kFirstImage = "image", kLastImage = "last_image";

}  // namespace

absl::Status BadArtifact(std::string_view name, std::string_view what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_ARTIFACT",
                         "artifact " + std::string(name) + ": " + std::string(what),
                         {{"artifact", std::string(name)}});
}

absl::StatusOr<at::Device> PrepareLoad(const sdk::LoadOptions& options) {
  if (options.model_dir.empty()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "NO_MODEL",
                           "the stage needs a model folder");
  }
  if (options.threads < 1) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_THREADS",
                           std::to_string(options.threads) + " threads cannot compute");
  }
  tensor::SetComputeThreads(options.threads);
  // By default a GPU's convolutions round F32 to TF32: three decimal digits. Products do so where
  // the environment says it.
  at::globalContext().setAllowTF32CuDNN(false);
  at::globalContext().setAllowTF32CuBLAS(false);
  ONEPIECE_ASSIGN_OR_RETURN(const at::Device device, tensor::ParseDevice(options.device));
  if (device.is_cuda() && !at::hasCUDA()) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "NO_CUDA",
                           "device " + options.device +
                               ": this LibTorch has no CUDA, or sees no GPU; use cpu, or see "
                               "docs/cuda.md",
                           {{"device", options.device}});
  }
  ONEPIECE_RETURN_IF_ERROR(ParsePrecision(options.precision, device).status());
  return device;
}

std::vector<sdk::StageMetric> ProcessMetrics() {
  const auto gauge = [](const char* name, const char* help, std::int64_t value) {
    return sdk::StageMetric{
        .name = name, .help = help, .of_process = true, .value = static_cast<double>(value)};
  };
  const auto counter = [&](const char* name, const char* help, std::int64_t value) {
    sdk::StageMetric metric = gauge(name, help, value);
    metric.counter = true;
    return metric;
  };
  const auto store = ComponentStore::OfProcess().stats();
  std::vector<sdk::StageMetric> metrics = {
      gauge("weight_bytes", "Weights that the process holds", store.weight_bytes),
      gauge("weight_shared_bytes", "Weights that it would hold on top if its stages shared none",
            store.shared_bytes)};
  if (const auto merged = MergedTransformers::OfProcess(); merged.ok()) {
    const auto lora = (*merged)->stats();
    metrics.insert(
        metrics.end(),
        {counter("lora_cache_hits_total", "Jobs that found their adapters merged", lora.hits),
         counter("lora_cache_misses_total", "Merges of adapters", lora.misses),
         counter("lora_cache_evictions_total", "Merged weights dropped to stay in the budget",
                 lora.evictions),
         gauge("lora_cache_bytes", "Merged weights kept", lora.bytes)});
  }
  const auto cache = ConditioningCache::OfProcess();
  if (!cache.ok()) return metrics;
  const auto stats = (*cache)->stats();
  metrics.insert(
      metrics.end(),
      {counter("conditioning_cache_hits_total", "Prompts and images found encoded", stats.hits),
       counter("conditioning_cache_misses_total", "Prompts and images that had to be encoded",
               stats.misses),
       counter("conditioning_cache_evictions_total", "Encodings dropped to stay in the budget",
               stats.evictions),
       gauge("conditioning_cache_bytes", "Encodings kept", stats.bytes),
       gauge("conditioning_cache_budget_bytes", "Encodings kept at most", stats.budget)});
  return metrics;
}

absl::StatusOr<at::Tensor> InputTensor(const std::vector<sdk::Artifact>& inputs,
                                       std::string_view name, std::int64_t dimensions) {
  const sdk::Artifact* artifact = message::FindArtifact(inputs, name);
  if (artifact == nullptr) return BadArtifact(name, "missing");
  if (artifact->dtype != message::DType::kF32) return BadArtifact(name, "not F32");
  ONEPIECE_ASSIGN_OR_RETURN(at::Tensor tensor, tensor::ToTensor(*artifact));
  if (tensor.dim() != dimensions || tensor.numel() == 0) {
    return BadArtifact(name,
                       "not a tensor of " + std::to_string(dimensions) + " dimensions with values");
  }
  if (!at::isfinite(tensor).all().item<bool>())
    return BadArtifact(name, "holds values that are not finite");
  return tensor;
}

absl::StatusOr<std::vector<media::Image>> InputImages(const std::vector<sdk::Artifact>& inputs) {
  std::vector<media::Image> images;
  if (message::FindArtifact(inputs, kFirstImage) == nullptr) {
    if (message::FindArtifact(inputs, kLastImage) != nullptr)
      return BadArtifact(kLastImage, "there is no image to begin with");
    return images;
  }
  for (const std::string_view name : {kFirstImage, kLastImage}) {
    const sdk::Artifact* artifact = message::FindArtifact(inputs, name);
    if (artifact == nullptr) break;
    if (artifact->dtype != message::DType::kBytes || !artifact->media_type.starts_with("image/"))
      return BadArtifact(name, "not a file of a media type image/...");
    auto image = media::DecodeImage(artifact->data.bytes());
    if (!image.ok()) return base::Annotate(image.status(), name);
    images.push_back(*std::move(image));
  }
  return images;
}

absl::StatusOr<std::optional<WanVae::Tiling>> ReadTiling(const sdk::Parameters& parameters) {
  ONEPIECE_ASSIGN_OR_RETURN(const bool tiled,
                            sdk::BoolParameter(parameters, "vae_tiling", /*fallback=*/false));
  return tiled ? std::optional(WanVae::Tiling()) : std::nullopt;
}

std::string HashOfImages(const std::vector<sdk::Artifact>& inputs) {
  const auto hash = [&](std::string_view name) {
    const sdk::Artifact* artifact = message::FindArtifact(inputs, name);
    return artifact == nullptr ? std::string()
                               : HashOfParts({artifact->media_type, artifact->data.text()});
  };
  return HashOfParts({hash(kFirstImage), hash(kLastImage)});
}

}  // namespace onepiece::wan
