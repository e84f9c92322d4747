#include "stages/finetune/trainer.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <exception>
#include <utility>

#include "cluster/base/status.h"
#include "nlohmann/json.hpp"
#include "stages/finetune/clips.h"
#include "stages/model/noise.h"
#include "stages/model/schedulers.h"
#include "stages/model/weights.h"
#include "stages/tensor/compute.h"
#include "stages/wan/family.h"
#include "stages/wan/generation.h"
#include "stages/wan/model_folder.h"

namespace onepiece::finetune {
namespace {

constexpr double kLearningRate = 1e-4, kBeta1 = 0.9, kBeta2 = 0.999, kEpsilon = 1e-8,
                 kWeightDecay = 0.01, kMaxGradient = 1.0;
constexpr double kNoTextShare = 0.1;  // Guidance also needs predictions without text.
constexpr double kTimesteps = 1000;

/// Makes the generator of one step alone, so that a resumed run draws the same numbers as an
/// uninterrupted one.
at::Generator GeneratorOf(std::int64_t seed, std::int64_t step) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;
  const auto mixed = (static_cast<std::uint64_t>(seed) * kOdd + static_cast<std::uint64_t>(step));
  return model::MakeGenerator(static_cast<std::int64_t>((mixed * kOdd) >> 1));
}

double Uniform(const at::Generator& generator) {
  return at::rand({1}, generator, at::TensorOptions(at::kDouble)).item<double>();
}

template <typename T>
absl::Status LoadInto(std::unique_ptr<T>& target, absl::StatusOr<T> loaded) {
  if (!loaded.ok()) return loaded.status();
  target = std::make_unique<T>(*std::move(loaded));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Open(const TrainerOptions& options) {
  std::unique_ptr<Trainer> trainer(new Trainer(options));
  try {
    ONEPIECE_RETURN_IF_ERROR(trainer->Load());
  } catch (const std::exception& error) {
    return tensor::FromException(error);
  }
  return trainer;
}

absl::Status Trainer::Load() {
  tensor::SetComputeThreads(options_.threads);
  ONEPIECE_RETURN_IF_ERROR(wan::CheckModelFolder(options_.model_dir));
  state_.seed = options_.seed;
  std::string folder = options_.model_dir + "/transformer";
  if (!options_.checkpoint.empty()) {
    ONEPIECE_ASSIGN_OR_RETURN(state_, ReadCheckpoint(options_.checkpoint));
    folder = TransformerFolder(options_.checkpoint);
  }
  const auto trained = [&](const std::string& name, const at::Tensor& weight) {
    at::Tensor own = weight.clone().set_requires_grad(true);
    weights_[name] = own;
    return own;
  };
  ONEPIECE_RETURN_IF_ERROR(
      LoadInto(transformer_, wan::WanTransformer::Load(folder, at::kCPU, at::kFloat, trained)));
  if (transformer_->config().in_channels != transformer_->config().out_channels)
    return absl::UnimplementedError(options_.model_dir + ": only text-to-video models are trained");
  ONEPIECE_ASSIGN_OR_RETURN(const auto files, model::ComponentFiles::Open(folder));
  config_ = files.config().dump(2) + "\n";
  for (const auto& [name, weight] : weights_) {
    for (Tensors* moments : {&state_.mean, &state_.square}) {
      if (options_.checkpoint.empty()) (*moments)[name] = at::zeros_like(weight).detach();
      if (moments->count(name) == 0 || (*moments)[name].sizes() != weight.sizes()) {
        return base::MakeError(absl::StatusCode::kFailedPrecondition, "OTHER_RUN",
                               options_.checkpoint + ": its optimizer lacks " + name);
      }
    }
  }
  if (state_.seed != options_.seed) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "OTHER_RUN",
                           options_.checkpoint + " was begun with seed " +
                               std::to_string(state_.seed) + ": use that, or another folder");
  }
  ONEPIECE_RETURN_IF_ERROR(LoadInto(vae_, wan::WanVae::Load(options_.model_dir + "/vae")));
  ONEPIECE_RETURN_IF_ERROR(
      LoadInto(tokenizer_, model::Tokenizer::Load(options_.model_dir + "/tokenizer")));
  ONEPIECE_RETURN_IF_ERROR(
      LoadInto(encoder_, wan::UMT5Encoder::Load(options_.model_dir + "/text_encoder")));
  ONEPIECE_ASSIGN_OR_RETURN(const auto scheduler,
                            model::LoadSchedulerConfig(options_.model_dir + "/scheduler"));
  shift_ = scheduler.shift;
  ONEPIECE_ASSIGN_OR_RETURN(no_text_, EmbedText(""));
  return absl::OkStatus();
}

absl::StatusOr<at::Tensor> Trainer::EmbedText(const std::string& text) const {
  ONEPIECE_ASSIGN_OR_RETURN(const auto ids, wan::PromptIds(*tokenizer_, text));
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor embeds, wan::EncodeIds(*encoder_, ids, at::kCPU));
  // Autograd may not keep a tensor that was made in inference mode. Padding makes a new one.
  return at::constant_pad_nd(embeds, {0, 0, 0, wan::kMaxSequenceLength - embeds.size(1)}).clone();
}

absl::StatusOr<Trainer::Example> Trainer::Encode(std::int64_t clip) const {
  const Clip made = MakeClip(clip);
  Example example;
  ONEPIECE_ASSIGN_OR_RETURN(const auto posterior, vae_->Encode(made.video));
  example.latents = vae_->Normalise(posterior.mean).clone();
  ONEPIECE_ASSIGN_OR_RETURN(example.text, EmbedText(made.caption));
  return example;
}

absl::StatusOr<const Trainer::Example*> Trainer::Find(std::int64_t clip) {
  auto found = examples_.find(clip);
  if (found == examples_.end()) {
    ONEPIECE_ASSIGN_OR_RETURN(Example example, Encode(clip));
    found = examples_.emplace(clip, std::move(example)).first;
  }
  return &found->second;
}

absl::StatusOr<double> Trainer::Learn(const at::Generator& generator, double level) {
  const std::int64_t clip =
      at::randint(kClips, {1}, generator, at::TensorOptions(at::kLong)).item<std::int64_t>();
  const bool with_text = Uniform(generator) >= kNoTextShare;
  ONEPIECE_ASSIGN_OR_RETURN(const Example* const example, Find(clip));
  const at::Tensor& x0 = example->latents;
  const at::Tensor noise = model::InitialLatents(generator, x0.sizes());
  const double sigma = shift_ * level / (1 + (shift_ - 1) * level);
  ONEPIECE_ASSIGN_OR_RETURN(const auto context,
                            transformer_->Prepare(with_text ? example->text : no_text_));
  ONEPIECE_ASSIGN_OR_RETURN(
      const at::Tensor flow,
      transformer_->Forward((1 - sigma) * x0 + sigma * noise, kTimesteps * sigma, context));
  const at::Tensor loss = at::mse_loss(flow, noise - x0);
  // Gradients add up over the batch, so each clip adds its share of the mean.
  (loss / kBatch).backward();
  return loss.item<double>();
}

void Trainer::DropGradients() {
  for (auto& [name, weight] : weights_) weight.mutable_grad() = at::Tensor();
}

void Trainer::Update() {
  const at::NoGradGuard guard;
  double square = 0;
  for (const auto& [name, weight] : weights_) {
    if (weight.grad().defined()) square += weight.grad().square().sum().item<double>();
  }
  const double scale = std::min(1.0, kMaxGradient / (std::sqrt(square) + 1e-12));
  // The count begins with 1: at 0 both corrections would be zero, and they are divisors.
  const auto step = static_cast<double>(++state_.step);
  const double correction1 = 1 - std::pow(kBeta1, step), correction2 = 1 - std::pow(kBeta2, step);
  for (auto& [name, weight] : weights_) {
    if (!weight.grad().defined()) continue;
    const at::Tensor gradient = weight.grad() * scale;
    at::Tensor &mean = state_.mean[name], &variance = state_.square[name];
    mean.mul_(kBeta1).add_(gradient, 1 - kBeta1);
    variance.mul_(kBeta2).addcmul_(gradient, gradient, 1 - kBeta2);
    // AdamW lets the weight decay on its own, not through the moments.
    weight.mul_(1 - kLearningRate * kWeightDecay);
    weight.addcdiv_(mean, (variance / correction2).sqrt_().add_(kEpsilon),
                    -kLearningRate / correction1);
  }
}

absl::StatusOr<double> Trainer::Step(const std::function<bool()>& stop) {
  absl::StatusOr<double> loss;
  try {
    loss = StepUnguarded(stop);
  } catch (const std::exception& error) {
    loss = tensor::FromException(error);
  }
  // This also runs after an error: the gradients of a step that did not happen must not count in
  // the next one.
  DropGradients();
  return loss;
}

absl::StatusOr<double> Trainer::StepUnguarded(const std::function<bool()>& stop) {
  tensor::SetComputeThreads(options_.threads);
  const c10::AutoGradMode recording(true);
  const at::Generator generator = GeneratorOf(state_.seed, state_.step);
  const double first = Uniform(generator);
  double sum = 0;
  for (int i = 0; i < kBatch; ++i) {
    if (stop()) return absl::CancelledError("the training was told to stop");
    ONEPIECE_ASSIGN_OR_RETURN(const double loss, Learn(generator, (i + first) / kBatch));
    sum += loss;
  }
  Update();
  return sum / kBatch;
}

absl::Status Trainer::Save(const CheckpointFolder& folder) const {
  return folder.Write(state_, weights_, config_);
}

}  // namespace onepiece::finetune
