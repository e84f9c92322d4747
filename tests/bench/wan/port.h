// The Wan components as the reference writes them, operation by operation: what a user of LibTorch
// gets who ports the Python modules one to one. What `onepiece bench wan` compares with; nothing
// here is tuned.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace onepiece::bench::port {

/// One component folder, read whole. F32.
struct Model {
  nlohmann::json config;
  std::map<std::string, at::Tensor> weights;

  [[nodiscard]] const at::Tensor& At(const std::string& name) const { return weights.at(name); }
  [[nodiscard]] std::int64_t Int(const char* name) const {
    return config.at(name).get<std::int64_t>();
  }
};

/// Linear layer `name`, with its bias when it has one.
at::Tensor Linear(const Model& model, const std::string& name, const at::Tensor& x);
/// softmax(q kᵀ / sqrt(dim) + bias) v over [batch, heads, tokens, dim].
at::Tensor Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                     const at::Tensor& bias = {});
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

/// Inputs and outputs as the components' own (stages/wan).
at::Tensor Transformer(const Model& model, const at::Tensor& hidden, double timestep,
                       const at::Tensor& text);
at::Tensor Encoder(const Model& model, const at::Tensor& ids, const at::Tensor& mask);
at::Tensor VaeDecode(const Model& model, const at::Tensor& z);
at::Tensor VaeEncode(const Model& model, const at::Tensor& video);  ///< The mean.

}  // namespace onepiece::bench::port
