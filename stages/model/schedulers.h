// The samplers of flow-matching models, as in diffusers: UniPC (multistep, bh2, order 2) and Euler.
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

/// Reads scheduler_config.json in `dir`.
///
/// Errors: NOT_FOUND, INVALID_ARGUMENT BAD_CONFIG, UNIMPLEMENTED for settings that are not
/// supported, which names the field.
absl::StatusOr<SchedulerConfig> LoadSchedulerConfig(const std::string& dir);

/// The state of a run between two steps. Together with the sample it is all that the next step
/// needs.
struct SchedulerState {
  int steps_done = 0;
  int order = 1;                          ///< UniPC: the order of the last prediction.
  at::Tensor newest, older, last_sample;  ///< UniPC. Undefined while there are none.
};

/// One sampling run. Holds the history of its steps, so each job needs one of its own.
///
/// Threading: thread-confined.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  /// The timesteps that the transformer is given: one per step, falling from num_train_timesteps.
  [[nodiscard]] const std::vector<double>& timesteps() const { return timesteps_; }
  /// The noise levels: one more than timesteps. The last is 0.
  [[nodiscard]] const std::vector<double>& sigmas() const { return sigmas_; }
  /// Returns the sample after step `i`, from the model's prediction at timesteps()[i].
  ///
  /// REQUIRES: `i` counts 0, 1, … timesteps().size() - 1 over the calls; shapes agree.
  virtual at::Tensor Step(const at::Tensor& prediction, int i, const at::Tensor& sample) = 0;
  /// Returns tensors of the run, which never writes to them again.
  [[nodiscard]] virtual SchedulerState Save() const = 0;
  /// Resumes where another run of the same configuration and steps was saved.
  ///
  /// Errors: INVALID_ARGUMENT BAD_STATE.
  virtual absl::Status Restore(const SchedulerState& state) = 0;

 protected:
  std::vector<double> timesteps_, sigmas_;  // Constant after construction.
};

/// The largest number of steps. More steps would not help, and there are no more training
/// timesteps.
inline constexpr int kMaxSteps = 1000;

/// Errors: INVALID_ARGUMENT when steps is not in [1, kMaxSteps].
absl::StatusOr<std::unique_ptr<Scheduler>> MakeScheduler(const SchedulerConfig& config, int steps);

}  // namespace onepiece::model
