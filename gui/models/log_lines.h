// The log lines of several processes as one list: ordered by time, with the gaps between them,
// bounded and filtered.
//
// Threading: thread-confined.
#pragma once

#include <QRegularExpression>
#include <QString>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cluster/session/log_tail.h"
#include "gui/models/format.h"
#include "gui/models/keyed_table.h"

namespace onepiece::gui {

/// "debug", "info", "warning", "error", as the CLI writes them.
QString LogLevelName(v1::LogLevel level);

/// One line of the list: a log line, or a gap.
struct LogRow {
  std::uint64_t number = 0;  ///< Number in this list, from 1. A line keeps its number.
  bool gap = false;          ///< Says what is missing here. It is not a line of a log.
  std::string node_id;
  std::int64_t written_ns = 0;  ///< By the process's clock.
  std::int64_t unix_ns = 0;     ///< By the console's clock, as far as the difference is known.
  v1::LogLevel level = v1::LOG_LEVEL_UNSPECIFIED;
  QString text;  ///< Safe to show.
  QString job;   ///< Uid of the job that the line names. Empty if none.
};
using LogRows = std::vector<std::shared_ptr<const LogRow>>;

/// The list. Time comes with the lines and the calls; the class reads no clock.
class LogLines {
 public:
  static constexpr std::size_t kMaxLines = 20'000;  ///< Beyond that the oldest lines go.
  /// If a process's clock differs by more than this, Skews() names it and its lines are moved to
  /// where they belong.
  static constexpr std::int64_t kMaxSkewMs = 1000;

  struct Filter {
    v1::LogLevel min_level = v1::LOG_INFO;
    QString text;        ///< Occurs in the line or in its process's name. Case does not matter.
    bool regex = false;  ///< `text` is a regular expression.
    bool operator==(const Filter&) const = default;
  };

  /// Adds what has come since the last call. `now_ms` is the time of the call.
  void Take(const session::LogTail::News& news, std::int64_t now_ms);
  /// Adds a gap that the caller knows of: "paused".
  void AddGap(const QString& text, std::int64_t now_ms);
  void Clear();
  /// Sets the filter. If its expression is not valid, the old filter stays and the answer says what
  /// is wrong. Empty if it was set.
  QString SetFilter(const Filter& filter);

  /// The lines that pass the filter, oldest first. Gaps always pass.
  [[nodiscard]] LogRows Shown() const;
  /// Grows whenever Shown() may have changed.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  [[nodiscard]] std::size_t size() const { return rows_.size(); }
  /// Lines dropped because of kMaxLines.
  [[nodiscard]] std::uint64_t forgotten() const { return forgotten_; }
  /// The processes whose clocks differ by more than kMaxSkewMs, and by how many milliseconds each
  /// is ahead of ours.
  [[nodiscard]] std::map<std::string, std::int64_t> Skews() const;

 private:
  /// What is known of a process's clock. The smallest delay of a line is taken as the clock's
  /// difference.
  struct Source {
    std::int64_t first_ms = 0;
    /// Smallest delay of all lines. Below 0 when they come from the future.
    std::int64_t fastest_ms = 0;
    /// Smallest delay of the lines that were written while we listened.
    std::int64_t fastest_live_ms = 0;
    int live = 0;
    std::int64_t skew_ms = 0;  ///< The skew that the kept rows are corrected by.
    std::uint64_t last_number = 0;
    std::int64_t last_ns = 0;
  };
  void Add(LogRow row);
  void Hear(Source& source, std::int64_t delay_ms, std::int64_t now_ms);
  void Correct(const std::string& node_id, std::int64_t skew_ms);
  [[nodiscard]] bool Passes(const LogRow& row) const;

  std::deque<std::shared_ptr<const LogRow>> rows_;  // By unix_ns.
  std::map<std::string, Source> sources_;
  std::map<std::string, std::string> unreachable_;
  Filter filter_;
  QRegularExpression expression_;
  std::uint64_t last_ = 0, changes_ = 0, forgotten_ = 0;
};

std::vector<KeyedTable<std::shared_ptr<const LogRow>>::Column> LogColumns();

}  // namespace onepiece::gui
