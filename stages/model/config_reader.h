// Reads the fields of a config.json by type. Errors name the field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace onepiece::model {

/// Bounds that keep a hostile config.json from asking for more than any model needs.
inline constexpr std::int64_t kMaxExtent = 1 << 20;
inline constexpr std::int64_t kMaxLayers = 512;

/// Reads fields one after the other. Keeps the first error; later reads return the lower bound or
/// nothing.
class ConfigReader {
 public:
  explicit ConfigReader(const nlohmann::json& config) : config_(config) {}

  /// Reads a required integer in [low, high].
  std::int64_t Int(const std::string& field, std::int64_t low, std::int64_t high);
  /// Reads an integer in [low, high], or returns `fallback` if the field is absent or null.
  std::int64_t IntOr(const std::string& field, std::int64_t low, std::int64_t high,
                     std::int64_t fallback);
  double PositiveOr(const std::string& field, double fallback);
  std::string StringOr(const std::string& field, const std::string& fallback);
  bool BoolOr(const std::string& field, bool fallback);
  std::vector<std::int64_t> Ints(const std::string& field, std::size_t most, std::int64_t low,
                                 std::int64_t high);
  std::vector<bool> Bools(const std::string& field, std::size_t most);
  std::vector<double> Numbers(const std::string& field, std::size_t most);
  /// Diffusers treats an absent field and null alike.
  [[nodiscard]] bool Has(const std::string& field) const;

  /// Records the error that the value of `field` is a variant that this build does not compute.
  void Unimplemented(const std::string& field, const std::string& what);
  /// Records the error that the value of `field` cannot be right.
  void Bad(const std::string& field, const std::string& what);
  [[nodiscard]] const absl::Status& status() const { return status_; }

 private:
  const nlohmann::json& config_;
  absl::Status status_;
};

}  // namespace onepiece::model
