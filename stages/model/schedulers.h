// The samplers of flow-matching models: UniPC (multistep, bh2, order 2) and Euler, as diffusers has
// them.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::model {

struct SchedulerConfig {
  enum class Kind { kUniPC, kFlowMatchEuler };
  Kind kind = Kind::kUniPC;
  double shift = 1.0;  ///< flow_shift of UniPC, shift of Euler.
  int num_train_timesteps = 1000;
  int solver_order = 2;  ///< UniPC only; 1 or 2.
};

/// Reads scheduler_config.json in `dir`. Errors: NOT_FOUND, INVALID_ARGUMENT BAD_CONFIG,
/// UNIMPLEMENTED for settings that are not supported, naming the field.
absl::StatusOr<SchedulerConfig> LoadSchedulerConfig(const std::string& dir);

/// What a run remembers between two steps: with the sample, all that the next step needs.
struct SchedulerState {
  int steps_done = 0;
  int order = 1;                          ///< UniPC: of the last prediction.
  at::Tensor newest, older, last_sample;  ///< UniPC: undefined as long as there are none.
};

/// One sampling run: holds the history of its steps. Thread-confined; make one for each job.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  /// One per step, falling from num_train_timesteps; what the transformer is given.
  [[nodiscard]] const std::vector<double>& timesteps() const { return timesteps_; }
  /// One more than timesteps; the last is 0.
  [[nodiscard]] const std::vector<double>& sigmas() const { return sigmas_; }
  /// The sample after step `i`, from the model's prediction at timesteps()[i].
  /// REQUIRES: `i` counts 0, 1, … timesteps().size() - 1 over the calls; shapes agree.
  virtual at::Tensor Step(const at::Tensor& prediction, int i, const at::Tensor& sample) = 0;
  /// The tensors are the run's own: they are never written again.
  [[nodiscard]] virtual SchedulerState Save() const = 0;
  /// Goes on where another run of the same configuration and steps was saved. Errors:
  /// INVALID_ARGUMENT BAD_STATE.
  virtual absl::Status Restore(const SchedulerState& state) = 0;

 protected:
  std::vector<double> timesteps_, sigmas_;  // Constant after construction.
};

/// Largest number of steps: that of the training timesteps would be reached long before it helps.
inline constexpr int kMaxSteps = 1000;

/// Errors: INVALID_ARGUMENT when steps is not in [1, kMaxSteps].
absl::StatusOr<std::unique_ptr<Scheduler>> MakeScheduler(const SchedulerConfig& config, int steps);

}  // namespace onepiece::model
