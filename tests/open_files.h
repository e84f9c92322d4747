// How many descriptors this process has open, for tests that leave none behind.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>

namespace onepiece::testing {

inline std::size_t OpenFiles() {
  namespace fs = std::filesystem;
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

}  // namespace onepiece::testing
