// The process of a C++ side: ours or the straight port.
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>

#include "cluster/base/status.h"
#include "stages/model/weights.h"
#include "stages/tensor/compute.h"
#include "stages/tensor/torch_convert.h"
#include "stages/wan/autoencoder.h"
#include "stages/wan/transformer_3d.h"
#include "stages/wan/umt5_encoder.h"
#include "tests/bench/wan/port.h"
#include "tests/bench/wan/side.h"

namespace onepiece::bench {
namespace {

using Tensors = std::map<std::string, at::Tensor>;
/// Does one run. Throws only exceptions that Guarded turns into a status.
using Compute = std::function<absl::StatusOr<at::Tensor>()>;

std::int64_t StatusBytes(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field)) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return 0;
}

absl::StatusOr<Tensors> ReadInputs(const std::string& path) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto file, tensor::SafetensorsFile::Open(path));
  Tensors tensors;
  for (const tensor::TensorEntry& entry : file->index().tensors) {
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor view, tensor::ViewTensor(file, entry));
    tensors.emplace(entry.name, view.clone());
  }
  return tensors;
}

template <typename Model>
auto Share(Model model) {
  return std::make_shared<const Model>(std::move(model));
}

absl::StatusOr<Compute> Ours(const std::string& dir, const std::string& component,
                             const Tensors& in) {
  if (component == "transformer") {
    ONEPIECE_ASSIGN_OR_RETURN(auto loaded, wan::WanTransformer::Load(dir));
    const auto model = Share(std::move(loaded));
    // Keys and values of the text are computed once a job, as in the diffusion stage.
    ONEPIECE_ASSIGN_OR_RETURN(const auto text, model->Prepare(in.at("encoder_hidden_states")));
    const double timestep = in.at("timestep").to(at::kDouble).item<double>();
    return [=, hidden = in.at("hidden_states")] { return model->Forward(hidden, timestep, text); };
  }
  if (component == "text_encode") {
    ONEPIECE_ASSIGN_OR_RETURN(auto loaded, wan::UMT5Encoder::Load(dir));
    return [model = Share(std::move(loaded)), ids = in.at("input_ids"),
            mask = in.at("attention_mask")] { return model->Forward(ids, mask); };
  }
  ONEPIECE_ASSIGN_OR_RETURN(auto loaded, wan::WanVae::Load(dir));
  const auto model = Share(std::move(loaded));
  if (component == "vae_decode") return [model, z = in.at("z")] { return model->Decode(z); };
  return [model, video = in.at("video")]() -> absl::StatusOr<at::Tensor> {
    ONEPIECE_ASSIGN_OR_RETURN(const auto posterior, model->Encode(video));
    return posterior.mean;
  };
}

absl::StatusOr<Compute> Port(const std::string& dir, const std::string& component,
                             const Tensors& in) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto files, model::ComponentFiles::Open(dir));
  auto model = std::make_shared<port::Model>();
  model->config = files.config();
  for (const auto& [name, location] : files.tensors()) {
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor view,
                              tensor::ViewTensor(location.file, *location.entry));
    model->weights.emplace(name, view.to(at::kFloat, false, true));
  }
  std::function<at::Tensor()> run;
  if (component == "transformer") {
    run = [model, in] {
      return port::Transformer(*model, in.at("hidden_states"),
                               in.at("timestep").to(at::kDouble).item<double>(),
                               in.at("encoder_hidden_states"));
    };
  } else if (component == "text_encode") {
    run = [model, in] {
      return port::Encoder(*model, in.at("input_ids"), in.at("attention_mask"));
    };
  } else if (component == "vae_decode") {
    run = [model, in] { return port::VaeDecode(*model, in.at("z")); };
  } else {
    run = [model, in] { return port::VaeEncode(*model, in.at("video")); };
  }
  return [run] { return tensor::Guarded([&]() -> absl::StatusOr<at::Tensor> { return run(); }); };
}

absl::Status Answer(const std::string& line, const Compute& compute, std::int64_t base) {
  const std::size_t space = line.find(' ');
  const std::string verb = line.substr(0, space);
  const std::string argument = space == std::string::npos ? "" : line.substr(space + 1);
  if (verb == "run") {
    const int count = std::stoi(argument);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) ONEPIECE_RETURN_IF_ERROR(compute().status());
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("%.9f\n", seconds.count() / count);
  } else if (verb == "output") {
    ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor result, compute());
    const at::Tensor output = result.to(at::kFloat).contiguous();
    std::ofstream(argument, std::ios::binary)
        .write(static_cast<const char*>(output.data_ptr()),
               static_cast<std::streamsize>(output.nbytes()));
    std::printf("ok\n");
  } else {
    std::printf("%lld\n", static_cast<long long>(StatusBytes("VmHWM:") - base));
  }
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::Status Serve(const std::vector<std::string>& arguments) {
  if (arguments.size() != 5) return absl::InvalidArgumentError("side: five arguments");
  tensor::SetComputeThreads(std::stoi(arguments[4]));
  std::ofstream("/proc/self/clear_refs") << "5";  // Resets VmHWM.
  const std::int64_t base = StatusBytes("VmRSS:");
  ONEPIECE_ASSIGN_OR_RETURN(const Tensors inputs, ReadInputs(arguments[3]));
  const auto make = arguments[0] == "ours" ? Ours : Port;
  ONEPIECE_ASSIGN_OR_RETURN(const Compute compute, make(arguments[1], arguments[2], inputs));
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    ONEPIECE_RETURN_IF_ERROR(Answer(line, compute, base));
  }
  return absl::OkStatus();
}

}  // namespace

int RunSide(const std::vector<std::string>& arguments) {
  const absl::Status status = Serve(arguments);
  if (!status.ok()) std::fprintf(stderr, "onepiece-bench-wan: %s\n", status.ToString().c_str());
  return status.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace onepiece::bench
