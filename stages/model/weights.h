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

/// The files of one component. Headers are checked, weights are not read. Copies share the
/// mappings.
///
/// Threading: immutable.
class ComponentFiles {
 public:
  struct Location {
    std::shared_ptr<const tensor::SafetensorsFile> file;
    const tensor::TensorEntry* entry = nullptr;  ///< Lives in `file`.
  };

  /// Reads config.json and maps the weights: the shards that *.safetensors.index.json lists, or
  /// else the only *.safetensors of the folder (io.safetensors does not count).
  ///
  /// Errors: NOT_FOUND; INVALID_ARGUMENT BAD_CONFIG, BAD_WEIGHTS or BAD_SAFETENSORS.
  static absl::StatusOr<ComponentFiles> Open(const std::string& dir);

  /// Gives back the memory that reading took. For models that hold copies of the weights.
  void Forget() const;

  [[nodiscard]] const std::string& dir() const { return dir_; }
  /// Returns all files that were read: config.json, the index if there is one, the weights by name.
  [[nodiscard]] const std::vector<std::string>& paths() const { return paths_; }
  [[nodiscard]] const nlohmann::json& config() const { return *config_; }
  /// Returns ClassName of config.json.
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

/// Returns another weight for one that was loaded, or the same one. Never writes into its argument.
using WeightChange = std::function<at::Tensor(const std::string& name, const at::Tensor& weight)>;

/// Hands a model its weights by name. A model binds twice with the same code: first with a
/// recorder, which collects the tensors that the configuration calls for, then with the files,
/// after a check that they fit.
class WeightBinder {
 public:
  /// Makes a recorder. Its Get returns undefined tensors.
  WeightBinder() = default;
  /// Loads tensors on `device`. They are views of the mapped file if it holds the requested type.
  /// `products` is the element type of the tensors of GetFactor: kFloat or kBFloat16. `change`, if
  /// given, is called for each weight.
  WeightBinder(const ComponentFiles& files, at::Device device, at::ScalarType products = at::kFloat,
               WeightChange change = {})
      : files_(&files), device_(device), products_(products), change_(std::move(change)) {}

  /// Returns a weight in F32, which stays exact whatever the precision of products. Get and
  /// GetFactor read every value once, to refuse values that are not finite.
  at::Tensor Get(const std::string& name, std::vector<std::int64_t> shape) {
    return GetAs(name, std::move(shape), at::kFloat);
  }
  /// Returns a weight of a matrix product, in the precision of products.
  at::Tensor GetFactor(const std::string& name, std::vector<std::int64_t> shape) {
    return GetAs(name, std::move(shape), products_);
  }

  [[nodiscard]] const std::vector<TensorSpec>& specs() const { return specs_; }
  /// Returns the bytes of the weights handed out.
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  /// Returns the first error of Get.
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

/// Returns the element type of LoadOptions::precision.
///
/// Errors: INVALID_ARGUMENT BAD_PRECISION if there is no such precision, or the device cannot
/// compute in it.
absl::StatusOr<at::ScalarType> ParsePrecision(std::string_view precision, at::Device device);

/// Checks that the files hold exactly these tensors in these shapes. They may also hold the names
/// in `ignored`.
///
/// Errors: INVALID_ARGUMENT BAD_WEIGHTS, which names the tensors that are missing, unknown or of
/// another shape.
absl::Status CheckFit(const ComponentFiles& files, const std::vector<TensorSpec>& specs,
                      const std::vector<std::string>& ignored = {});

/// Returns the _class_name of a config.json, or else the first of its architectures, or an empty
/// string.
std::string ClassName(const nlohmann::json& config);

/// Reads a JSON object of at most `max_bytes`.
///
/// Errors: NOT_FOUND; INVALID_ARGUMENT BAD_CONFIG.
absl::StatusOr<nlohmann::json> ReadJsonObject(const std::string& path,
                                              std::int64_t max_bytes = 1 << 20);

}  // namespace onepiece::model
