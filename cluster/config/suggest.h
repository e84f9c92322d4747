// How errors name what people wrote, and what they may have meant. Private to cluster/config.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace onepiece::config {

/// Returns the text in quotes, cut to 64 bytes.
std::string Quote(std::string_view text);
/// Returns "; did you mean 'x'?" if a known name is near `given`, else the list of known names.
std::string Suggest(std::string_view given, const std::vector<std::string>& known);
/// Returns the names of a message's fields, in their order.
std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type);

}  // namespace onepiece::config
