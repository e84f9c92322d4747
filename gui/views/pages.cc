#include "gui/views/pages.h"

#include "gui/views/alerts.h"
#include "gui/views/audit.h"
#include "gui/views/databases.h"
#include "gui/views/gpus.h"
#include "gui/views/jobs.h"
#include "gui/views/logs.h"
#include "gui/views/overview.h"
#include "gui/views/pipelines.h"
#include "gui/views/rebalance.h"
#include "gui/views/rings.h"

namespace onepiece::gui {

std::vector<std::unique_ptr<View>> MakePages(ShownCluster& shown_cluster) {
  auto pipelines = std::make_unique<PipelinesView>(shown_cluster);
  auto rebalance = std::make_unique<RebalanceView>(shown_cluster);
  // The page "Pipelines" shows the draft of the page "Rebalance".
  QObject::connect(rebalance.get(), &RebalanceView::DraftChanged, pipelines.get(),
                   [from = rebalance.get(), to = pipelines.get()] { to->SetDraft(from->draft()); });
  std::vector<std::unique_ptr<View>> pages;
  pages.push_back(std::make_unique<OverviewView>(shown_cluster));
  pages.push_back(std::move(pipelines));
  pages.push_back(std::make_unique<GpusView>(shown_cluster));
  pages.push_back(std::make_unique<RingsView>(shown_cluster));
  pages.push_back(std::make_unique<JobsView>(shown_cluster));
  pages.push_back(std::move(rebalance));
  pages.push_back(std::make_unique<DatabasesView>(shown_cluster));
  pages.push_back(std::make_unique<ReplicasView>(shown_cluster));
  pages.push_back(std::make_unique<AlertsView>(shown_cluster));
  pages.push_back(std::make_unique<LogsView>(shown_cluster));
  pages.push_back(std::make_unique<AuditView>(shown_cluster));
  return pages;
}

}  // namespace onepiece::gui
