// Where the models and the recorded results of the tests are.
#pragma once

#include <string>

namespace onepiece::wan {

inline const std::string kModels = ONEPIECE_SOURCE_DIR "/resources/models";
inline const std::string kTinyModel = kModels + "/tiny-wan-t2v";

/// Returns the path of a recorded result.
inline std::string Golden(const std::string& name) {
  return std::string(ONEPIECE_SOURCE_DIR) + "/tests/wan/goldens/" + name;
}

}  // namespace onepiece::wan
