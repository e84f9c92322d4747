// Every ring with its numbers and its verdict; its producers; how full it was over time.
//
// Threading  GUI thread only.
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

struct RingRow {
  RingEntry ring;
  QString key;   ///< "ring/NODE"
  QString node;  ///< Safe to show.
  RingVerdict verdict;
  int connected = 0;
  /// Get/s and what the used slots grew by, between the last two answers that were shown.
  std::optional<double> put_per_s;
};

class RingTable {
 public:
  RingTable();
  void Show(const Snapshot& snapshot);
  [[nodiscard]] KeyedTable<RingRow>& table() { return *table_; }
  [[nodiscard]] const RingRow* Find(const QString& key) const;
  /// The producers of one ring; nobody's when there is no such ring.
  void ShowProducers(const QString& key);
  [[nodiscard]] KeyedTable<v1::RingProducer>& producers() { return *producers_; }
  /// "200 rings: 3 Backpressured, 190 Flowing, …": the worst first; why nothing is known.
  [[nodiscard]] const QString& headline() const { return headline_; }
  [[nodiscard]] StatusTone tone() const { return tone_; }
  /// Keys, the worst verdict first, then the fullest; at most `max`.
  [[nodiscard]] std::vector<QString> Worst(std::size_t max) const;

 private:
  std::optional<double> PutRate(const RingEntry& ring);

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
/// interval. A cell is the largest share in its span; `slots` says what full is, by line; where
/// that is not known (0) there are gaps. Keys as given.
HeatGrid RingHistory(const std::vector<ChartSeries>& used, const std::vector<QString>& keys,
                     const std::vector<double>& slots, history::Interval interval, int columns);

}  // namespace onepiece::gui
