// A progress bar on stderr.
#pragma once

#include <string_view>

#include "cluster/terminal/output.h"

namespace onepiece::terminal {

/// A progress bar. It is drawn only when stderr is a terminal and the command runs without --json.
///
/// Threading: used by one thread.
class ProgressBar {
 public:
  explicit ProgressBar(const Output& output);
  /// Erases the bar.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  /// Draws the bar for `share` (0 to 1) with a short text.
  void Show(double share, std::string_view what);
  void Erase();

 private:
  bool enabled_;
  bool drawn_ = false;
};

}  // namespace onepiece::terminal
