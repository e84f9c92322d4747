// A component folder of a diffusers model: config.json and its safetensors, one file or sharded by
// an index.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stages/tensor/safetensors.h"

namespace onepiece::model {

/// A tensor that a configuration calls for.
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
};

/// The files of one component, headers checked, weights not read. Immutable; copies share the
/// mappings.
class ComponentFiles {
 public:
  struct Location {
    std::shared_ptr<const tensor::SafetensorsFile> file;
    const tensor::TensorEntry* entry = nullptr;  ///< Lives in `file`.
  };

  /// Reads config.json and maps the weights: the shards that *.safetensors.index.json lists, or
  /// else the one
  /// *.safetensors of the folder (io.safetensors aside).
  /// Errors: NOT_FOUND; INVALID_ARGUMENT BAD_CONFIG, BAD_WEIGHTS or BAD_SAFETENSORS.
  static absl::StatusOr<ComponentFiles> Open(const std::string& dir);

  /// For a model that holds copies of the weights: gives back the memory that reading took.
  void Forget() const;

  [[nodiscard]] const std::string& dir() const { return dir_; }
  /// All that was read: config.json, the index where there is one, the weights by name.
  [[nodiscard]] const std::vector<std::string>& paths() const { return paths_; }
  [[nodiscard]] const nlohmann::json& config() const { return *config_; }
  /// ClassName of config.json.
  [[nodiscard]] const std::string& class_name() const { return class_name_; }
  [[nodiscard]] const std::map<std::string, Location, std::less<>>& tensors() const {
    return tensors_;
  }

 private:
  std::string dir_, class_name_;
  std::vector<std::string> paths_;
  std::shared_ptr<const nlohmann::json> config_;
  std::map<std::string, Location, std::less<>> tensors_;
};

/// Makes another weight of one that was loaded, or returns it as it is. Never writes into it.
using WeightChange = std::function<at::Tensor(const std::string& name, const at::Tensor& weight)>;

/// Hands a model its weights by name. A model binds twice with the same code: first with a
/// recorder, which collects what the configuration calls for, then with the files, once these are
/// known to fit.
class WeightBinder {
 public:
  /// A recorder: Get returns undefined tensors.
  WeightBinder() = default;
  /// Loads tensors on `device`: views of the mapped file where it holds the type that is asked for.
  /// `products` is the element type of what GetFactor hands out: kFloat or kBFloat16.
  /// `change`, when there is one, is asked for each weight.
  WeightBinder(const ComponentFiles& files, at::Device device, at::ScalarType products = at::kFloat,
               WeightChange change = {})
      : files_(&files), device_(device), products_(products), change_(std::move(change)) {}

  /// Both read every value once, to refuse those that are not finite. F32: what is to be exact
  /// whatever the precision of products.
  at::Tensor Get(const std::string& name, std::vector<std::int64_t> shape) {
    return GetAs(name, std::move(shape), at::kFloat);
  }
  /// A weight of a product, in the precision of products.
  at::Tensor GetFactor(const std::string& name, std::vector<std::int64_t> shape) {
    return GetAs(name, std::move(shape), products_);
  }

  [[nodiscard]] const std::vector<TensorSpec>& specs() const { return specs_; }
  /// Bytes of the weights handed out.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// The first error of Get.
  [[nodiscard]] const absl::Status& status() const { return status_; }

 private:
  at::Tensor GetAs(const std::string& name, std::vector<std::int64_t> shape, at::ScalarType type);

  const ComponentFiles* files_ = nullptr;
  at::Device device_ = at::kCPU;
  at::ScalarType products_ = at::kFloat;
  WeightChange change_;
  std::vector<TensorSpec> specs_;
  std::int64_t bytes_ = 0;
  absl::Status status_;
};

/// The element type of LoadOptions::precision. Errors: INVALID_ARGUMENT BAD_PRECISION when there is
/// no such precision, or the device cannot compute in it.
absl::StatusOr<at::ScalarType> ParsePrecision(std::string_view precision, at::Device device);

/// Whether the files hold exactly these tensors in these shapes; names in `ignored` may be there
/// too. Errors: INVALID_ARGUMENT BAD_WEIGHTS naming the tensors that are missing, unknown or of
/// another shape.
absl::Status CheckFit(const ComponentFiles& files, const std::vector<TensorSpec>& specs,
                      const std::vector<std::string>& ignored = {});

/// The _class_name of a config.json, or else the first of its architectures, or empty.
std::string ClassName(const nlohmann::json& config);

/// Reads a JSON object of at most `max_bytes`. Errors: NOT_FOUND; INVALID_ARGUMENT BAD_CONFIG.
absl::StatusOr<nlohmann::json> ReadJsonObject(const std::string& path,
                                              std::int64_t max_bytes = 1 << 20);

}  // namespace onepiece::model
