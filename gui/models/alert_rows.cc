#include "gui/models/alert_rows.h"

#include <QStringList>
#include <algorithm>
#include <limits>
#include <tuple>

#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

StatusTone ToneOf(const session::Alert& alert) {
  switch (alert.state) {
    case session::Alert::State::kFiring:
      return alert.severity == session::Alert::Severity::kCritical ? StatusTone::kBad
                                                                   : StatusTone::kWarning;
    case session::Alert::State::kPending:
      return StatusTone::kBusy;
    case session::Alert::State::kResolved:
      return StatusTone::kGood;
    case session::Alert::State::kNoData:
    case session::Alert::State::kError:
      return StatusTone::kUnknown;
  }
  return StatusTone::kUnknown;
}

TableCell Number(const std::optional<double>& value) {
  if (!value.has_value()) return {QString(), std::numeric_limits<double>::quiet_NaN()};
  return {QString::number(*value, 'g', 6), *value};
}

}  // namespace

QString AlertStateName(session::Alert::State state) {
  switch (state) {
    case session::Alert::State::kPending:
      return Tr("pending");
    case session::Alert::State::kFiring:
      return Tr("firing");
    case session::Alert::State::kResolved:
      return Tr("resolved");
    case session::Alert::State::kNoData:
      return Tr("no data");
    case session::Alert::State::kError:
      return Tr("error");
  }
  return Tr("unknown");
}

QString SeverityName(session::Alert::Severity severity) {
  switch (severity) {
    case session::Alert::Severity::kInfo:
      return Tr("info");
    case session::Alert::Severity::kWarning:
      return Tr("warning");
    case session::Alert::Severity::kCritical:
      return Tr("critical");
  }
  return Tr("unknown");
}

bool operator==(const AlertRow& a, const AlertRow& b) {
  const auto fields = [](const AlertRow& row) {
    const session::Alert& alert = row.alert;
    return std::tie(alert.id, alert.state, alert.severity, alert.since_ms, alert.text, alert.value,
                    alert.threshold, row.silenced, row.since, row.seen, row.silence);
  };
  return fields(a) == fields(b);
}

std::vector<AlertRow> AlertRows(const session::Alerts& alerts, std::int64_t now_ms) {
  std::vector<AlertRow> rows;
  rows.reserve(alerts.size());
  for (const session::Alert& alert : alerts) {
    AlertRow& row = rows.emplace_back();
    row.alert = alert;
    row.silenced = alert.silenced_until_ms > now_ms;
    row.tone = row.silenced ? StatusTone::kNeutral : ToneOf(alert);
    row.state = AlertStateName(alert.state);
    row.since = FormatTime(alert.since_ms, now_ms);
    row.seen = SafeText(alert.acknowledged_by, 60);
    if (row.silenced) {
      row.silence = Tr("until %1: %2")
                        .arg(FormatTime(alert.silenced_until_ms, now_ms),
                             SafeText(alert.silence_reason, 120));
    }
  }
  // The alerts come sorted by state. Within each state, the silenced ones go last.
  for (auto first = rows.begin(); first != rows.end();) {
    const auto last = std::find_if(first, rows.end(), [&](const AlertRow& row) {
      return row.alert.state != first->alert.state;
    });
    std::stable_partition(first, last, [](const AlertRow& row) { return !row.silenced; });
    first = last;
  }
  return rows;
}

AlertCounts CountAlerts(const std::vector<AlertRow>& rows) {
  AlertCounts counts;
  for (const AlertRow& row : rows) {
    // A silenced alert counts as silenced only, whatever its state. One that is over counts as
    // resolved.
    if (row.silenced && row.alert.state != session::Alert::State::kResolved) {
      ++counts.silenced;
      continue;
    }
    switch (row.alert.state) {
      case session::Alert::State::kFiring:
        ++counts.firing;
        counts.critical += row.alert.severity == session::Alert::Severity::kCritical;
        break;
      case session::Alert::State::kPending:
        ++counts.pending;
        break;
      case session::Alert::State::kResolved:
        ++counts.resolved;
        break;
      case session::Alert::State::kNoData:
        ++counts.no_data;
        break;
      case session::Alert::State::kError:
        ++counts.error;
        break;
    }
  }
  return counts;
}

QString AlertsInWords(const AlertCounts& counts) {
  QStringList parts;
  parts << (counts.firing == 0 ? Tr("Nothing fires")
            : counts.critical == 0
                ? Tr("%1 firing").arg(counts.firing)
                : Tr("%1 firing, %2 of them critical").arg(counts.firing).arg(counts.critical));
  if (counts.pending > 0) parts << Tr("%1 pending").arg(counts.pending);
  if (counts.no_data > 0) parts << Tr("%1 without data").arg(counts.no_data);
  if (counts.error > 0) parts << Tr("%1 in error").arg(counts.error);
  if (counts.silenced > 0) parts << Tr("%1 silenced").arg(counts.silenced);
  if (counts.resolved > 0) parts << Tr("%1 resolved in the last hour").arg(counts.resolved);
  return parts.join(QStringLiteral("; ")) + u'.';
}

StatusTone ToneOf(const AlertCounts& counts) {
  if (counts.critical > 0) return StatusTone::kBad;
  if (counts.firing > 0 || counts.error > 0) return StatusTone::kWarning;
  if (counts.no_data > 0) return StatusTone::kUnknown;
  return counts.pending > 0 ? StatusTone::kBusy : StatusTone::kGood;
}

std::vector<KeyedTable<AlertRow>::Column> AlertColumns() {
  using Row = AlertRow;
  const auto right = Qt::AlignRight | Qt::AlignVCenter;
  return {
      {Tr("State"),
       Tr("pending: holds, but not for long enough; firing; resolved: is over (kept for an hour); "
          "no data: nobody can tell; error: the rule cannot be computed"),
       ShowCell([](const Row& row) {
         const QString words = row.silenced ? Tr("%1, silenced").arg(row.state) : row.state;
         return TableCell{ToneGlyph(row.tone) + u' ' + words, words, static_cast<int>(row.tone)};
       })},
      {Tr("Severity"),
       {},
       [](const Row& row, int role) -> QVariant {
         if (role == Qt::DisplayRole) return SeverityName(row.alert.severity);
         return role == kSortRole ? QVariant(static_cast<int>(row.alert.severity)) : QVariant();
       }},
      {Tr("Since"), Tr("When it came into this state"), ShowCell([](const Row& row) {
         return TableCell{row.since, qint64(row.alert.since_ms)};
       })},
      {Tr("Entity"), Tr("What it is about; Enter opens it"),
       ShowCell([](const Row& row) { return TableCell{SafeText(row.alert.entity, 80)}; })},
      {Tr("What"), {}, ShowCell([](const Row& row) {
         const QString text = SafeText(row.alert.text, 500);
         return TableCell{text, {}, {}, text};
       })},
      {Tr("Value"), Tr("In the unit that the text says"),
       ShowCell([](const Row& row) { return Number(row.alert.value); }), right},
      {Tr("Threshold"), Tr("Of the rule"),
       ShowCell([](const Row& row) { return Number(row.alert.threshold); }), right},
      {Tr("Seen by"), Tr("Who has acknowledged it; silences nothing, and ends with it"),
       ShowCell([](const Row& row) { return TableCell{row.seen}; })},
      {Tr("Silence"), Tr("Until when it is not counted, and why"), ShowCell([](const Row& row) {
         return TableCell{row.silence, {}, {}, row.silence};
       })},
      {Tr("Rule"), Tr("Its name in the cluster's configuration, or in alerts.yaml"),
       ShowCell([](const Row& row) { return TableCell{SafeText(row.alert.rule, 60)}; })}};
}

}  // namespace onepiece::gui
