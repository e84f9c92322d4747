#include "stages/model/frames_output.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "stages/sdk/parameters.h"

namespace onepiece::model {
namespace {

/// A bundle holds at most 256 artifacts, and one is the checksum.
constexpr std::int64_t kMaxPngFrames = 255;

absl::StatusOr<std::vector<sdk::Artifact>> PngArtifacts(const media::FramesView& frames,
                                                        const std::string& provenance) {
  std::vector<sdk::Artifact> artifacts;
  for (std::int64_t i = 0; i < frames.count; ++i) {
    ONEPIECE_ASSIGN_OR_RETURN(std::string file, media::EncodePng(frames, i, provenance));
    std::array<char, 16> name{};
    std::snprintf(name.data(), name.size(), "frame_%04d", static_cast<int>(i));
    artifacts.push_back(message::BytesArtifact(name.data(), "image/png", std::move(file)));
  }
  return artifacts;
}

}  // namespace

absl::StatusOr<std::string> Provenance(const sdk::StageContext& context, const std::string& model) {
  ONEPIECE_ASSIGN_OR_RETURN(const bool wanted,
                            sdk::BoolParameter(context.parameters(), "provenance", true));
  if (!wanted) return std::string();
  constexpr std::int64_t kMaxSeed = std::numeric_limits<std::int64_t>::max();
  ONEPIECE_ASSIGN_OR_RETURN(const std::int64_t seed,
                            sdk::IntParameter(context.parameters(), "seed", 0, kMaxSeed, 0));
  std::string text = "AI-generated (trainedAlgorithmicMedia) by OnePiece; ";
  if (!model.empty()) text += "model=" + std::filesystem::path(model).filename().string() + "; ";
  return text + "seed=" + std::to_string(seed) + "; uid=" + context.uid().ToString();
}

sdk::Artifact FramesChecksum(const media::FramesView& frames) {
  return message::BytesArtifact("frames_sha256", "text/plain", base::Sha256Hex(frames.rgb));
}

absl::StatusOr<std::vector<sdk::Artifact>> EncodeFrames(const media::FramesView& frames,
                                                        std::string_view parameter,
                                                        const std::string& format, int fps,
                                                        const std::string& provenance) {
  std::vector<sdk::Artifact> outputs;
  if (format == "mp4") {
    ONEPIECE_ASSIGN_OR_RETURN(std::string file, media::EncodeMp4(frames, fps, provenance));
    outputs.push_back(message::BytesArtifact("video", "video/mp4", std::move(file)));
  } else if (format != "png") {
    return sdk::BadParameter(parameter, "not mp4 or png");
  } else if (frames.count > kMaxPngFrames) {
    return sdk::BadParameter(parameter,
                             "png takes at most " + std::to_string(kMaxPngFrames) + " frames");
  } else {
    ONEPIECE_ASSIGN_OR_RETURN(outputs, PngArtifacts(frames, provenance));
  }
  outputs.push_back(FramesChecksum(frames));
  return outputs;
}

}  // namespace onepiece::model
