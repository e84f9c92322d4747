// The tables of published checkpoints (resources/models/published). Private to stages/wan.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "stages/model/weights.h"
#include "stages/sdk/model_tools.h"

namespace onepiece::wan {

/// One published component: its config.json and every tensor with its shape.
struct PublishedComponent {
  std::string class_name;
  std::shared_ptr<const nlohmann::json> config;
  std::vector<model::TensorSpec> tensors;

  /// Errors: NOT_FOUND; INVALID_ARGUMENT BAD_CONFIG.
  static absl::StatusOr<PublishedComponent> Read(const std::string& path);

  /// Returns the tensors that `held` lacks, has in another shape, or has in addition. `holder`
  /// names the owner of `held`.
  [[nodiscard]] std::vector<std::string> Compare(const std::vector<model::TensorSpec>& held,
                                                 const std::string& holder) const;
  [[nodiscard]] sdk::TensorGroup Totals() const;
};

/// Returns the tensors that this build asks for, given the published config.
///
/// Errors: those of the class's ParseConfig; UNIMPLEMENTED for another class.
absl::StatusOr<std::vector<model::TensorSpec>> TensorsOf(const PublishedComponent& published);

}  // namespace onepiece::wan
