// A live cluster at a fixed instant.
#pragma once

#include <cstdint>

#include "cluster/session/link.h"

namespace onepiece::gui {

inline constexpr std::int64_t kNow = 1'800'000'000'000;  ///< Unix milliseconds.
inline constexpr int kSoonMs = 60'000;                   ///< Only reached when a test fails.

inline session::LinkStatus Live() {
  session::LinkStatus link;
  link.link = session::Link::kLive;
  return link;
}

}  // namespace onepiece::gui
