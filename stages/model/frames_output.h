// Turns frames into what a client fetches: mp4 or png artifacts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/media/media.h"
#include "stages/sdk/stage.h"

namespace onepiece::model {

/// Returns what a file says of where it comes from: that it is AI-generated (IPTC's
/// trainedAlgorithmicMedia), the model, the seed and the job. Empty when the job's parameter
/// "provenance" is false.
///
/// Errors: INVALID_ARGUMENT BAD_PARAMETER.
absl::StatusOr<std::string> Provenance(const sdk::StageContext& context, const std::string& model);

/// Returns `video` (video/mp4) or frame_0000, frame_0001, … (image/png), as `format` says, and
/// frames_sha256. `parameter` names the format in errors. The files have `provenance` as a comment,
/// unless it is empty.
///
/// Errors: INVALID_ARGUMENT BAD_PARAMETER (another format, too many frames for png), those of
/// cluster/media.
absl::StatusOr<std::vector<sdk::Artifact>> EncodeFrames(const media::FramesView& frames,
                                                        std::string_view parameter,
                                                        const std::string& format, int fps,
                                                        const std::string& provenance);

/// Returns the artifact frames_sha256 (text/plain): the hex SHA-256 of the U8 frames [frames,
/// height, width, 3].
sdk::Artifact FramesChecksum(const media::FramesView& frames);

}  // namespace onepiece::model
