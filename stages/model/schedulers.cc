#include "stages/model/schedulers.h"

#include <algorithm>
#include <cmath>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "stages/model/config_reader.h"
#include "stages/model/weights.h"

namespace onepiece::model {
namespace {

constexpr double kSigmaGap = 1e-6;  // The distance of UniPC's first sigma from 1.

/// Returns half the logarithm of the signal-to-noise ratio of a flow: log(alpha / sigma), infinite
/// at sigma = 0.
double Lambda(double sigma) { return std::log(1.0 - sigma) - std::log(sigma); }

absl::Status BadState(const std::string& why) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_STATE", why);
}

double Shifted(double sigma, double shift) { return shift * sigma / (1.0 + (shift - 1.0) * sigma); }

/// UniPC in its B2(h) form on predictions of the clean sample. It corrects each sample with the
/// prediction made at it, then takes the next step. https://arxiv.org/abs/2302.04867
class UniPC final : public Scheduler {
 public:
  UniPC(const SchedulerConfig& config, int steps) : solver_order_(config.solver_order) {
    // The unshifted sigma falls in equal steps from 1 to 1 / N. The last one is replaced by the
    // exact 0.
    const double train = config.num_train_timesteps;
    for (int i = 0; i < steps; ++i) {
      double sigma = Shifted(1.0 + (1.0 / train - 1.0) * i / steps, config.shift);
      // At sigma = 1 the signal-to-noise ratio is zero and its logarithm infinite.
      sigma = std::min(sigma, 1.0 - kSigmaGap);
      // The reference keeps sigmas in F32 and timesteps as integers. Both roundings change the
      // samples.
      sigmas_.push_back(static_cast<float>(sigma));
      timesteps_.push_back(std::trunc(sigma * train));
    }
    sigmas_.push_back(0.0);
  }

  at::Tensor Step(const at::Tensor& prediction, int i, const at::Tensor& sample) override {
    ONEPIECE_CHECK(i == next_ && static_cast<std::size_t>(i) < timesteps_.size());
    next_ = i + 1;
    const at::Tensor clean = sample - prediction * sigmas_[static_cast<std::size_t>(i)];
    const at::Tensor corrected = i > 0 ? Correct(clean, i) : sample;
    older_ = newest_;
    newest_ = clean;
    // The order is low at both ends: there is no history at first, and the last step goes to
    // infinite lambda.
    order_ = OrderOf(i);
    last_sample_ = corrected;
    return Predict(i);
  }

  [[nodiscard]] SchedulerState Save() const override {
    return {next_, order_, newest_, older_, last_sample_};
  }

  absl::Status Restore(const SchedulerState& state) override {
    const int steps = static_cast<int>(timesteps_.size());
    const int done = state.steps_done;
    const bool counts =
        done >= 0 && done <= steps && state.order == (done == 0 ? 1 : OrderOf(done - 1));
    const bool first =
        state.steps_done == 0 || (state.newest.defined() && state.last_sample.defined());
    const bool second = state.steps_done < 2 || state.older.defined();
    if (!counts || !first || !second) return BadState("not a state of this scheduler");
    next_ = state.steps_done;
    order_ = state.order;
    newest_ = state.newest;
    older_ = state.older;
    last_sample_ = state.last_sample;
    return absl::OkStatus();
  }

 private:
  [[nodiscard]] int OrderOf(int i) const {
    return std::min({solver_order_, static_cast<int>(timesteps_.size()) - i, i + 1});
  }

  /// Computes what both halves of a step from sigma `from` to sigma `to` need.
  struct Coefficients {
    double ratio, alpha, phi, b1, b2;
  };
  static Coefficients Coefficient(double from, double to) {
    const double hh = -(Lambda(to) - Lambda(from));
    const double phi = std::expm1(hh);
    const double phi_2 = phi / hh - 1.0;
    return {to / from, 1.0 - to, phi, phi_2 / phi, (phi_2 / hh - 0.5) * 2.0 / phi};
  }

  [[nodiscard]] at::Tensor Predict(int i) const {
    const double from = sigmas_[static_cast<std::size_t>(i)],
                 to = sigmas_[static_cast<std::size_t>(i) + 1];
    const Coefficients c = Coefficient(from, to);
    at::Tensor next = last_sample_ * c.ratio - newest_ * (c.alpha * c.phi);
    if (order_ == 2) {
      const double before = sigmas_[static_cast<std::size_t>(i) - 1];
      const double r = (Lambda(before) - Lambda(from)) / (Lambda(to) - Lambda(from));
      next = next - (older_ - newest_) * (0.5 * c.alpha * c.phi / r);
    }
    return next;
  }

  /// Returns the sample at step `i` again, corrected with the clean prediction made at it.
  [[nodiscard]] at::Tensor Correct(const at::Tensor& clean, int i) const {
    const double from = sigmas_[static_cast<std::size_t>(i) - 1],
                 to = sigmas_[static_cast<std::size_t>(i)];
    const Coefficients c = Coefficient(from, to);
    const at::Tensor base = last_sample_ * c.ratio - newest_ * (c.alpha * c.phi);
    at::Tensor correction = (clean - newest_) * 0.5;
    if (order_ == 2) {
      // The two equations of order 2: rho1 + rho2 = b1 and r rho1 + rho2 = b2.
      const double r = (Lambda(sigmas_[static_cast<std::size_t>(i) - 2]) - Lambda(from)) /
                       (Lambda(to) - Lambda(from));
      const double rho1 = (c.b1 - c.b2) / (1.0 - r), rho2 = c.b1 - rho1;
      correction = (older_ - newest_) * (rho1 / r) + (clean - newest_) * rho2;
    }
    return base - correction * (c.alpha * c.phi);
  }

  const int solver_order_;
  int next_ = 0;
  int order_ = 1;  // The order of the last prediction, and of its correction.
  at::Tensor newest_, older_, last_sample_;
};

class FlowMatchEuler final : public Scheduler {
 public:
  FlowMatchEuler(const SchedulerConfig& config, int steps) {
    // The sigmas fall in equal steps between the extremes of the training schedule, which are
    // shifted already, and are then shifted again.
    const double train = config.num_train_timesteps;
    const double low = Shifted(1.0 / train, config.shift);
    for (int i = 0; i < steps; ++i) {
      const double even = steps == 1 ? 1.0 : 1.0 + (low - 1.0) * i / (steps - 1);
      sigmas_.push_back(static_cast<float>(Shifted(even, config.shift)));
      timesteps_.push_back(static_cast<float>(sigmas_.back() * train));
    }
    sigmas_.push_back(0.0);
  }

  at::Tensor Step(const at::Tensor& prediction, int i, const at::Tensor& sample) override {
    ONEPIECE_CHECK(i == next_ && static_cast<std::size_t>(i) < timesteps_.size());
    next_ = i + 1;
    const auto step = static_cast<std::size_t>(i);
    return sample + prediction * (sigmas_[step + 1] - sigmas_[step]);
  }

  [[nodiscard]] SchedulerState Save() const override { return {.steps_done = next_}; }

  absl::Status Restore(const SchedulerState& state) override {
    if (state.steps_done < 0 || state.steps_done > static_cast<int>(timesteps_.size())) {
      return BadState("not a state of this scheduler");
    }
    next_ = state.steps_done;
    return absl::OkStatus();
  }

 private:
  int next_ = 0;
};

void CheckUniPC(ConfigReader& reader) {
  if (reader.StringOr("prediction_type", "") != "flow_prediction" ||
      !reader.BoolOr("use_flow_sigmas", false)) {
    reader.Unimplemented("prediction_type",
                         "only flow_prediction with use_flow_sigmas is supported");
  }
  if (reader.StringOr("solver_type", "bh2") != "bh2")
    reader.Unimplemented("solver_type", "only bh2 is supported");
  if (!reader.BoolOr("predict_x0", true))
    reader.Unimplemented("predict_x0", "only true is supported");
  if (!reader.BoolOr("lower_order_final", true)) {
    reader.Unimplemented("lower_order_final", "only true is supported");
  }
  if (reader.BoolOr("thresholding", false))
    reader.Unimplemented("thresholding", "is not supported");
  for (const char* field : {"solver_p", "shift_terminal"}) {
    if (reader.Has(field)) reader.Unimplemented(field, "is not supported");
  }
  if (reader.BoolOr("use_dynamic_shifting", false))
    reader.Unimplemented("use_dynamic_shifting", "is not supported");
  if (reader.StringOr("final_sigmas_type", "zero") != "zero") {
    reader.Unimplemented("final_sigmas_type", "only zero is supported");
  }
  if (reader.Has("disable_corrector") &&
      !reader.Ints("disable_corrector", 1000, 0, kMaxExtent).empty()) {
    reader.Unimplemented("disable_corrector", "is not supported");
  }
}

void CheckEuler(ConfigReader& reader) {
  for (const char* field : {"use_dynamic_shifting", "invert_sigmas", "stochastic_sampling"}) {
    if (reader.BoolOr(field, false)) reader.Unimplemented(field, "is not supported");
  }
  if (reader.Has("shift_terminal")) reader.Unimplemented("shift_terminal", "is not supported");
}

}  // namespace

absl::StatusOr<SchedulerConfig> LoadSchedulerConfig(const std::string& dir) {
  const std::string path = dir + "/scheduler_config.json";
  ONEPIECE_ASSIGN_OR_RETURN(const nlohmann::json json, ReadJsonObject(path));
  ConfigReader reader(json);
  SchedulerConfig config;
  const std::string name = reader.StringOr("_class_name", "");
  for (const char* field : {"use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas"}) {
    if (reader.BoolOr(field, false)) reader.Unimplemented(field, "is not supported");
  }
  config.num_train_timesteps =
      static_cast<int>(reader.IntOr("num_train_timesteps", 2, 1'000'000, 1000));
  if (name == "UniPCMultistepScheduler") {
    CheckUniPC(reader);
    config.shift = reader.PositiveOr("flow_shift", 1.0);
    config.solver_order = static_cast<int>(reader.IntOr("solver_order", 1, 3, 2));
    if (config.solver_order == 3)
      reader.Unimplemented("solver_order", "only 1 and 2 are supported");
  } else if (name == "FlowMatchEulerDiscreteScheduler") {
    CheckEuler(reader);
    config.kind = SchedulerConfig::Kind::kFlowMatchEuler;
    config.shift = reader.PositiveOr("shift", 1.0);
  } else {
    reader.Unimplemented("_class_name",
                         "scheduler \"" + name.substr(0, 100) + "\" is not supported");
  }
  if (!reader.status().ok()) return base::Annotate(reader.status(), path);
  return config;
}

absl::StatusOr<std::unique_ptr<Scheduler>> MakeScheduler(const SchedulerConfig& config, int steps) {
  if (steps < 1 || steps > kMaxSteps) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_STEPS",
                           "steps must be from 1 to " + std::to_string(kMaxSteps),
                           {{"field", "steps"}});
  }
  if (config.kind == SchedulerConfig::Kind::kUniPC) return std::make_unique<UniPC>(config, steps);
  return std::make_unique<FlowMatchEuler>(config, steps);
}

}  // namespace onepiece::model
