#include "gui/models/operation_rows.h"

#include "cluster/base/clock.h"
#include "cluster/session/link.h"
#include "gui/models/format.h"
#include "gui/models/plan_words.h"

namespace onepiece::gui {
namespace {

OperationRow RowOf(const v1::Plan& plan, std::int64_t now_ms) {
  OperationRow row;
  row.key = QStringLiteral("plan/") + QString::fromStdString(plan.plan_id());
  row.what = Tr("Plan %1: %2").arg(SafeText(plan.plan_id(), 40), MovesSummary(plan));
  row.who = SafeText(plan.actor(), 60);
  row.since_ms = plan.create_unix_ms();
  row.state = PlanStateName(plan.state());
  row.tone = PlanStateTone(plan.state());
  row.progress = ProgressText(plan, now_ms);
  const auto over = plan.state() == v1::Plan::REVERTING ? v1::Move::REVERTED : v1::Move::DONE;
  int done = 0;
  for (const v1::Move& move : plan.moves()) done += move.phase() == over;
  if (plan.moves_size() > 0) row.share = static_cast<double>(done) / plan.moves_size();
  return row;
}

OperationRow RowOf(const Operation& operation) {
  OperationRow row;
  row.key = QStringLiteral("asked/%1").arg(operation.number);
  row.what = operation.what;
  row.since_ms = operation.asked_ms;
  row.who = Tr("this console");
  row.progress = operation.note;
  if (operation.ended_ms == 0) {
    row.state = Tr("under way");
    row.tone = StatusTone::kBusy;
  } else if (operation.outcome.ok()) {
    row.state = Tr("done");
    row.tone = StatusTone::kGood;
  } else {
    row.state = Tr("failed");
    row.tone = StatusTone::kBad;
    row.progress = SafeText(session::Explain(operation.outcome), 400);
  }
  return row;
}

}  // namespace

std::vector<OperationRow> OperationRows(const session::Snapshot& snapshot,
                                        const std::deque<Operation>& operations) {
  std::vector<OperationRow> rows;
  if (snapshot.elasticity.value != nullptr) {
    for (const v1::Plan& plan : snapshot.elasticity.value->plans())
      rows.push_back(RowOf(plan, snapshot.at_ms));
  }
  for (const Operation& operation : operations) rows.push_back(RowOf(operation));
  return rows;
}

std::vector<KeyedTable<OperationRow>::Column> OperationColumns() {
  using Row = OperationRow;
  return {{Tr("What"), {}, ShowCell([](const Row& row) {
             return TableCell{row.what, {}, {}, row.what};
           })},
          {Tr("State"), {}, ShowCell([](const Row& row) {
             return TableCell{ToneGlyph(row.tone) + u' ' + row.state, row.state,
                              static_cast<int>(row.tone)};
           })},
          {Tr("Since"), {}, ShowCell([](const Row& row) {
             return TableCell{
                 FormatTime(row.since_ms, base::ToUnixMs(base::SystemClock().WallNow())),
                 qint64(row.since_ms)};
           })},
          {Tr("Who"), {}, ShowCell([](const Row& row) { return TableCell{row.who}; })},
          {Tr("How far, or what came of it"), {}, ShowCell([](const Row& row) {
             return TableCell{row.progress,
                              {},
                              {},
                              row.progress,
                              row.share.has_value() ? QVariant(*row.share) : QVariant()};
           })}};
}

}  // namespace onepiece::gui
