// Whether a model is of a family, by the classes that its files name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "stages/sdk/model_tools.h"

namespace onepiece::model {

/// The component classes of a family, as config.json and model_index.json name them.
struct FamilyClasses {
  std::span<const std::string_view> own;     ///< One of these makes a model the family's.
  std::span<const std::string_view> shared;  ///< Other families have these, too.
};

/// For sdk::ModelTools::Claim, whose arguments these are. A model folder (model_index.json) is
/// the family's when it names one of its own classes, unclear when it names only shared ones; a
/// component is the family's when its class is any of the two.
sdk::ModelClaim ClaimByClasses(const std::string& dir, const std::string& expect,
                               const FamilyClasses& family);

}  // namespace onepiece::model
