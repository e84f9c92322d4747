#include "stages/wan/verify_component.h"

#include <charconv>
#include <filesystem>
#include <map>
#include <set>

#include "cluster/base/status.h"
#include "stages/model/prepare_load.h"
#include "stages/model/schedulers.h"
#include "stages/tensor/compute.h"
#include "stages/tensor/device_copy.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/autoencoder.h"
#include "stages/wan/clip_vision.h"
#include "stages/wan/transformer_3d.h"
#include "stages/wan/umt5_encoder.h"

namespace onepiece::wan {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

absl::Status BadGolden(const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_GOLDEN",
                         "io.safetensors: " + what);
}

/// The recorded tensors, and the results of the comparison.
class Comparison {
 public:
  Comparison(Tensors recorded, std::vector<std::string> order, double tolerance, at::Device device)
      : recorded_(std::move(recorded)),
        order_(std::move(order)),
        tolerance_(tolerance),
        device_(device) {}

  [[nodiscard]] at::Device device() const { return device_; }
  [[nodiscard]] const std::vector<std::string>& names() const { return order_; }

  /// Returns a recorded input on device(), in F32 unless it holds integers.
  absl::StatusOr<at::Tensor> Input(const std::string& name) {
    const auto found = recorded_.find(name);
    if (found == recorded_.end()) return BadGolden("there is no input \"" + name + "\"");
    inputs_.insert(name);
    const bool integers = at::isIntegralType(found->second.scalar_type(), true);
    return tensor::ToDevice(found->second.to(integers ? at::kLong : at::kFloat), device_);
  }

  /// Compares a computed output. If `where` is given, compares only positions where it is not 0.
  /// Skips outputs that are not recorded.
  absl::Status Compare(const std::string& name, const at::Tensor& computed,
                       const at::Tensor& where = {}) {
    const auto found = recorded_.find(name);
    if (found == recorded_.end()) return absl::OkStatus();
    if (found->second.sizes() != computed.sizes()) {
      return BadGolden("output \"" + name + "\" has another shape than what was computed");
    }
    at::Tensor reference = found->second.to(at::kDouble);
    at::Tensor difference = computed.to(at::kCPU, at::kDouble) - reference;
    if (where.defined()) {
      const at::Tensor mask = where.to(at::kCPU, at::kDouble);
      difference = difference * mask;
      reference = reference * mask;
    }
    const double norm = reference.norm().item<double>(), error = difference.norm().item<double>();
    errors_[name] = norm > 0 ? error / norm : error;
    return absl::OkStatus();
  }

  [[nodiscard]] sdk::VerifyReport Report(const std::string& component) const {
    sdk::VerifyReport report;
    report.component = component;
    for (const std::string& name : order_) {
      if (inputs_.contains(name)) continue;
      ++report.total;
      const auto error = errors_.find(name);
      if (error == errors_.end()) {
        report.skipped.push_back(name);
      } else {
        report.outputs.push_back({name, error->second, tolerance_});
      }
    }
    return report;
  }

 private:
  const Tensors recorded_;
  const std::vector<std::string> order_;  // The order of the file.
  const double tolerance_;
  const at::Device device_;
  std::set<std::string> inputs_;
  std::map<std::string, double> errors_;
};

absl::StatusOr<Comparison> OpenRecording(const std::string& dir, double tolerance,
                                         at::Device device) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto file,
                            tensor::SafetensorsFile::Open(dir + "/io.safetensors"));
  Tensors recorded;
  std::vector<std::string> order;
  for (const tensor::TensorEntry& entry : file->index().tensors) {
    ONEPIECE_ASSIGN_OR_RETURN(recorded[entry.name], tensor::ViewTensor(file, entry));
    order.push_back(entry.name);
  }
  return Comparison(std::move(recorded), std::move(order), tolerance, device);
}

absl::Status VerifyTransformer(const std::string& dir, Comparison& comparison) {
  ONEPIECE_ASSIGN_OR_RETURN(const WanTransformer model,
                            WanTransformer::Load(dir, comparison.device()));
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor hidden, comparison.Input("hidden_states"));
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor timestep, comparison.Input("timestep"));
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor text, comparison.Input("encoder_hidden_states"));
  const std::int64_t batch = hidden.dim() > 0 ? hidden.size(0) : 0;
  if (timestep.numel() == 0 || (timestep.numel() != 1 && timestep.numel() != batch) ||
      text.dim() != 3 || text.size(0) != batch)
    return BadGolden("\"timestep\" and \"encoder_hidden_states\" do not fit the batch");
  at::Tensor image;
  if (model.config().image_dim > 0) {
    ONEPIECE_ASSIGN_OR_RETURN(image, comparison.Input("encoder_hidden_states_image"));
  }
  // Computes one by one, because each item of a batch may have a timestep of its own.
  std::vector<at::Tensor> samples;
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::int64_t images = image.defined() ? image.size(0) / batch : 0;
    ONEPIECE_ASSIGN_OR_RETURN(
        const auto context,
        model.Prepare(text.narrow(0, i, 1),
                      image.defined() ? image.narrow(0, i * images, images) : image));
    const at::Tensor when = timestep.flatten()[timestep.numel() == 1 ? 0 : i];
    ONEPIECE_ASSIGN_OR_RETURN(
        samples.emplace_back(),
        model.Forward(hidden.narrow(0, i, 1), when.to(at::kDouble).item<double>(), context));
  }
  const at::Tensor sample = at::cat(samples);
  return comparison.Compare("sample", sample);
}

absl::Status VerifyEncoder(const std::string& dir, Comparison& comparison) {
  ONEPIECE_ASSIGN_OR_RETURN(const UMT5Encoder model, UMT5Encoder::Load(dir, comparison.device()));
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor ids, comparison.Input("input_ids"));
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor mask, comparison.Input("attention_mask"));
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor hidden, model.Forward(ids, mask));
  return comparison.Compare("last_hidden_state", hidden, mask.unsqueeze(-1));
}

absl::Status VerifyImageEncoder(const std::string& dir, Comparison& comparison) {
  ONEPIECE_ASSIGN_OR_RETURN(const ClipVision model, ClipVision::Load(dir, comparison.device()));
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor pixels, comparison.Input("pixel_values"));
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor hidden, model.Forward(pixels));
  return comparison.Compare("hidden_states.-2", hidden);
}

absl::Status VerifyVae(const std::string& dir, Comparison& comparison) {
  ONEPIECE_ASSIGN_OR_RETURN(const WanVae model, WanVae::Load(dir, comparison.device()));
  for (const std::string& name : comparison.names()) {
    if (name.starts_with("video.")) {
      const std::string suffix = name.substr(5);
      ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor video, comparison.Input(name));
      ONEPIECE_ASSIGN_OR_RETURN(const auto posterior, model.Encode(video));
      ONEPIECE_RETURN_IF_ERROR(comparison.Compare("latent_mean" + suffix, posterior.mean));
      ONEPIECE_RETURN_IF_ERROR(comparison.Compare("latent_logvar" + suffix, posterior.logvar));
    } else if (name.starts_with("z.")) {
      ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor z, comparison.Input(name));
      ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor video, model.Decode(z));
      ONEPIECE_RETURN_IF_ERROR(comparison.Compare("decoded" + name.substr(1), video));
    }
  }
  return absl::OkStatus();
}

/// Reads "unipc.12.5.0", KIND.STEPS.SHIFT.
///
/// Errors: INVALID_ARGUMENT BAD_GOLDEN.
absl::StatusOr<std::pair<model::SchedulerConfig, int>> ParseRun(const std::string& run) {
  model::SchedulerConfig config;
  int steps = 0;
  const std::size_t dot = run.find('.');
  const std::string kind = run.substr(0, dot);
  bool good = dot != std::string::npos && (kind == "unipc" || kind == "euler");
  if (good) {
    const char* end = run.data() + run.size();
    const auto [at, error] = std::from_chars(run.data() + dot + 1, end, steps);
    good = error == std::errc() && at != end && *at == '.';
    if (good) {
      const auto [stop, bad] = std::from_chars(at + 1, end, config.shift);
      good = bad == std::errc() && stop == end && config.shift > 0;
    }
  }
  if (!good)
    return BadGolden("\"" + run.substr(0, 100) + "\" is not KIND.STEPS.SHIFT of unipc or euler");
  config.kind = kind == "unipc" ? model::SchedulerConfig::Kind::kUniPC
                                : model::SchedulerConfig::Kind::kFlowMatchEuler;
  return std::make_pair(config, steps);
}

absl::Status VerifyRun(const std::string& run, const at::Tensor& matrix, Comparison& comparison) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto setting, ParseRun(run));
  ONEPIECE_ASSIGN_OR_RETURN(const auto scheduler,
                            model::MakeScheduler(setting.first, setting.second));
  ONEPIECE_ASSIGN_OR_RETURN(at::Tensor sample, comparison.Input(run + ".x0"));
  std::vector<at::Tensor> trajectory;
  for (int i = 0; i < setting.second; ++i) {
    // The recordings use this stand-in for a model: v = tanh(A x over channels) (1 + t / 1000).
    const double t = scheduler->timesteps()[static_cast<std::size_t>(i)];
    const at::Tensor prediction =
        at::einsum("ij,bj...->bi...", {matrix, sample}).tanh() * (1.0 + t / 1000.0);
    sample = scheduler->Step(prediction, i, sample);
    trajectory.push_back(sample);
  }
  const at::TensorOptions options(at::kDouble);
  ONEPIECE_RETURN_IF_ERROR(
      comparison.Compare(run + ".timesteps", at::tensor(scheduler->timesteps(), options)));
  ONEPIECE_RETURN_IF_ERROR(
      comparison.Compare(run + ".sigmas", at::tensor(scheduler->sigmas(), options)));
  return comparison.Compare(run + ".trajectory", at::stack(trajectory));
}

absl::Status VerifySchedulers(Comparison& comparison) {
  ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor matrix, comparison.Input("A"));
  for (const std::string& name : comparison.names()) {
    if (!name.ends_with(".x0")) continue;
    ONEPIECE_RETURN_IF_ERROR(VerifyRun(name.substr(0, name.size() - 3), matrix, comparison));
  }
  return absl::OkStatus();
}

absl::Status VerifyClass(const std::string& dir, const std::string& name, Comparison& comparison) {
  if (name == "WanTransformer3DModel") return VerifyTransformer(dir, comparison);
  if (name == "AutoencoderKLWan") return VerifyVae(dir, comparison);
  if (name == "UMT5EncoderModel") return VerifyEncoder(dir, comparison);
  if (name == "CLIPVisionModel") return VerifyImageEncoder(dir, comparison);
  if (name == "scheduler") return VerifySchedulers(comparison);
  return base::MakeError(absl::StatusCode::kUnimplemented, "UNSUPPORTED_COMPONENT",
                         dir + ": " + name.substr(0, 100) + " is not supported yet",
                         {{"component", name}});
}

}  // namespace

absl::StatusOr<sdk::VerifyReport> VerifyComponent(const std::string& dir, double tolerance,
                                                  int threads, const std::string& device_name) {
  ONEPIECE_ASSIGN_OR_RETURN(
      const at::Device device,
      model::PrepareLoad({.device = device_name, .model_dir = dir, .threads = threads}));
  std::string component = "scheduler";
  if (std::filesystem::exists(dir + "/config.json")) {
    ONEPIECE_ASSIGN_OR_RETURN(const model::ComponentFiles files, model::ComponentFiles::Open(dir));
    component = files.class_name();
  }
  return tensor::Guarded([&]() -> absl::StatusOr<sdk::VerifyReport> {
    ONEPIECE_ASSIGN_OR_RETURN(Comparison comparison, OpenRecording(dir, tolerance, device));
    ONEPIECE_RETURN_IF_ERROR(VerifyClass(dir, component, comparison));
    return comparison.Report(component);
  });
}

}  // namespace onepiece::wan
