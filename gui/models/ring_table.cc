#include "gui/models/ring_table.h"

#include <QStringList>
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

template <typename Row, typename Get>
typename KeyedTable<Row>::Column Number(const char* title, const char* tip, const char* unit,
                                        Get get) {
  return {Tr(title), Tr(tip), ShowNumber(unit, get), Qt::AlignRight | Qt::AlignVCenter};
}

using Column = KeyedTable<RingRow>::Column;

/// A column of a number in the last answer. Empty before the first answer.
template <typename Get>
Column Health(const char* title, const char* tip, const char* unit, Get get) {
  return Number<RingRow>(title, tip, unit, [get](const RingRow& row) -> std::optional<double> {
    if (row.ring.as_of_ms <= 0) return std::nullopt;
    return static_cast<double>(std::invoke(get, row.ring.health));
  });
}

Column Rate(const char* title, const char* tip, const char* unit,
            double session::RingRates::*rate) {
  return Number<RingRow>(title, tip, unit, [rate](const RingRow& row) -> std::optional<double> {
    if (!row.ring.rates) return std::nullopt;
    return (*row.ring.rates).*rate;
  });
}

std::vector<Column> Columns() {
  using H = v1::RingHealth;
  const auto counter = [](auto get) {
    return [get](const H& health) { return (health.counters().*get)(); };
  };
  using C = v1::RingCounters;
  return {
      {Tr("Ring"), Tr("The node that takes its messages out; node_id"),
       [](const RingRow& row, int role) {
         return role == Qt::DisplayRole ? QVariant(row.node) : QVariant();
       }},
      {Tr("Verdict"), RingThresholdsText(),
       [](const RingRow& row, int role) -> QVariant {
         const StatusTone tone = RingStateTone(row.verdict.state);
         if (role == Qt::DisplayRole) {
           return ToneGlyph(tone) + u' ' + RingStateName(row.verdict.state);
         }
         if (role == Qt::ToolTipRole) return row.verdict.text;
         if (role == kToneRole) return static_cast<int>(tone);
         return role == kSortRole ? QVariant(RingStateName(row.verdict.state)) : QVariant();
       }},
      Number<RingRow>("Producers", "Connected now; producers[].connected", "1",
                      [](const RingRow& row) -> std::optional<double> {
                        if (row.ring.as_of_ms <= 0) return std::nullopt;
                        return row.connected;
                      }),
      Health("Slots", "Messages that fit; slots", "1", &H::slots),
      Health("Used", "Slots of messages whose bytes are not given back yet; used_slots", "1",
             &H::used_slots),
      Health("Used bytes", "Payload bytes held; used_bytes", "bytes", &H::used_bytes),
      Health("Capacity", "Payload bytes that fit; capacity_bytes", "bytes", &H::capacity_bytes),
      Health("Oldest", "How long the oldest message has been seen waiting; oldest_age_ms", "ms",
             &H::oldest_age_ms),
      Number<RingRow>("Put/s",
                      "Messages a second put in: Get/s and what the used slots grew by. Dropped "
                      "ones do not count",
                      "1/s", [](const RingRow& row) { return row.put_per_s; }),
      Rate("Get/s", "Messages a second taken out; from counters.delivered", "1/s",
           &session::RingRates::messages_per_s),
      Rate("Bytes/s", "Taken out; from counters.delivered_bytes", "bytes/s",
           &session::RingRates::bytes_per_s),
      Rate("Stalls/s", "Times a second that a live producer held it up; from counters.stalls",
           "1/s", &session::RingRates::stalls_per_s),
      Rate("Corrupt/s", "Messages a second dropped as corrupt; from counters.corrupted", "1/s",
           &session::RingRates::corrupted_per_s),
      Health("Corrupt", "Since the process began; counters.corrupted", "1", counter(&C::corrupted)),
      Health("Duplicates", "Resends of what had arrived; counters.duplicates", "1",
             counter(&C::duplicates)),
      Health("Moves", "To fresh memory; counters.moves", "1", counter(&C::moves)),
      Health("Generation", "Epoch: changes when the ring moves to fresh memory; generation", "1",
             &H::generation),
      {Tr("Shape"), Tr("One memory for all producers, or one for each; shape"),
       [](const RingRow& row, int role) -> QVariant {
         if (role != Qt::DisplayRole || row.ring.as_of_ms <= 0) return {};
         return row.ring.health.shape() == v1::RING_SHAPE_PER_PRODUCER
                    ? QStringLiteral("per_producer")
                    : QStringLiteral("shared");
       }},
  };
}

std::vector<KeyedTable<v1::RingProducer>::Column> ProducerColumns() {
  using P = v1::RingProducer;
  const auto number = [](const char* title, const char* tip, const char* unit, auto get) {
    return Number<P>(title, tip, unit, [get](const P& row) {
      return std::optional<double>(static_cast<double>((row.*get)()));
    });
  };
  return {
      {Tr("Producer"), Tr("As it introduced itself; node_id"),
       [](const P& row, int role) {
         return role == Qt::DisplayRole ? QVariant(SafeText(row.node_id(), 64)) : QVariant();
       }},
      {Tr("State"), Tr("connected"),
       [](const P& row, int role) -> QVariant {
         const StatusTone tone = row.connected() ? StatusTone::kGood : StatusTone::kNeutral;
         if (role == kToneRole) return static_cast<int>(tone);
         if (role != Qt::DisplayRole) return {};
         return ToneGlyph(tone) + u' ' + (row.connected() ? Tr("connected") : Tr("gone"));
       }},
      number("Process", "pid", "1", &P::pid),
      number("Delivered", "Messages; delivered", "1", &P::delivered),
      number("Bytes", "delivered_bytes", "bytes", &P::delivered_bytes),
      number("Duplicates", "duplicates", "1", &P::duplicates),
      number("Corrupt", "corrupted", "1", &P::corrupted),
      number("Stalls", "Times that it held the ring up; stalls", "1", &P::stalls),
      number("Hostile", "Memories given up for what no honest producer writes; hostile", "1",
             &P::hostile),
      number("Seen", "How long ago; last_seen_age_ms", "ms", &P::last_seen_age_ms),
      number("Admissions", "So far; admissions", "1", &P::admissions),
  };
}

bool SameHealth(const session::RingEntry& a, const session::RingEntry& b) {
  const auto rates = [](const session::RingEntry& ring) {
    return ring.rates ? std::array{ring.rates->messages_per_s, ring.rates->bytes_per_s,
                                   ring.rates->stalls_per_s, ring.rates->corrupted_per_s}
                      : std::array{-1.0, -1.0, -1.0, -1.0};
  };
  return a.as_of_ms == b.as_of_ms && a.incarnation == b.incarnation && a.error == b.error &&
         a.health.used_slots() == b.health.used_slots() &&
         a.health.counters().delivered() == b.health.counters().delivered() && rates(a) == rates(b);
}

bool Same(const RingRow& a, const RingRow& b) {
  return a.key == b.key && a.verdict.state == b.verdict.state && a.verdict.text == b.verdict.text &&
         a.put_per_s == b.put_per_s && SameHealth(a.ring, b.ring);
}

}  // namespace

RingTable::RingTable()
    : table_(std::make_unique<KeyedTable<RingRow>>(Columns(),
                                                   [](const RingRow& row) { return row.key; })),
      producers_(std::make_unique<KeyedTable<v1::RingProducer>>(
          ProducerColumns(),
          [](const v1::RingProducer& row) { return QString::number(row.producer_id(), 16); })) {}

std::optional<double> RingTable::PutRate(const session::RingEntry& ring) {
  Before& before = before_[ring.node_id];
  if (before.as_of_ms == ring.as_of_ms && before.incarnation == ring.incarnation) {
    return before.put_per_s;
  }
  std::optional<double> rate;
  const double seconds = static_cast<double>(ring.as_of_ms - before.as_of_ms) * 1e-3;
  // If more time lies between two answers, they are not neighbours: the page was hidden, or another
  // time is shown.
  constexpr double kNeighbourS = 5;
  if (ring.rates && before.incarnation == ring.incarnation && seconds > 0 &&
      seconds <= kNeighbourS) {
    const double grown =
        static_cast<double>(ring.health.used_slots()) - static_cast<double>(before.used_slots);
    rate = std::max(0.0, ring.rates->messages_per_s + grown / seconds);
  }
  before = {ring.as_of_ms, ring.incarnation, ring.health.used_slots(), rate};
  return rate;
}

void RingTable::Show(const session::Snapshot& snapshot) {
  std::vector<RingRow> rows;
  std::map<RingState, int> states;
  const session::Part<session::Rings>& part = snapshot.rings;
  if (part.value == nullptr) {
    before_.clear();
    headline_ = part.error.empty() ? Tr("No ring has answered yet.")
                                   : Tr("No ring has answered: %1").arg(SafeText(part.error));
    tone_ = StatusTone::kUnknown;
    table_->Update({}, Same);
    return;
  }
  rows.reserve(part.value->size());
  for (const session::RingEntry& ring : *part.value) {
    RingRow row;
    row.ring = ring;
    row.key = QStringLiteral("ring/") + QString::fromStdString(ring.node_id);
    row.node = SafeText(ring.node_id, 64);
    row.verdict = JudgeRing(ring, snapshot.at_ms);
    row.connected = static_cast<int>(std::ranges::count_if(
        ring.health.producers(), [](const auto& one) { return one.connected(); }));
    row.put_per_s = PutRate(ring);
    ++states[row.verdict.state];
    rows.push_back(std::move(row));
  }
  if (before_.size() > 2 * rows.size() + 16) before_.clear();  // Forgets rings that are gone.
  QStringList words;
  // RingState is ordered from good to bad, so the reverse order names the worst first.
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    words.append(QStringLiteral("%1 %2").arg(state->second).arg(RingStateName(state->first)));
  }
  headline_ = rows.empty() ? Tr("No instance and no database has a ring.")
                           : Tr("%1 rings: %2.").arg(rows.size()).arg(words.join(u", "));
  tone_ = states.empty() ? StatusTone::kNeutral : RingStateTone(states.rbegin()->first);
  if (!part.error.empty()) {
    headline_ += Tr(" Stale, of %1: %2")
                     .arg(FormatTime(part.as_of_ms, snapshot.at_ms), SafeText(part.error));
  }
  table_->Update(std::move(rows), Same);
}

const RingRow* RingTable::Find(const QString& key) const {
  const int row = table_->RowOf(key);
  return row < 0 ? nullptr : &table_->at(row);
}

void RingTable::ShowProducers(const QString& key) {
  std::vector<v1::RingProducer> rows;
  if (const RingRow* row = Find(key)) {
    rows.assign(row->ring.health.producers().begin(), row->ring.health.producers().end());
  }
  producers_->Update(std::move(rows), [](const v1::RingProducer& a, const v1::RingProducer& b) {
    return a.producer_id() == b.producer_id() && a.connected() == b.connected() &&
           a.delivered() == b.delivered() && a.last_seen_age_ms() == b.last_seen_age_ms() &&
           a.stalls() == b.stalls() && a.corrupted() == b.corrupted() &&
           a.duplicates() == b.duplicates() && a.hostile() == b.hostile();
  });
}

std::vector<QString> RingTable::Worst(std::size_t max) const {
  std::vector<const RingRow*> rows;
  for (int i = 0; i < table_->rowCount(); ++i) rows.push_back(&table_->at(i));
  std::ranges::stable_sort(rows, [](const RingRow* a, const RingRow* b) {
    const auto rank = [](const RingRow* row) {
      return std::pair(RingStateTone(row->verdict.state) == StatusTone::kBad,
                       RingFill(row->ring.health).value_or(0));
    };
    return rank(a) > rank(b);
  });
  if (rows.size() > max) rows.resize(max);
  std::vector<QString> keys;
  for (const RingRow* row : rows) keys.push_back(row->key);
  return keys;
}

HeatGrid RingHistory(const std::vector<ChartSeries>& used, const std::vector<QString>& keys,
                     const std::vector<double>& slots, history::Interval interval, int columns) {
  HeatGrid grid;
  const std::int64_t span_ms =
      std::max<std::int64_t>(1, (interval.to_ms - interval.from_ms + columns - 1) / columns);
  const std::int64_t first_ms = interval.from_ms / span_ms * span_ms;
  for (int i = 0; i < columns; ++i) {
    grid.columns.append(FormatTime(first_ms + i * span_ms, interval.to_ms));
  }
  for (std::size_t line = 0; line < used.size(); ++line) {
    grid.rows.append(used[line].title);
    std::vector<double> most(static_cast<std::size_t>(columns), std::nan(""));
    for (const history::SeriesPoint& point : used[line].points) {
      const std::int64_t place = (point.at_ms - first_ms) / span_ms;
      if (std::isnan(point.max) || point.at_ms < first_ms || place >= columns) continue;
      double& cell = most[static_cast<std::size_t>(place)];
      cell = std::isnan(cell) ? point.max : std::max(cell, point.max);
    }
    for (int i = 0; i < columns; ++i) {
      const double value = most[static_cast<std::size_t>(i)];
      HeatCell cell;
      cell.key = QStringLiteral("%1@%2").arg(keys[line]).arg(i);
      cell.state = CellState::kNotAvailable;
      if (!std::isnan(value) && slots[line] > 0) {
        cell.state = CellState::kValue;
        cell.value = value;
        cell.share = value / slots[line];
        cell.text = FormatShare(cell.share);
      }
      cell.tip =
          Tr("%1, from %2 on: %3")
              .arg(used[line].title, grid.columns[i],
                   std::isnan(value) ? Tr("not known") : Tr("at most %1 slots used").arg(value));
      grid.cells.push_back(std::move(cell));
    }
  }
  return grid;
}

}  // namespace onepiece::gui
