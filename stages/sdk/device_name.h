// The names of devices: "cpu" and "cuda:N".
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace onepiece::sdk {

/// Returns the N of "cuda:N", from 0 to 127, and nullopt for every other text.
inline std::optional<int> CudaIndex(std::string_view device) {
  constexpr std::string_view kPrefix = "cuda:";
  if (!device.starts_with(kPrefix)) return std::nullopt;
  int index = 0;
  const char* end = device.data() + device.size();
  const auto [stop, error] = std::from_chars(device.data() + kPrefix.size(), end, index);
  if (error != std::errc() || stop != end || index < 0 || index > 127) return std::nullopt;
  return index;
}

}  // namespace onepiece::sdk
