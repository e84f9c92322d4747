// What happened between two snapshots, for the scrubber. Internal to gui/history.
//
// Threading  Pure functions.
#pragma once

#include <vector>

#include "gui/client/snapshot.h"
#include "gui/history/recording.h"

namespace onepiece::gui::history {

/// At `now.at_ms`; at most 200, then one says how many more there were.
std::vector<Mark> WhatHappened(const Snapshot& before, const Snapshot& now);

}  // namespace onepiece::gui::history
