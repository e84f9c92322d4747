// The state of the diffusion stage between two steps, as artifacts: all that another instance needs
// to resume bit for bit.
//
// The artifacts are `state` (application/json: version, step, and the settings of the job) and the
// tensors state.latents, state.rng and those of SchedulerState that are defined.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "stages/model/parallel_plan.h"
#include "stages/model/schedulers.h"
#include "stages/sdk/stage.h"

namespace onepiece::model {

struct DiffusionState {
  std::string settings;  ///< Describes job and model. A state fits only a job with equal settings.
  at::Tensor latents;    ///< F32, after scheduler.steps_done steps.
  at::Tensor rng;        ///< U8, the generator's state (at::Generator::get_state).
  SchedulerState scheduler;
};

/// Copies the tensors to the CPU.
///
/// Errors: those of tensor::ToArtifact.
absl::StatusOr<std::vector<sdk::Artifact>> SaveState(const DiffusionState& state);

/// Returns the state among the inputs of a stage, on `device`, or nullopt if there is none. Calls
/// `settings`, which makes DiffusionState::settings, only if there is a state.
///
/// Errors: INVALID_ARGUMENT BAD_ARTIFACT (malformed, or tensors of another shape than `shape`),
/// BAD_STATE (it belongs to other settings).
absl::StatusOr<std::optional<DiffusionState>> LoadState(
    const std::vector<sdk::Artifact>& inputs, const std::function<std::string()>& settings,
    at::IntArrayRef shape, at::Device device);

/// Gives the state of a run to those members of a group that have just come. All members call it
/// before the same step. The ones that are not newcomers hold equal states, and the first of them
/// by rank gives its own. A newcomer's `latents` have their shape and device; its `scheduler` is of
/// the same configuration and steps.
///
/// Errors: those of sdk::Group; INVALID_ARGUMENT BAD_GROUP (all are newcomers), BAD_STATE (the
/// state is not that after `steps_done` steps).
absl::Status ShareState(const Parallel& parallel, const std::vector<int>& newcomers, int steps_done,
                        at::Tensor& latents, Scheduler& scheduler);

}  // namespace onepiece::model
