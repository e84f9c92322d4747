// LoRA adapters (https://arxiv.org/abs/2106.09685): low-rank changes of a transformer's linear
// weights, from safetensors files in diffusers or PEFT naming.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stages/model/weights.h"

namespace onepiece::model {

/// One adapter file.
///
/// A key is a module of the transformer ("blocks.0.attn1.to_q", with or without "transformer." or
/// "base_model.model." before it) and lora_A.weight | lora_A.default.weight | lora_down.weight
/// [rank, in], lora_B… | lora_up.weight [out, rank], or alpha (one number). A module's alpha is
/// that tensor, else the value in the metadata lora_adapter_metadata, else its rank.
///
/// Threading: immutable; may be used from any thread.
class LoraAdapter {
 public:
  /// Reads an adapter file.
  ///
  /// Errors: NOT_FOUND; INVALID_ARGUMENT BAD_SAFETENSORS, or BAD_LORA, which names keys that are
  /// unknown, lack their other half, do not fit together or hold values that are not finite.
  static absl::StatusOr<std::shared_ptr<const LoraAdapter>> Open(const std::string& path);

  /// Checks that every target is one of `tensors` and has its shape.
  ///
  /// Errors: INVALID_ARGUMENT BAD_LORA, which names the targets that do not fit: the adapter
  /// belongs to another model.
  [[nodiscard]] absl::Status CheckFit(const std::vector<TensorSpec>& tensors) const;

  [[nodiscard]] bool Changes(std::string_view weight) const;
  /// Returns alpha / rank · B A, F32 [out, in] on `device`.
  ///
  /// REQUIRES: Changes(weight).
  [[nodiscard]] at::Tensor Delta(std::string_view weight, at::Device device) const;

 private:
  struct Target {
    at::Tensor a, b;  // F32 [rank, in] and [out, rank].
    double alpha = 0;
    bool has_alpha = false;
  };
  class Reader;

  std::string path_;
  std::map<std::string, Target, std::less<>> targets_;  // By the name of the weight.
};

/// An adapter that a job asks for.
struct LoraChoice {
  std::string name;
  double scale = 1;
  friend bool operator==(const LoraChoice&, const LoraChoice&) = default;
};

inline constexpr std::size_t kMaxLoras = 8;
inline constexpr double kMaxLoraScale = 10;

/// Reads "NAME[:SCALE],…": names of letters, digits, '.', '_' and '-' (no path), each once, at most
/// kMaxLoras; scales within ±kMaxLoraScale. An empty text means no adapters.
///
/// Errors: INVALID_ARGUMENT BAD_PARAMETER.
absl::StatusOr<std::vector<LoraChoice>> ParseLoras(std::string_view parameter,
                                                   std::string_view text);

struct ScaledLora {
  std::shared_ptr<const LoraAdapter> adapter;
  double scale = 1;
};

/// Adds the adapters' changes, in order, to weights as they are loaded.
WeightChange MergeLoras(std::vector<ScaledLora> loras);

}  // namespace onepiece::model
