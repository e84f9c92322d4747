#include "gui/models/log_lines.h"

#include <QDateTime>
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
// A stream begins with old lines, whose delay says nothing of the clock. A line that arrives so
// long after the first one was written while we listened.
constexpr std::int64_t kBacklogMs = 5000;
// Fewer live lines than this do not tell a slow clock from a slow line.
constexpr int kLinesForSkew = 3;
constexpr int kMaxText = 4096;

StatusTone ToneOf(const LogRow& row) {
  if (row.gap) return StatusTone::kUnknown;
  switch (row.level) {
    case v1::LOG_ERROR:
      return StatusTone::kBad;
    case v1::LOG_WARNING:
      return StatusTone::kWarning;
    default:
      return StatusTone::kNeutral;
  }
}

QString JobIn(const QString& text) {
  static const QRegularExpression kUid(QStringLiteral(
      "\\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\\b"));
  const auto found = kUid.match(text);
  return found.hasMatch() ? found.captured() : QString();
}

}  // namespace

QString LogLevelName(v1::LogLevel level) {
  switch (level) {
    case v1::LOG_DEBUG:
      return Tr("debug");
    case v1::LOG_INFO:
      return Tr("info");
    case v1::LOG_WARNING:
      return Tr("warning");
    case v1::LOG_ERROR:
      return Tr("error");
    default:
      return Tr("unknown");
  }
}

void LogLines::Hear(Source& source, std::int64_t delay_ms, std::int64_t now_ms) {
  if (source.first_ms == 0) {
    source.first_ms = now_ms;
    source.fastest_ms = delay_ms;
  }
  source.fastest_ms = std::min(source.fastest_ms, delay_ms);
  if (now_ms - source.first_ms < kBacklogMs) return;
  source.fastest_live_ms = source.live == 0 ? delay_ms : std::min(source.fastest_live_ms, delay_ms);
  ++source.live;
}

void LogLines::Take(const session::LogTail::News& news, std::int64_t now_ms) {
  std::map<std::string, std::string> unreachable(news.unreachable.begin(), news.unreachable.end());
  for (const auto& [id, why] : unreachable) {
    if (unreachable_.contains(id)) continue;
    AddGap(Tr("%1 cannot be read: %2").arg(SafeText(id, 60), SafeText(why, 200)), now_ms);
    // When the process is back, its stream begins with old lines again.
    sources_[id].first_ms = 0;
    sources_[id].live = 0;
  }
  for (const auto& [id, why] : unreachable_) {
    if (!unreachable.contains(id))
      AddGap(Tr("%1 can be read again.").arg(SafeText(id, 60)), now_ms);
  }
  unreachable_ = std::move(unreachable);
  if (news.dropped > 0) {
    // The dropped lines were older than those that came, so the gap stands in front of them.
    const std::int64_t at_ms =
        news.entries.empty() ? now_ms : news.entries.front().line.unix_ns() / kNsPerMs;
    AddGap(Tr("%1 lines were dropped: more came than could be taken.").arg(news.dropped),
           std::min(at_ms, now_ms));
  }
  for (const session::LogEntry& entry : news.entries) {
    Source& source = sources_[entry.node_id];
    const v1::LogLine& line = entry.line;
    // A new stream repeats old lines: they have a known number and a known time. A restarted
    // process counts from 1 again, but its lines are newer.
    if (line.number() <= source.last_number && line.unix_ns() <= source.last_ns) continue;
    source.last_number = line.number();
    source.last_ns = line.unix_ns();
    Hear(source, now_ms - line.unix_ns() / kNsPerMs, now_ms);
    LogRow row;
    row.node_id = entry.node_id;
    row.written_ns = line.unix_ns();
    row.unix_ns = line.unix_ns() - source.skew_ms * kNsPerMs;
    row.level = line.level();
    row.text = SafeText(line.text(), kMaxText);
    row.job = JobIn(row.text);
    Add(std::move(row));
  }
  for (const auto& [id, skew_ms] : Skews()) {
    if (std::abs(skew_ms - sources_[id].skew_ms) > kMaxSkewMs / 2) Correct(id, skew_ms);
  }
}

std::map<std::string, std::int64_t> LogLines::Skews() const {
  std::map<std::string, std::int64_t> skews;
  for (const auto& [id, source] : sources_) {
    // A line from the future proves a clock that is ahead, even an old line. Only live lines prove
    // one that is behind.
    if (source.first_ms != 0 && source.fastest_ms < -kMaxSkewMs) {
      skews[id] = -source.fastest_ms;
    } else if (source.live >= kLinesForSkew && source.fastest_live_ms > kMaxSkewMs) {
      skews[id] = -source.fastest_live_ms;
    }
  }
  return skews;
}

void LogLines::Correct(const std::string& node_id, std::int64_t skew_ms) {
  sources_[node_id].skew_ms = skew_ms;
  for (auto& row : rows_) {
    if (row->gap || row->node_id != node_id) continue;
    // Views share the rows, so a row that moves is replaced and never changed.
    LogRow moved = *row;
    moved.unix_ns = moved.written_ns - skew_ms * kNsPerMs;
    row = std::make_shared<const LogRow>(std::move(moved));
  }
  std::ranges::stable_sort(rows_, {}, [](const auto& row) { return row->unix_ns; });
  ++changes_;
}

void LogLines::AddGap(const QString& text, std::int64_t now_ms) {
  LogRow row;
  row.gap = true;
  row.written_ns = row.unix_ns = now_ms * kNsPerMs;
  row.text = text;
  Add(std::move(row));
}

void LogLines::Add(LogRow row) {
  row.number = ++last_;
  // New lines nearly always belong at the end, so the search begins there.
  auto place = rows_.end();
  while (place != rows_.begin() && (*std::prev(place))->unix_ns > row.unix_ns) --place;
  rows_.insert(place, std::make_shared<const LogRow>(std::move(row)));
  while (rows_.size() > kMaxLines) {
    rows_.pop_front();
    ++forgotten_;
  }
  ++changes_;
}

void LogLines::Clear() {
  rows_.clear();
  sources_.clear();
  unreachable_.clear();
  forgotten_ = 0;
  ++changes_;
}

QString LogLines::SetFilter(const Filter& filter) {
  if (filter == filter_) return {};
  QRegularExpression expression;
  if (filter.regex) {
    expression = QRegularExpression(filter.text, QRegularExpression::CaseInsensitiveOption);
    if (!expression.isValid()) {
      return Tr("The expression is not complete: %1, at character %2.")
          .arg(expression.errorString())
          .arg(expression.patternErrorOffset() + 1);
    }
  }
  filter_ = filter;
  expression_ = expression;
  ++changes_;
  return {};
}

bool LogLines::Passes(const LogRow& row) const {
  if (row.gap) return true;
  if (row.level < filter_.min_level) return false;
  if (filter_.text.isEmpty()) return true;
  const QString node = QString::fromStdString(row.node_id);
  if (filter_.regex) return row.text.contains(expression_) || node.contains(expression_);
  return row.text.contains(filter_.text, Qt::CaseInsensitive) ||
         node.contains(filter_.text, Qt::CaseInsensitive);
}

LogRows LogLines::Shown() const {
  LogRows shown;
  shown.reserve(rows_.size());
  for (const auto& row : rows_) {
    if (Passes(*row)) shown.push_back(row);
  }
  return shown;
}

std::vector<KeyedTable<std::shared_ptr<const LogRow>>::Column> LogColumns() {
  using Row = std::shared_ptr<const LogRow>;
  return {{Tr("Time"),
           Tr("By the console's clock, corrected where a process's clock is known to differ"),
           [](const Row& row, int role) -> QVariant {
             if (role == Qt::DisplayRole) {
               return QDateTime::fromMSecsSinceEpoch(row->unix_ns / kNsPerMs)
                   .toString(QStringLiteral("HH:mm:ss.zzz"));
             }
             if (role == kSortRole) return qint64(row->unix_ns);
             return {};
           }},
          {Tr("Process"),
           {},
           [](const Row& row, int role) -> QVariant {
             return role == Qt::DisplayRole ? QVariant(SafeText(row->node_id, 40)) : QVariant();
           }},
          {Tr("Level"),
           {},
           [](const Row& row, int role) -> QVariant {
             if (role == Qt::DisplayRole) {
               const QString word = row->gap ? Tr("gap") : LogLevelName(row->level);
               const StatusTone tone = ToneOf(*row);
               return tone == StatusTone::kNeutral ? word : ToneGlyph(tone) + u' ' + word;
             }
             if (role == kSortRole) return static_cast<int>(row->level);
             return role == kToneRole ? QVariant(static_cast<int>(ToneOf(*row))) : QVariant();
           }},
          {Tr("Job"), Tr("The job that the line speaks of; a click opens it"),
           [](const Row& row, int role) -> QVariant {
             if (role == Qt::DisplayRole) return row->job.left(8);
             return role == kSortRole || role == Qt::ToolTipRole ? QVariant(row->job) : QVariant();
           }},
          {Tr("Text"), {}, [](const Row& row, int role) -> QVariant {
             if (role == Qt::DisplayRole) {
               return row->gap ? QStringLiteral("——— %1 ———").arg(row->text) : row->text;
             }
             if (role == Qt::ToolTipRole || role == kSortRole) return row->text;
             const StatusTone tone = ToneOf(*row);
             return role == kToneRole && tone != StatusTone::kNeutral
                        ? QVariant(static_cast<int>(tone))
                        : QVariant();
           }}};
}

}  // namespace onepiece::gui
