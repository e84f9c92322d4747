// The Wan components as the reference writes them, operation by operation, as a user of LibTorch
// would port the Python modules one to one. `onepiece bench wan` compares with this port. Nothing
// here is tuned.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace onepiece::bench::port {

/// One component folder, read as a whole, in F32.
struct Model {
  nlohmann::json config;
  std::map<std::string, at::Tensor> weights;

  [[nodiscard]] const at::Tensor& At(const std::string& name) const { return weights.at(name); }
  [[nodiscard]] std::int64_t Int(const char* name) const {
    return config.at(name).get<std::int64_t>();
  }
};

/// Applies the linear layer `name`, with its bias if it has one.
at::Tensor Linear(const Model& model, const std::string& name, const at::Tensor& x);
/// Returns softmax(q kᵀ / sqrt(dim) + bias) v over [batch, heads, tokens, dim].
at::Tensor Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                     const at::Tensor& bias = {});
at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

/// Inputs and outputs are those of the components (stages/wan).
at::Tensor Transformer(const Model& model, const at::Tensor& hidden, double timestep,
                       const at::Tensor& text);
at::Tensor Encoder(const Model& model, const at::Tensor& ids, const at::Tensor& mask);
at::Tensor VaeDecode(const Model& model, const at::Tensor& z);
at::Tensor VaeEncode(const Model& model, const at::Tensor& video);  ///< The mean.

}  // namespace onepiece::bench::port
