#include "stages/model/stage_inputs.h"

#include "cluster/base/status.h"
#include "stages/model/content_hash.h"
#include "stages/tensor/torch_convert.h"

namespace onepiece::model {
namespace {

constexpr std::string_view kFirstImage = "image", kLastImage = "last_image";

}  // namespace

absl::Status BadArtifact(std::string_view name, std::string_view what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_ARTIFACT",
                         "artifact " + std::string(name) + ": " + std::string(what),
                         {{"artifact", std::string(name)}});
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

std::string HashOfImages(const std::vector<sdk::Artifact>& inputs) {
  const auto hash = [&](std::string_view name) {
    const sdk::Artifact* artifact = message::FindArtifact(inputs, name);
    return artifact == nullptr ? std::string()
                               : HashOfParts({artifact->media_type, artifact->data.text()});
  };
  return HashOfParts({hash(kFirstImage), hash(kLastImage)});
}

}  // namespace onepiece::model
