#include "cluster/terminal/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>

namespace onepiece::terminal {

ProgressBar::ProgressBar(const Output& output) {
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  enabled_ = !output.json && !dumb && isatty(STDERR_FILENO) == 1;
}

ProgressBar::~ProgressBar() { Erase(); }

void ProgressBar::Show(double share, std::string_view what) {
  if (!enabled_) return;
  constexpr int kWidth = 30;
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * kWidth);
  const std::string bar = std::string(static_cast<std::size_t>(filled), '#') +
                          std::string(static_cast<std::size_t>(kWidth - filled), '.');
  std::cerr << "\r\x1b[K[" << bar << "] " << what << std::flush;
  drawn_ = true;
}

void ProgressBar::Erase() {
  if (drawn_) std::cerr << "\r\x1b[K" << std::flush;
  drawn_ = false;
}

}  // namespace onepiece::terminal
