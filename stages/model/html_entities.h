// HTML's named character references (&eacute; and 2124 others). Private to stages/model.
#pragma once

#include <cstddef>
#include <string_view>

namespace onepiece::model {

struct HtmlEntity {
  std::string_view name;           ///< Without '&' and ';'.
  char32_t first = 0;              ///< The character it stands for ...
  char32_t second = 0;             ///< ... and the one after it; 0 for most.
  bool without_semicolon = false;  ///< HTML also takes it without ';'.
};

/// Length in bytes of the longest name, and of the longest name that needs no semicolon.
inline constexpr std::size_t kLongestHtmlEntity = 31, kLongestBareHtmlEntity = 6;

/// Returns the entity of that name (case matters), or nullptr.
///
/// Threading: may be called from any thread.
const HtmlEntity* FindHtmlEntity(std::string_view name);

}  // namespace onepiece::model
