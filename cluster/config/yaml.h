// Reads YAML files, such as configuration and workflow files, into protobuf messages.
//
// The message is the schema. A mapping is a message (its keys are the field names as the .proto
// spells them) or a map field. A list is a repeated field. Enum values are written as in the
// .proto, or in any case without the common prefix ("individual" for MODE_INDIVIDUAL). Anchors,
// aliases, tags and several documents in a file are refused. Flags and ONEPIECE_* variables take
// precedence over a file, and a file over the built-in defaults (cluster/service).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "cluster/base/status.h"
#include "google/protobuf/message.h"

namespace onepiece::config {

/// The size of the largest text that is read, in bytes, unless the caller allows more.
inline constexpr std::size_t kMaxYamlBytes = std::size_t{1} << 18;

/// Sets the fields of `message` that `text` names. Lists are replaced, and messages are merged.
/// Errors call the text `name`.
///
/// Threading: may be called from any thread.
/// Errors: INVALID_ARGUMENT (BAD_CONFIG) with the metadata "line" and "column", and a message that
/// starts with "name:line:column: ". `message` stays unchanged.
absl::Status ParseYaml(std::string_view text, std::string_view name,
                       google::protobuf::Message* message, std::size_t max_bytes = kMaxYamlBytes);

/// Does the same with the text of a file. A file that cannot be read is also BAD_CONFIG.
absl::Status LoadYamlFile(const std::string& path, google::protobuf::Message* message);

}  // namespace onepiece::config
