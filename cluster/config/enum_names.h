// How YAML and JSON name the values of an enum.
#pragma once

#include <cctype>
#include <string>
#include <string_view>

#include "google/protobuf/descriptor.h"

namespace onepiece::config {

/// Returns the prefix that all values of an enum have: "MODE_" for Mode.
inline std::string EnumPrefix(std::string_view type) {
  std::string prefix;
  for (const char c : type) {
    if (std::isupper(static_cast<unsigned char>(c)) && !prefix.empty()) prefix += '_';
    prefix += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return prefix + '_';
}

/// Returns the name without the prefix and in lower case: "individual" for MODE_INDIVIDUAL.
inline std::string ShortEnumName(const google::protobuf::EnumValueDescriptor& value) {
  std::string_view brief = value.name();
  const std::string prefix = EnumPrefix(value.type()->name());
  if (brief.starts_with(prefix)) brief.remove_prefix(prefix.size());
  std::string lower(brief);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

}  // namespace onepiece::config
