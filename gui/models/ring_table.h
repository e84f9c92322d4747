// All rings with their numbers and verdicts, the producers of one ring, and how full rings were
// over time.
//
// Threading: GUI thread only.
#pragma once

#include <QString>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/session/snapshot.h"
#include "gui/models/chart_series.h"
#include "gui/models/heat_grid.h"
#include "gui/models/keyed_table.h"
#include "gui/models/ring_verdict.h"

namespace onepiece::gui {

/// One ring.
struct RingRow {
  session::RingEntry ring;
  QString key;   ///< "ring/NODE"
  QString node;  ///< Safe to show.
  RingVerdict verdict;
  int connected = 0;
  /// Get/s plus the growth of the used slots, between the last two answers that were shown.
  std::optional<double> put_per_s;
};

/// The rows of the page "Rings".
class RingTable {
 public:
  RingTable();
  void Show(const session::Snapshot& snapshot);
  [[nodiscard]] KeyedTable<RingRow>& table() { return *table_; }
  [[nodiscard]] const RingRow* Find(const QString& key) const;
  /// Shows the producers of one ring in producers(). Shows none if there is no such ring.
  void ShowProducers(const QString& key);
  [[nodiscard]] KeyedTable<v1::RingProducer>& producers() { return *producers_; }
  /// "200 rings: 3 Backpressured, 190 Flowing, …", the worst first. Says why when nothing is known.
  [[nodiscard]] const QString& headline() const { return headline_; }
  [[nodiscard]] StatusTone tone() const { return tone_; }
  /// At most `max` keys: first the rings with a bad verdict, then the others; the fuller ones first
  /// in both.
  [[nodiscard]] std::vector<QString> Worst(std::size_t max) const;

 private:
  std::optional<double> PutRate(const session::RingEntry& ring);

  struct Before {
    std::int64_t as_of_ms = 0;
    std::uint64_t incarnation = 0, used_slots = 0;
    std::optional<double> put_per_s;
  };
  std::map<std::string, Before> before_;  ///< By node id.
  std::unique_ptr<KeyedTable<RingRow>> table_;
  std::unique_ptr<KeyedTable<v1::RingProducer>> producers_;
  QString headline_;
  StatusTone tone_ = StatusTone::kNeutral;
};

/// How full rings were: a line for each series, a column for each of at most `columns` spans of the
/// interval. A cell shows the largest share of used slots in its span. `keys` and `slots` are by
/// line. If the number of slots of a ring is not known (0), its cells are gaps.
HeatGrid RingHistory(const std::vector<ChartSeries>& used, const std::vector<QString>& keys,
                     const std::vector<double>& slots, history::Interval interval, int columns);

}  // namespace onepiece::gui
