// Compares two snapshots and makes the marks of the time line from what changed. It makes no
// bookmarks and no connection marks. Internal to cluster/history.
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cluster/history/recording.h"
#include "cluster/session/snapshot.h"

namespace onepiece::history {

/// Returns one mark for each change from `before` to `now`, at most 200. Their time is `now.at_ms`.
/// If there are more changes, mark 201 says how many were left out.
///
/// A part that one of the two snapshots lacks gives no marks. Alerts are the exception: if `before`
/// has none, every firing alert of `now` gives a mark.
std::vector<Mark> WhatHappened(const session::Snapshot& before, const session::Snapshot& now);

/// Returns the checksum of a mark's row in the recording's file. `at_ms` is in milliseconds since
/// 1970. `kind` is the number of the Mark::Kind.
std::uint32_t MarkSum(std::int64_t at_ms, std::int64_t kind, std::string_view entity,
                      std::string_view text);

}  // namespace onepiece::history
