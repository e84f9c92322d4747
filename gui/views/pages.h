// Every page of the console, in the order of its tabs.
#pragma once

#include <memory>
#include <vector>

#include "gui/views/view.h"

namespace onepiece::gui {

/// The first is shown at the start; Ctrl+1, Ctrl+2, … in this order.
std::vector<std::unique_ptr<View>> MakePages(Store& store);

}  // namespace onepiece::gui
