// Writes protobuf messages as YAML that ParseYaml() reads back equal.
//
// Fields come in the order of the .proto, maps in the order of their keys. What is not set is left
// out, and enum values have their short names ("individual" for MODE_INDIVIDUAL).
//
// Threading: may be called from any thread.
#pragma once

#include <string>
#include <string_view>

#include "google/protobuf/message.h"

namespace onepiece::config {

/// Returns the message as a YAML document. A message without any field is "{}".
///
/// ParseYaml() refuses three things that a message may have and a file may not: text with NUL or
/// that is not UTF-8, numbers that are not finite, and enum values without a name.
std::string ToYaml(const google::protobuf::Message& message);

/// Returns one field as a YAML document of its own: a value, a list or a mapping.
std::string FieldToYaml(const google::protobuf::Message& message,
                        const google::protobuf::FieldDescriptor& field);

/// Returns the text as a YAML scalar: as it stands where every reader takes it for text, else in
/// double quotes.
std::string YamlScalar(std::string_view text);

}  // namespace onepiece::config
