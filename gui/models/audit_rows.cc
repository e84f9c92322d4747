#include "gui/models/audit_rows.h"

#include <QRegularExpression>

#include "cluster/base/clock.h"
#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

/// Splits the detail that the NodeManager writes into `row.who` and `row.detail`. The forms are
/// "ACTOR" and "ACTOR: REASON". Where the NodeManager has numbers of its own, they come first: "4
/// to 8, ACTOR: REASON".
void SplitDetail(const QString& all, AuditRow& row) {
  static const QRegularExpression kActor(QStringLiteral(
      "^(?:(?<before>[^:]*), )?(?<who>(?:operator|policy):[^\\s:]+)(?:: (?<why>.*))?$"));
  const auto found = kActor.match(all);
  if (!found.hasMatch()) {
    row.detail = all;
    return;
  }
  row.who = found.captured(QStringLiteral("who"));
  const QString before = found.captured(QStringLiteral("before"));
  const QString why = found.captured(QStringLiteral("why"));
  row.detail =
      before.isEmpty() || why.isEmpty() ? before + why : before + QStringLiteral(": ") + why;
}

QString EntityOf(const v1::AuditEntry& entry) {
  const QString action = QString::fromStdString(entry.action());
  const QString subject = QString::fromStdString(entry.subject());
  if (subject.isEmpty()) return {};
  if (action.contains(u"plan") || action == u"advance_move")
    return QStringLiteral("plan/") + subject;
  if (action.contains(u"node") || action == u"assign") return QStringLiteral("node/") + subject;
  if (action == u"set_pool_limits") {
    // The subject is "SET POOL".
    return QStringLiteral("pool/") + subject.section(u' ', 0, 0) + u'/' + subject.section(u' ', 1);
  }
  return {};
}

}  // namespace

std::vector<AuditRow> AuditRows(const session::Audit& audit) {
  std::vector<AuditRow> rows;
  rows.reserve(audit.size());
  for (const v1::AuditEntry& entry : audit) {
    AuditRow& row = rows.emplace_back();
    row.entry = entry;
    SplitDetail(SafeText(entry.detail(), 500), row);
    row.entity = EntityOf(entry);
  }
  return rows;
}

QString AuditKey(const AuditRow& row) {
  return QStringLiteral("%1/%2/%3/%4")
      .arg(row.entry.revision())
      .arg(row.entry.time_unix_ms())
      .arg(
          QString::fromStdString(row.entry.action()),
          QString::fromStdString(row.entry.subject()) + QString::fromStdString(row.entry.detail()));
}

std::vector<KeyedTable<AuditRow>::Column> AuditColumns() {
  using Row = AuditRow;
  return {
      {Tr("When"), Tr("By the clock of the replica that led"), ShowCell([](const Row& row) {
         return TableCell{
             FormatTime(row.entry.time_unix_ms(), base::ToUnixMs(base::SystemClock().WallNow())),
             qint64(row.entry.time_unix_ms())};
       })},
      {Tr("Who"), Tr("operator:NAME, policy:NAME, or the cluster itself"),
       ShowCell([](const Row& row) {
         return row.who.isEmpty() ? TableCell{Tr("the cluster"), QString()} : TableCell{row.who};
       })},
      {Tr("What"), {}, ShowCell([](const Row& row) {
         return TableCell{SafeText(row.entry.action(), 60)};
       })},
      {Tr("Subject"), Tr("What was changed; Enter opens a node, a plan or a pool"),
       ShowCell([](const Row& row) { return TableCell{SafeText(row.entry.subject(), 80)}; })},
      {Tr("Revision"), Tr("Of the cluster's state after it"), ShowCell([](const Row& row) {
         return TableCell{QString::number(row.entry.revision()), qint64(row.entry.revision())};
       }),
       Qt::AlignRight | Qt::AlignVCenter},
      {Tr("Detail"), Tr("The reason that was given, or what became of it"),
       ShowCell([](const Row& row) {
         return TableCell{row.detail, {}, {}, row.detail};
       })}};
}

}  // namespace onepiece::gui
