#include "stages/model/diffusion_state.h"

#include <utility>

#include "cluster/base/status.h"
#include "nlohmann/json.hpp"
#include "stages/model/stage_inputs.h"
#include "stages/tensor/device_copy.h"
#include "stages/tensor/torch_convert.h"

namespace onepiece::model {
namespace {

constexpr int kVersion = 1;
constexpr char kInfo[] = "state", kLatents[] = "state.latents", kRng[] = "state.rng";

/// Returns the scheduler's tensors by their artifacts' names.
template <typename State>
auto Tensors(State& scheduler) {
  return std::array{std::pair{"state.newest", &scheduler.newest},
                    std::pair{"state.older", &scheduler.older},
                    std::pair{"state.last_sample", &scheduler.last_sample}};
}

absl::Status Add(const std::string& name, const at::Tensor& tensor,
                 std::vector<sdk::Artifact>& artifacts) {
  // Copies, because the run that saved the state may go on computing with the original.
  const at::Tensor copy =
      tensor.to(at::kCPU, tensor.scalar_type(), /*non_blocking=*/false, /*copy=*/true).contiguous();
  ONEPIECE_ASSIGN_OR_RETURN(sdk::Artifact artifact, tensor::ToArtifact(name, copy));
  artifacts.push_back(std::move(artifact));
  return absl::OkStatus();
}

absl::Status ReadInfo(const sdk::Artifact& info, const std::string& settings,
                      SchedulerState& scheduler) {
  const auto json = nlohmann::json::parse(info.data.text(), nullptr, false);
  const auto number = [&](const char* name) {
    return json.is_object() && json.contains(name) && json[name].is_number_integer()
               ? json[name].get<int>()
               : -1;
  };
  scheduler.steps_done = number("steps_done");
  scheduler.order = number("order");
  if (number("version") != kVersion || scheduler.steps_done < 0 || scheduler.order < 0 ||
      !json.contains("settings") || !json["settings"].is_string()) {
    return BadArtifact(kInfo, "not a saved state that this version can read");
  }
  if (json["settings"].get<std::string>() != settings) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_STATE",
                           "the saved state belongs to a job with other settings: " +
                               json["settings"].get<std::string>().substr(0, 300) + " instead of " +
                               settings);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<sdk::Artifact>> SaveState(const DiffusionState& state) {
  const nlohmann::json info = {{"version", kVersion},
                               {"settings", state.settings},
                               {"steps_done", state.scheduler.steps_done},
                               {"order", state.scheduler.order}};
  std::vector<sdk::Artifact> artifacts = {
      message::BytesArtifact(kInfo, "application/json", info.dump())};
  ONEPIECE_RETURN_IF_ERROR(Add(kLatents, state.latents, artifacts));
  ONEPIECE_RETURN_IF_ERROR(Add(kRng, state.rng, artifacts));
  for (const auto& [name, tensor] : Tensors(state.scheduler)) {
    if (tensor->defined()) ONEPIECE_RETURN_IF_ERROR(Add(name, *tensor, artifacts));
  }
  return artifacts;
}

absl::StatusOr<std::optional<DiffusionState>> LoadState(
    const std::vector<sdk::Artifact>& inputs, const std::function<std::string()>& settings,
    at::IntArrayRef shape, at::Device device) {
  const sdk::Artifact* info = message::FindArtifact(inputs, kInfo);
  if (info == nullptr) return std::nullopt;
  DiffusionState state{.settings = settings(), .latents = {}, .rng = {}, .scheduler = {}};
  ONEPIECE_RETURN_IF_ERROR(ReadInfo(*info, state.settings, state.scheduler));
  const auto read = [&](const char* name, at::Tensor& tensor) -> absl::Status {
    ONEPIECE_ASSIGN_OR_RETURN(tensor,
                              InputTensor(inputs, name, static_cast<std::int64_t>(shape.size())));
    if (tensor.sizes() != shape) return BadArtifact(name, "its shape does not fit the job");
    ONEPIECE_ASSIGN_OR_RETURN(tensor, tensor::ToDevice(tensor, device));
    return absl::OkStatus();
  };
  ONEPIECE_RETURN_IF_ERROR(read(kLatents, state.latents));
  for (const auto& [name, tensor] : Tensors(state.scheduler)) {
    if (message::FindArtifact(inputs, name) != nullptr) {
      ONEPIECE_RETURN_IF_ERROR(read(name, *tensor));
    }
  }
  const sdk::Artifact* rng = message::FindArtifact(inputs, kRng);
  if (rng == nullptr || rng->dtype != message::DType::kU8) return BadArtifact(kRng, "missing");
  // It stays on the CPU, where the generator is (MakeGenerator).
  ONEPIECE_ASSIGN_OR_RETURN(state.rng, tensor::ToTensor(*rng));
  return state;
}

}  // namespace onepiece::model
