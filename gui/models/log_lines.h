// The lines of several processes' logs as one list: in the order of time, with the gaps between
// them, bounded and filtered.
//
// Threading  Thread-confined. Time comes with the lines: no clock.
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

/// "debug", "info", "warning", "error": the command line's words.
QString LogLevelName(v1::LogLevel level);

struct LogRow {
  std::uint64_t number = 0;  ///< Of this list, from 1: lines keep it.
  bool gap = false;          ///< Says what is missing here; is no line of a log.
  std::string node_id;
  std::int64_t written_ns = 0;  ///< By the process's clock.
  std::int64_t unix_ns = 0;     ///< By the console's clock, as far as the difference is known.
  v1::LogLevel level = v1::LOG_LEVEL_UNSPECIFIED;
  QString text;  ///< Safe to show.
  QString job;   ///< Uid of the job that it speaks of; empty: none.
};
using LogRows = std::vector<std::shared_ptr<const LogRow>>;

class LogLines {
 public:
  static constexpr std::size_t kMaxLines = 20'000;  ///< Then the oldest go.
  /// Clocks that are further apart are told, and lines put where they belong.
  static constexpr std::int64_t kMaxSkewMs = 1000;

  struct Filter {
    v1::LogLevel min_level = v1::LOG_INFO;
    QString text;        ///< In the line, its process or its job; case does not matter.
    bool regex = false;  ///< `text` is a regular expression.
    bool operator==(const Filter&) const = default;
  };

  /// What has come since the last call.
  void Take(const LogTail::News& news, std::int64_t now_ms);
  /// A gap that somebody else knows of: "paused".
  void AddGap(const QString& text, std::int64_t now_ms);
  void Clear();
  /// What is wrong with the expression, and the old filter stays; empty: nothing.
  QString SetFilter(const Filter& filter);

  /// What the filter lets through, oldest first. Gaps always are.
  [[nodiscard]] LogRows Shown() const;
  /// Grows whenever Shown() may be another.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }
  [[nodiscard]] std::size_t size() const { return rows_.size(); }
  /// Lines that had to go.
  [[nodiscard]] std::uint64_t forgotten() const { return forgotten_; }
  /// Processes whose clocks are further than kMaxSkewMs from ours: by how much theirs is ahead.
  [[nodiscard]] std::map<std::string, std::int64_t> Skews() const;

 private:
  /// What is known of a process's clock: the smallest time that a line took to get here.
  struct Source {
    std::int64_t first_ms = 0;
    std::int64_t fastest_ms = 0;       ///< Of all lines; below 0: they come from the future.
    std::int64_t fastest_live_ms = 0;  ///< Of those that were written while we listened.
    int live = 0;
    std::int64_t skew_ms = 0;  ///< Of the rows that are kept.
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
