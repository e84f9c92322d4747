// Measures the console's window under load: how long its pages take to show a snapshot, and for how
// long the window does not respond.
#pragma once

#include <QString>
#include <vector>

#include "tests/gui/models/scene.h"

namespace onepiece::bench {

struct ConsoleLoad {
  testing::SceneOptions scene;
  int ticks = 50;  ///< Snapshots for each page.
  /// Takes ten snapshots a second, like a session. Otherwise takes one right after the other.
  bool paced = true;
  int log_lines = 20'000;  ///< Lines in the list of logs before the measurement. 0: not measured.
  int log_lines_per_tick = 2;  ///< Lines of each of 64 processes in 200 ms.
};

struct Spread {
  double p50_ms = 0, p95_ms = 0, max_ms = 0;
};

struct PageTimes {
  QString page;
  int frames = 0;
  Spread wall;  ///< From ShownCluster::Show to the last pixel.
  Spread cpu;   ///< Processor time of the GUI thread for the same. Other programs do not affect it.
  /// The longest time that an event of another thread waited for the event loop.
  double stall_ms = 0;
};

/// Measures every page in turn, each with a node in the inspector. Then measures the page of jobs
/// again with the oldest job in it, and the page of logs with lines that a session fetches. For
/// logs a frame is the longest time that an event waited in 200 ms, and cpu is all processor time
/// of the GUI thread in them. The window is 1280 by 800.
///
/// REQUIRES: a QApplication.
std::vector<PageTimes> MeasurePages(const ConsoleLoad& load);

}  // namespace onepiece::bench
