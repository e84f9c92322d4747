// YAML files as protobuf messages: configuration files and workflow files.
//
// The message is the schema. A mapping is a message (keys are the field names as the .proto spells
// them) or a map field, a list is a repeated field. Enums are written as in the .proto, or in any
// case without the common prefix
// ("individual" for MODE_INDIVIDUAL). Anchors, aliases, tags and several documents in a file are
// refused. Programs put flags and ONEPIECE_* variables above the file, and the file above built-in
// defaults: cluster/service.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "cluster/base/status.h"
#include "google/protobuf/message.h"

namespace onepiece::config {

/// Largest text, in bytes.
inline constexpr std::size_t kMaxYamlBytes = std::size_t{1} << 18;

/// Sets the fields of `message` that `text` names; lists are replaced, messages are merged. `name`
/// is what errors call the text. Thread-safe. Errors: INVALID_ARGUMENT with reason BAD_CONFIG,
/// metadata "line" and "column", and a message that starts with "name:line:column: ". `message` is
/// unchanged then.
absl::Status ParseYaml(std::string_view text, std::string_view name,
                       google::protobuf::Message* message);

/// The same from a file. A file that cannot be read is BAD_CONFIG too.
absl::Status LoadYamlFile(const std::string& path, google::protobuf::Message* message);

}  // namespace onepiece::config
