// All pages of the console.
#pragma once

#include <memory>
#include <vector>

#include "gui/views/view.h"

namespace onepiece::gui {

/// The pages in the order of their tabs. The first is shown at the start; Ctrl+1, Ctrl+2, … follow
/// the same order.
std::vector<std::unique_ptr<View>> MakePages(ShownCluster& shown_cluster);

}  // namespace onepiece::gui
