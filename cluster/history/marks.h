// What happened between two snapshots, for the scrubber. Internal to gui/history.
//
// Threading  Pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cluster/session/snapshot.h"
#include "cluster/history/recording.h"

namespace onepiece::gui::history {

/// At `now.at_ms`; at most 200, then one says how many more there were.
std::vector<Mark> WhatHappened(const Snapshot& before, const Snapshot& now);

/// Of its row.
std::uint32_t MarkSum(std::int64_t at_ms, std::int64_t kind, std::string_view entity,
                      std::string_view text);

}  // namespace onepiece::gui::history
