// A table whose rows have keys. An update changes, inserts and removes only the rows that differ,
// so selections, scroll positions and screen readers survive ten updates a second.
//
// Threading: GUI thread only.
#pragma once

#include <QAbstractTableModel>
#include <QHash>
#include <QSet>
#include <QString>
#include <QVariant>
#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "gui/models/format.h"

namespace onepiece::gui {

/// Role of the number or text that a column sorts and exports by. Without it, the display text
/// counts. For a number that is not known a column gives NotKnown() or NaN: the row sorts last, and
/// the export has no value.
inline constexpr int kSortRole = Qt::UserRole;
/// The kSortRole of a number that is not known. It sorts last and is exported as null, never as 0.
inline QVariant NotKnown() { return QVariant::fromValue(nullptr); }
/// Role of a cell's StatusTone (gui/models/format.h).
inline constexpr int kToneRole = Qt::UserRole + 1;
/// Role of a share, 0 to 1. The cell shows it as a bar under its text, in the cell's tone.
inline constexpr int kShareRole = Qt::UserRole + 3;
/// Role of a row's key.
inline constexpr int kKeyRole = Qt::UserRole + 2;

/// All that a cell shows; see ShowCell.
struct TableCell {
  QString text;
  QVariant sort = {};  ///< kSortRole. Without it the text counts.
  QVariant tone = {};  ///< A StatusTone as int.
  QString tip = {};
  QVariant share = {};
};

/// Makes Column::data from a function that makes a TableCell of a row.
template <typename Make>
auto ShowCell(Make make) {
  return [make = std::move(make)](const auto& row, int role) -> QVariant {
    switch (role) {
      case Qt::DisplayRole:
        return make(row).text;
      case kSortRole:
        return make(row).sort;
      case kToneRole:
        return make(row).tone;
      case Qt::ToolTipRole: {
        const QString tip = make(row).tip;
        return tip.isEmpty() ? QVariant() : QVariant(tip);
      }
      case kShareRole:
        return make(row).share;
      default:
        return {};
    }
  };
}

/// A column's data out of a function that gives its number in `unit` (history::SeriesInfo::unit),
/// or nothing where it is not known.
template <typename Get>
auto ShowNumber(const char* unit, Get get) {
  return [get = std::move(get), unit](const auto& row, int role) -> QVariant {
    const std::optional<double> value = get(row);
    if (role == kSortRole) return value ? QVariant(*value) : NotKnown();
    if (role != Qt::DisplayRole) return {};
    return FormatValue(value.value_or(std::numeric_limits<double>::quiet_NaN()), unit);
  };
}

template <typename Row>
class KeyedTable : public QAbstractTableModel {
 public:
  struct Column {
    QString title;
    QString tip;  ///< What the column means, its unit, and which CLI field it equals.
    std::function<QVariant(const Row&, int role)> data;  ///< Answers Qt's roles and those above.
    Qt::Alignment alignment = Qt::AlignLeft | Qt::AlignVCenter;
  };

  KeyedTable(std::vector<Column> columns, std::function<QString(const Row&)> key,
             QObject* parent = nullptr)
      : QAbstractTableModel(parent), columns_(std::move(columns)), key_(std::move(key)) {}

  /// Replaces the rows. They are shown in the order given. If several rows have one key, only the
  /// first is kept. `same` says that a row needs no repainting; it must be false for rows with
  /// different keys.
  void Update(std::vector<Row> rows, const std::function<bool(const Row&, const Row&)>& same);

  [[nodiscard]] const Row& at(int row) const { return rows_[static_cast<std::size_t>(row)]; }
  /// The row with this key; -1 if there is none.
  [[nodiscard]] int RowOf(const QString& key) const;

  int rowCount(const QModelIndex& parent = {}) const override {
    return parent.isValid() ? 0 : static_cast<int>(rows_.size());
  }
  int columnCount(const QModelIndex& parent = {}) const override {
    return parent.isValid() ? 0 : static_cast<int>(columns_.size());
  }
  QVariant data(const QModelIndex& index, int role) const override;
  QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

 private:
  /// An upper bound of the work of a diff: runs of inserted or removed rows, times rows. Beyond it
  /// the model resets instead.
  static constexpr std::size_t kMaxRowMoves = 20'000'000;

  /// At most so many rows are removed at the head without comparing the rest. A full list of log
  /// lines loses its oldest lines this way.
  static constexpr std::size_t kMaxHead = 2000;

  void RemoveHead(const std::vector<Row>& rows,
                  const std::function<bool(const Row&, const Row&)>& same);
  // The steps of Update(). Each step leaves a consistent model, because listeners ask for rows
  // between the steps. Rows before `first` do not change; `end` is the end of the part that does.
  void RemoveMissing(std::size_t first, std::size_t end, const QHash<QString, std::size_t>& wanted);
  void Reorder(std::size_t first, std::size_t end, const QHash<QString, std::size_t>& wanted);
  void InsertNew(std::size_t first, const std::vector<Row>& rows, std::size_t rows_end);
  void Repaint(std::vector<Row>& rows, const std::function<bool(const Row&, const Row&)>& same);

  std::vector<Column> columns_;
  std::function<QString(const Row&)> key_;
  std::vector<Row> rows_;
  mutable QHash<QString, int> index_;  ///< RowOf() builds it when it is empty.
};

template <typename Row>
void KeyedTable<Row>::Update(std::vector<Row> rows,
                             const std::function<bool(const Row&, const Row&)>& same) {
  const auto equal = [&](const Row& a, const Row& b) { return same(a, b) || key_(a) == key_(b); };
  RemoveHead(rows, same);
  // Most updates change little. Rows that are the same at both ends are only repainted.
  std::size_t first = 0, old_end = rows_.size(), new_end = rows.size();
  while (first < old_end && first < new_end && equal(rows_[first], rows[first])) ++first;
  while (old_end > first && new_end > first && equal(rows_[old_end - 1], rows[new_end - 1])) {
    --old_end, --new_end;
  }
  // `wanted` maps the key of each new row to its place. Of several rows with one key the first is
  // kept.
  QHash<QString, std::size_t> wanted;
  std::size_t kept = first;
  for (std::size_t i = first; i < new_end; ++i) {
    const QString key = key_(rows[i]);
    if (wanted.contains(key)) continue;
    wanted.insert(key, kept);
    if (kept != i) rows[kept] = std::move(rows[i]);
    ++kept;
  }
  if (kept != new_end) {
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(kept),
               rows.begin() + static_cast<std::ptrdiff_t>(new_end));
    new_end = kept;
  }
  if (first != old_end || first != new_end) {
    // Each run of removed or inserted rows shifts the rows behind it, so runs × rows bounds the
    // work.
    std::size_t runs = 0;
    for (std::size_t i = first; i < old_end; ++i) {
      const bool gone = !wanted.contains(key_(rows_[i]));
      if (gone && (i == first || wanted.contains(key_(rows_[i - 1])))) ++runs;
    }
    QSet<QString> had;
    for (std::size_t i = first; i < old_end; ++i) had.insert(key_(rows_[i]));
    bool fresh_before = false;
    for (std::size_t i = first; i < new_end; ++i) {
      const bool fresh = !had.contains(key_(rows[i]));
      if (fresh && !fresh_before) ++runs;
      fresh_before = fresh;
    }
    index_.clear();
    if (runs * std::max(rows_.size(), rows.size()) > kMaxRowMoves) {
      this->beginResetModel();
      rows_ = std::move(rows);
      index_.clear();
      this->endResetModel();
      return;
    }
    const std::size_t tail = rows_.size() - old_end;
    RemoveMissing(first, old_end, wanted);
    Reorder(first, rows_.size() - tail, wanted);
    InsertNew(first, rows, new_end);
  }
  Repaint(rows, same);
}

template <typename Row>
void KeyedTable<Row>::RemoveHead(const std::vector<Row>& rows,
                                 const std::function<bool(const Row&, const Row&)>& same) {
  if (rows.empty() || rows_.empty() || same(rows_.front(), rows.front())) return;
  const QString front = key_(rows.front());
  std::size_t head = 0;
  QSet<QString> gone;
  for (; head < rows_.size() && head <= kMaxHead; ++head) {
    const QString key = key_(rows_[head]);
    if (key == front) break;
    gone.insert(key);
  }
  if (head == 0 || head > kMaxHead || head == rows_.size()) return;
  std::size_t kept = 1;
  // Comparing neighbours with `same` makes no keys. Keys of 20,000 log lines, made at each update,
  // kept the GUI thread busy for half of its time.
  while (head + kept < rows_.size() && kept < rows.size() && same(rows_[head + kept], rows[kept])) {
    ++kept;
  }
  // A row that has only moved further down must not be removed: a selection in it would be lost.
  // Update() then reorders it.
  for (std::size_t i = kept; i < rows.size(); ++i) {
    if (i - kept > kMaxHead || gone.contains(key_(rows[i]))) return;
  }
  this->beginRemoveRows({}, 0, static_cast<int>(head) - 1);
  rows_.erase(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(head));
  index_.clear();
  this->endRemoveRows();
}

template <typename Row>
void KeyedTable<Row>::RemoveMissing(std::size_t first, std::size_t end,
                                    const QHash<QString, std::size_t>& wanted) {
  while (end > first) {
    std::size_t begin = end;
    while (begin > first && !wanted.contains(key_(rows_[begin - 1]))) --begin;
    if (begin != end) {
      this->beginRemoveRows({}, static_cast<int>(begin), static_cast<int>(end) - 1);
      rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(begin),
                  rows_.begin() + static_cast<std::ptrdiff_t>(end));
      index_.clear();  // Listeners may call RowOf() during the update.
      this->endRemoveRows();
    }
    end = begin;
    while (end > first && wanted.contains(key_(rows_[end - 1]))) --end;
  }
}

template <typename Row>
void KeyedTable<Row>::Reorder(std::size_t first, std::size_t end,
                              const QHash<QString, std::size_t>& wanted) {
  // Where each row shall be, and where it is.
  std::vector<std::pair<std::size_t, std::size_t>> order;
  order.reserve(end - first);
  for (std::size_t i = first; i < end; ++i) order.emplace_back(wanted.value(key_(rows_[i])), i);
  if (std::is_sorted(order.begin(), order.end())) return;
  this->layoutAboutToBeChanged();
  std::sort(order.begin(), order.end());
  std::vector<Row> moved;
  moved.reserve(order.size());
  std::vector<int> now_at(end - first);
  for (std::size_t i = 0; i < order.size(); ++i) {
    now_at[order[i].second - first] = static_cast<int>(first + i);
    moved.push_back(std::move(rows_[order[i].second]));
  }
  std::move(moved.begin(), moved.end(), rows_.begin() + static_cast<std::ptrdiff_t>(first));
  const QModelIndexList before = this->persistentIndexList();
  QModelIndexList after;
  for (const QModelIndex& index : before) {
    const auto row = static_cast<std::size_t>(index.row());
    after.push_back(row < first || row >= end ? index
                                              : this->index(now_at[row - first], index.column()));
  }
  this->changePersistentIndexList(before, after);
  index_.clear();
  this->layoutChanged();
}

template <typename Row>
void KeyedTable<Row>::InsertNew(std::size_t first, const std::vector<Row>& rows,
                                std::size_t rows_end) {
  QHash<QString, bool> known;
  const std::size_t tail = rows.size() - rows_end;
  for (std::size_t i = first; i + tail < rows_.size(); ++i) known.insert(key_(rows_[i]), true);
  for (std::size_t i = first; i < rows_end;) {
    std::size_t run = i;
    while (run < rows_end && !known.contains(key_(rows[run]))) ++run;
    if (run != i) {
      this->beginInsertRows({}, static_cast<int>(i), static_cast<int>(run) - 1);
      const auto at = static_cast<std::ptrdiff_t>(i);
      rows_.insert(rows_.begin() + at, rows.begin() + at,
                   rows.begin() + static_cast<std::ptrdiff_t>(run));
      index_.clear();
      this->endInsertRows();
    }
    i = std::max(run, i + 1);
  }
}

template <typename Row>
void KeyedTable<Row>::Repaint(std::vector<Row>& rows,
                              const std::function<bool(const Row&, const Row&)>& same) {
  const int last_column = static_cast<int>(columns_.size()) - 1;
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t run = i;
    while (run < rows.size() && !same(rows_[run], rows[run])) {
      rows_[run] = std::move(rows[run]);
      ++run;
    }
    if (run != i) {
      Q_EMIT this->dataChanged(this->index(static_cast<int>(i), 0),
                               this->index(static_cast<int>(run) - 1, last_column));
    }
    i = std::max(run, i + 1);
  }
}

template <typename Row>
int KeyedTable<Row>::RowOf(const QString& key) const {
  if (index_.isEmpty() && !rows_.empty()) {
    for (std::size_t i = 0; i < rows_.size(); ++i) index_.insert(key_(rows_[i]), int(i));
  }
  return index_.value(key, -1);
}

template <typename Row>
QVariant KeyedTable<Row>::data(const QModelIndex& index, int role) const {
  if (!index.isValid() || index.row() >= rowCount() || index.column() >= columnCount()) return {};
  const Column& column = columns_[static_cast<std::size_t>(index.column())];
  const Row& row = at(index.row());
  if (role == kKeyRole) return key_(row);
  if (role == Qt::TextAlignmentRole) return QVariant(column.alignment);
  const QVariant value = column.data(row, role);
  if (role == Qt::ToolTipRole && value.typeId() == QMetaType::QString) {
    return SafeTip(value.toString());
  }
  if (!value.isValid() && role == kSortRole) return column.data(row, Qt::DisplayRole);
  return value;
}

template <typename Row>
QVariant KeyedTable<Row>::headerData(int section, Qt::Orientation orientation, int role) const {
  if (orientation != Qt::Horizontal || section < 0 || section >= columnCount()) return {};
  const Column& column = columns_[static_cast<std::size_t>(section)];
  if (role == Qt::DisplayRole) return column.title;
  if (role == Qt::ToolTipRole && !column.tip.isEmpty()) return column.tip;
  if (role == Qt::TextAlignmentRole) return QVariant(column.alignment);
  return {};
}

}  // namespace onepiece::gui
