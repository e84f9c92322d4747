// Finds what happened between two snapshots, for the marks of the time line. Internal to
// cluster/history.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cluster/history/recording.h"
#include "cluster/session/snapshot.h"

namespace onepiece::history {

/// Returns the marks of `now.at_ms`, at most 200. One more mark then says how many others there
/// were.
std::vector<Mark> WhatHappened(const session::Snapshot& before, const session::Snapshot& now);

/// Returns the checksum of a mark's row.
std::uint32_t MarkSum(std::int64_t at_ms, std::int64_t kind, std::string_view entity,
                      std::string_view text);

}  // namespace onepiece::history
