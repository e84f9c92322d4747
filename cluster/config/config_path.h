// Finds a part of a configuration by its path, as changes name it: "elasticity.threshold",
// "liveness", "workflows[tiny-wan-t2v].stages[diffusion].threads" (docs/configuration.md).
//
// Threading: may be called from any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "onepiece/v1/cluster_config.pb.h"

namespace onepiece::config {

/// A part of a configuration. It borrows from the configuration in which it was found.
struct ConfigPart {
  /// The element of a list that the path ends with, or the message that has `field`.
  const google::protobuf::Message* message = nullptr;
  /// Null: the path ends with the element of a list, which is `message`.
  const google::protobuf::FieldDescriptor* field = nullptr;
};

/// Finds the part that `path` names.
///
/// Errors: NOT_FOUND (KEY_UNKNOWN): there is no such field, or no element of that name.
absl::StatusOr<ConfigPart> FindConfigPart(const v1::ClusterConfig& config, std::string_view path);

/// Returns the part as YAML. A field that is not set is an empty text.
std::string ConfigPartToYaml(const ConfigPart& part);

/// Sets a field that has one value. A workflow set and a pool of it are made when they are missing,
/// because they hold nothing but settings; a missing application is an error.
///
/// Errors: those of FindConfigPart, and INVALID_ARGUMENT (BAD_CONFIG) when the path names a whole
/// section, list or element, or the value does not fit.
absl::Status SetConfigValue(std::string_view path, std::string_view value,
                            v1::ClusterConfig& config);

}  // namespace onepiece::config
