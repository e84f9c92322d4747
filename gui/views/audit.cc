#include "gui/views/audit.h"

#include "gui/models/database_rows.h"

namespace onepiece::gui {
namespace {

/// The number of entries that a session keeps.
constexpr int kKept = 1000;

}  // namespace

AuditView::AuditView(ShownCluster& shown_cluster, QWidget* parent)
    : ListPage(QStringLiteral("audit"), tr("Audit"), shown_cluster, parent),
      table_(std::make_unique<KeyedTable<AuditRow>>(AuditColumns(), AuditKey)) {
  SetModel(table_.get());
  panel()->SetEmptyText(tr("Nothing has been changed yet, or the cluster has not told."));
  connect(panel(), &TablePanel::Activated, this, [this](const QString& key) {
    const int row = table_->RowOf(key);
    if (row >= 0 && !table_->at(row).entity.isEmpty()) {
      Q_EMIT Wanted(QString(), table_->at(row).entity);
    }
  });
}

QString AuditView::Help() const {
  return tr(
      "What has been changed, by whom, and why: newest first. `onepiece rebalance audit` prints "
      "the same.\n\n"
      "“Who” is operator:NAME for people, policy:NAME for the automatic policy; what nodes do by "
      "themselves (registering, ending) is the cluster's own. The name is what the program that "
      "asked has said of itself.\n\n"
      "Enter on a row opens the plan, node or pool that it is about. The filter (/) looks at all "
      "columns; Ctrl+E writes what is shown as CSV or JSON. The console keeps the last 1000.");
}

void AuditView::Focus(const QString& entity) {
  for (int row = 0; row < table_->rowCount(); ++row) {
    if (table_->at(row).entity != entity) continue;
    panel()->Select(AuditKey(table_->at(row)));
    return;
  }
}

void AuditView::Draw(const session::Snapshot& snapshot) {
  const auto& audit = snapshot.audit.value;
  const int count = audit == nullptr ? 0 : static_cast<int>(audit->size());
  Say(count >= kKept ? tr("The last %1 changes; older ones are not kept here.").arg(count)
                     : tr("%1 changes.").arg(count),
      StatusTone::kNeutral, WhyOld(snapshot.audit.as_of_ms, snapshot.audit.error, snapshot.at_ms));
  if (audit == drawn_) return;
  drawn_ = audit;
  table_->Update(audit == nullptr ? std::vector<AuditRow>() : AuditRows(*audit),
                 [](const AuditRow& a, const AuditRow& b) { return AuditKey(a) == AuditKey(b); });
}

}  // namespace onepiece::gui
