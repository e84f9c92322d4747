#include "gui/views/pages.h"

#include "gui/views/alerts.h"
#include "gui/views/audit.h"
#include "gui/views/gpus.h"
#include "gui/views/jobs.h"
#include "gui/views/logs.h"
#include "gui/views/overview.h"
#include "gui/views/pipelines.h"
#include "gui/views/rebalance.h"
#include "gui/views/rings.h"
#include "gui/views/databases.h"

namespace onepiece::gui {

std::vector<std::unique_ptr<View>> MakePages(Store& store) {
  auto pipelines = std::make_unique<PipelinesView>(store);
  auto rebalance = std::make_unique<RebalanceView>(store);
  // The page "Pipelines" shows the draft of the page "Rebalance".
  QObject::connect(rebalance.get(), &RebalanceView::DraftChanged, pipelines.get(),
                   [from = rebalance.get(), to = pipelines.get()] { to->SetDraft(from->draft()); });
  std::vector<std::unique_ptr<View>> pages;
  pages.push_back(std::make_unique<OverviewView>(store));
  pages.push_back(std::move(pipelines));
  pages.push_back(std::make_unique<GpusView>(store));
  pages.push_back(std::make_unique<RingsView>(store));
  pages.push_back(std::make_unique<JobsView>(store));
  pages.push_back(std::move(rebalance));
  pages.push_back(std::make_unique<DatabasesView>(store));
  pages.push_back(std::make_unique<ReplicasView>(store));
  pages.push_back(std::make_unique<AlertsView>(store));
  pages.push_back(std::make_unique<LogsView>(store));
  pages.push_back(std::make_unique<AuditView>(store));
  return pages;
}

}  // namespace onepiece::gui
