// The tree of a YAML text, before a schema gives it a meaning. For files that no protobuf message
// describes; others use yaml.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::config {

struct Position {
  int line = 1;
  int column = 1;
};

struct YamlNode {
  enum class Kind : std::uint8_t { kNull, kPlain, kQuoted, kList, kMapping };
  Kind kind = Kind::kNull;
  Position at;
  std::string text;  ///< kPlain and kQuoted.
  std::vector<YamlNode>
      items;  ///< kList: the items; kMapping: key, value, key, value …; keys are unique text.
};

/// Makes the error for a place in a text: "name:line:column: what".
absl::Status ErrorAt(std::string_view name, Position at, std::string_view what);

/// Reads the only document of `text`. An empty text is kNull.
///
/// Errors: as ParseYaml.
absl::StatusOr<YamlNode> ReadYaml(std::string_view text, std::string_view name,
                                  std::size_t max_bytes);

}  // namespace onepiece::config
