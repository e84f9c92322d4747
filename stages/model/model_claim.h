// Decides whether a model belongs to a family, by the classes that its files name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "stages/sdk/model_tools.h"

namespace onepiece::model {

/// The component classes of a family, as config.json and model_index.json name them.
struct FamilyClasses {
  std::span<const std::string_view> own;     ///< One of these makes a model the family's.
  std::span<const std::string_view> shared;  ///< Other families have these too.
};

/// Implements sdk::ModelTools::Claim and takes its arguments. A model folder (model_index.json)
/// belongs to the family if it names one of the family's own classes, and is unclear if it names
/// only shared ones. A component belongs to the family if its class is own or shared.
sdk::ModelClaim ClaimByClasses(const std::string& dir, const std::string& expect,
                               const FamilyClasses& family);

}  // namespace onepiece::model
