// The stages of text and image to video: text_encode [and vae_encode] → diffusion → vae_decode.
// media_encode is for workflows that work on frames before they are encoded.
//
// All stages read the diffusers folder layout: LoadOptions::model_dir holds tokenizer,
// text_encoder, transformer, scheduler, vae and, for most image-to-video models, image_encoder and
// image_processor. Each stage reads only its own components. Results depend on
// LoadOptions::threads, the model and the job alone.
//
// Several workers may compute a job (sdk::Collaboration): they share the steps of diffusion and the
// frames of vae_decode, and each of them computes the other stages by itself. Their results equal
// one worker's up to rounding. Members may change at the steps of diffusion. Of vae_decode, the
// first rank makes the outputs and the others frames_sha256 alone.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "stages/sdk/stage.h"

namespace onepiece::wan {

/// Parameters prompt, negative_prompt (default empty) → prompt_embeds, negative_prompt_embeds: F32
/// [1, tokens, d_model] of the real tokens. Tokens beyond kMaxSequenceLength are cut off, with a
/// warning in the log. If the model has an image encoder, image and last_image (files) become
/// image_embeds: F32 [images, tokens, hidden].
std::unique_ptr<sdk::Stage> MakeTextEncodeStage();

/// image and last_image, if there is one (files of image/..., media::DecodeImage), and the
/// parameters of ReadVideoSize and vae_tiling (default false) → condition: F32 [1, 4 + z_dim,
/// frames, height, width] (EncodeCondition).
std::unique_ptr<sdk::Stage> MakeVaeEncodeStage();

/// prompt_embeds, negative_prompt_embeds, for image to video condition and (if the transformer has
/// image attention) image_embeds, and the parameters of ReadSettings and loras (ParseLoras, default
/// none; the adapters are LoadOptions::model_dir/loras/NAME.safetensors) → latents: F32 [1,
/// channels, frames, height, width] in the normalised space. Reports every step and saves its state
/// there (StageContext::Checkpoint). With a saved state among the inputs it resumes from that, bit
/// for bit at the same number of threads.
std::unique_ptr<sdk::Stage> MakeDiffusionStage();

/// latents and the parameters format ("mp4" or "png", default mp4), fps (default 16) and vae_tiling
/// (default false: frames as a whole) → video (video/mp4), or frame_0000, frame_0001, …
/// (image/png); and frames_sha256 (text/plain), the hex SHA-256 of the U8 frames [frames, height,
/// width, 3] before they are encoded. Format "raw" makes `frames` instead: the frames themselves,
/// for a stage that works on them.
std::unique_ptr<sdk::Stage> MakeVaeDecodeStage();

/// frames: U8 [frames, height, width, 3], and the parameters media ("mp4" or "png", default mp4)
/// and fps → the outputs of vae_decode in these formats. Needs no model.
std::unique_ptr<sdk::Stage> MakeMediaEncodeStage();

/// A whole workflow in one instance, with all its weights: text_encode, diffusion and vae_decode,
/// and vae_encode for image to video. Takes the inputs of the first stages and makes the same bytes
/// as vae_decode. Saves the diffusion's state and resumes from it as above; a resumed job computes
/// the other parts again.
std::unique_ptr<sdk::Stage> MakeTextToVideoStage();
std::unique_ptr<sdk::Stage> MakeImageToVideoStage();

}  // namespace onepiece::wan
