#include "gui/views/databases.h"

#include "gui/views/prompts.h"

namespace onepiece::gui {

DatabasesView::DatabasesView(ShownCluster& shown_cluster, QWidget* parent)
    : ListPage(QStringLiteral("databases"), tr("Databases"), shown_cluster, parent),
      table_(std::make_unique<KeyedTable<DatabaseRow>>(DatabaseColumns(), [](const DatabaseRow& r) {
        return QString::fromStdString(r.node_id);
      })) {
  SetModel(table_.get());
  panel()->SetEmptyText(tr("No database is known: the cluster has named none yet."));
  connect(panel(), &TablePanel::Activated, this, [this](const QString& key) {
    Q_EMIT Wanted(QStringLiteral("logs"), QStringLiteral("node/") + key);
  });
}

QString DatabasesView::Help() const {
  return tr(
      "The databases keep what jobs are and the bytes of their results.\n\n"
      "“Used” is what the results take, of the database's budget; the bar is their share. When the "
      "budget is full, the oldest results go. “Records” are jobs that it knows; “Behind” is how "
      "many fewer than the fullest database of the same workflow set. They copy from each other, "
      "so that it goes back to 0. “Peers” says how that stands: hover for each of them.\n\n"
      "“On disk” is what moved to files when memory was full. “Gone” are results that were "
      "fetched / that expired / jobs that were deleted. “Losses” should say “none”: results that "
      "were evicted were sent but never acknowledged, refused ones found no room, lost ones no "
      "database had after a restart.\n\n"
      "A database that does not answer keeps its last numbers, with their age and the reason. "
      "Enter on a row shows its log.");
}

void DatabasesView::Draw(const session::Snapshot& snapshot) {
  auto rows = DatabaseRows(snapshot);
  const Headline words = DatabasesInWords(rows);
  Say(words.text, words.tone,
      WhyOld(snapshot.databases.as_of_ms, snapshot.databases.error, snapshot.at_ms));
  table_->Update(std::move(rows), std::equal_to<DatabaseRow>());
}

ReplicasView::ReplicasView(ShownCluster& shown_cluster, QWidget* parent)
    : ListPage(QStringLiteral("replicas"), tr("NodeManager"), shown_cluster, parent),
      table_(std::make_unique<KeyedTable<ReplicaRow>>(
          ReplicaColumns(), [](const ReplicaRow& r) { return QString::fromStdString(r.name); })) {
  SetModel(table_.get());
  panel()->SetEmptyText(tr("No replica of the NodeManager has answered yet."));
  // The watch must see every snapshot, also while another page is shown. Draw() sees it when this
  // page is.
  connect(&this->shown_cluster(), &ShownCluster::Changed, this, [this] {
    const session::Snapshot& snapshot = *this->shown_cluster().snapshot();
    if (isVisible() || !this->shown_cluster().live() || snapshot.replicas.value == watched_) return;
    watched_ = snapshot.replicas.value;
    watch_.See(snapshot);
  });
}

QString ReplicasView::Help() const {
  return tr(
      "The NodeManager runs as a few replicas, of which one leads. With 3 the cluster goes on when "
      "one is lost, with 5 when two are; when fewer than a majority answer, nothing can be changed "
      "until they are back.\n\n"
      "“Chosen” is the last entry of the log that a replica knows to be agreed upon, “Applied” "
      "what its state contains. “Behind” is how far it is from the best of them: a few entries "
      "for moments are normal.\n\n"
      "Since when a replica leads, and how many elections there were, is counted from when this "
      "console began to watch.\n\n"
      "“Make the leader hand over” and “Write a snapshot” are `onepiece cluster step-down` and "
      "`onepiece cluster snapshot`.");
}

std::vector<Command> ReplicasView::Commands() {
  return {{QStringLiteral("replica.step-down"),
           tr("Make the leader hand over…"),
           QStringLiteral("onepiece cluster step-down"),
           {},
           true,
           [this] { StepDown(); },
           methods::kStepDown},
          {QStringLiteral("replica.snapshot"),
           tr("Write a snapshot…"),
           QStringLiteral("onepiece cluster snapshot"),
           {},
           true,
           [this] { TakeSnapshot(); },
           methods::kTakeSnapshot}};
}

void ReplicasView::Draw(const session::Snapshot& snapshot) {
  // A snapshot of the past would start the watch anew, so a fresh one looks at it.
  ReplicaWatch once;
  news_ = (shown_cluster().live() && !snapshot.recorded ? watch_ : once).See(snapshot);
  QStringList notes = news_.advice;
  const QString old = WhyOld(snapshot.replicas.as_of_ms, snapshot.replicas.error, snapshot.at_ms);
  if (!old.isEmpty()) notes << old;
  std::vector<ReplicaRow> rows;
  if (snapshot.replicas.value != nullptr) rows = ReplicaRows(*snapshot.replicas.value);
  for (const ReplicaRow& row : rows) {
    if (!row.detail.isEmpty()) {
      notes << QStringLiteral("%1: %2").arg(SafeText(row.name, 60), row.detail);
    }
  }
  Say(news_.headline.text, news_.headline.tone, notes.join(u'\n'));
  table_->Update(std::move(rows), std::equal_to<ReplicaRow>());
}

void ReplicasView::StepDown() {
  if (news_.leader.empty()) {
    Q_EMIT Told(tr("No replica leads: nobody can hand over."));
    return;
  }
  const QString name = SafeText(news_.leader, 60);
  const QString what = tr("Make %1 hand over").arg(name);
  Confirm(this, shown_cluster(),
          {tr("Make the leader hand over"),
           what,
           tr("The follower that knows most becomes the leader. Changes wait for about a second; "
              "jobs are not touched."),
           {tr("%1 at %2").arg(name, SafeText(news_.leader_address, 80))},
           false,
           false},
          [this, what, name, address = news_.leader_address](const QString&) {
            shown_cluster().Ask<bool>(
                this,
                [address](client::Client& client) -> absl::StatusOr<bool> {
                  const absl::Status status = client.StepDown(address);
                  if (!status.ok()) return status;
                  return true;
                },
                [this, what, name](const absl::StatusOr<bool>& done) {
                  if (!done.ok()) return TellFailure(this, what, done.status());
                  Q_EMIT Told(tr("%1 does not lead any more.").arg(name));
                },
                what);
          });
}

void ReplicasView::TakeSnapshot() {
  // The selected replica, or else the leader, as the CLI does.
  const QString key = panel()->current();
  std::string name = news_.leader, address = news_.leader_address;
  if (const int row = table_->RowOf(key); row >= 0) {
    name = table_->at(row).name;
    address = table_->at(row).address;
  }
  if (address.empty()) {
    Q_EMIT Told(tr("No replica is chosen, and none leads."));
    return;
  }
  const QString shown = SafeText(name, 60);
  const QString what = tr("Write a snapshot of %1").arg(shown);
  Confirm(this, shown_cluster(),
          {tr("Write a snapshot"),
           what,
           tr("The replica writes its state to its disk and shortens its log."),
           {tr("%1 at %2").arg(shown, SafeText(address, 80))},
           false,
           false},
          [this, what, shown, address](const QString&) {
            shown_cluster().Ask<v1::TakeSnapshotResponse>(
                this, [address](client::Client& client) { return client.TakeSnapshot(address); },
                [this, what, shown](const absl::StatusOr<v1::TakeSnapshotResponse>& done) {
                  if (!done.ok()) return TellFailure(this, what, done.status());
                  Q_EMIT Told(tr("%1: snapshot at entry %2, %3")
                                  .arg(shown)
                                  .arg(done->index())
                                  .arg(FormatBytes(static_cast<double>(done->bytes()))));
                },
                what);
          });
}

}  // namespace onepiece::gui
