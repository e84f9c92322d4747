#include "gui/views/pages.h"

#include "gui/views/jobs.h"
#include "gui/views/overview.h"
#include "gui/views/rebalance.h"

namespace onepiece::gui {

std::vector<std::unique_ptr<View>> MakePages(Store& store) {
  std::vector<std::unique_ptr<View>> pages;
  pages.push_back(std::make_unique<OverviewView>(store));
  pages.push_back(std::make_unique<JobsView>(store));
  pages.push_back(std::make_unique<RebalanceView>(store));
  return pages;
}

}  // namespace onepiece::gui
