// The console's window under load: how long its pages take to show a snapshot, and how long the
// window answers nobody meanwhile.
#pragma once

#include <QString>
#include <vector>

#include "tests/gui/models/scene.h"

namespace onepiece::bench {

struct ConsoleLoad {
  testing::SceneOptions scene;
  int ticks = 50;  ///< For each page; a tick is a snapshot.
  /// Ten snapshots a second, as a session gives them; else one after the other.
  bool paced = true;
  int log_lines = 20'000;      ///< In the list of logs before it is measured; 0: it is not.
  int log_lines_per_tick = 2;  ///< Of each of 64 processes, in 200 ms.
};

struct Spread {
  double p50_ms = 0, p95_ms = 0, max_ms = 0;
};

struct PageTimes {
  QString page;
  int frames = 0;
  Spread wall;  ///< From ShownCluster::Show to the last pixel.
  Spread
      cpu;  ///< Of the GUI thread, for the same: what another program on the machine cannot spoil.
  /// The longest that an event of another thread waited for the event loop.
  double stall_ms = 0;
};

/// Every page in turn, each with a node in the inspector; then the page of jobs once more with the
/// oldest job in it, and that of logs with lines that a session fetches: there a frame is the
/// longest that an event waited in 200 ms, and cpu all that the GUI thread took in them. Needs a
/// QApplication; the window is 1280 by 800.
std::vector<PageTimes> MeasurePages(const ConsoleLoad& load);

}  // namespace onepiece::bench
