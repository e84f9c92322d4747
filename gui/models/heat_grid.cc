#include "gui/models/heat_grid.h"

#include <algorithm>
#include <utility>

#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

QString Shown(const HeatCell& cell) {
  switch (cell.state) {
    case CellState::kNone:
      return {};
    case CellState::kValue:
    case CellState::kStale:
      return cell.text;
    case CellState::kNotAvailable:
      return Tr("N/A");
    case CellState::kWarmingUp:
      return QStringLiteral("…");
  }
  return {};
}

QString Spoken(const HeatCell& cell) {
  if (cell.state == CellState::kNone) return Tr("nothing");
  QStringList words;
  if (!cell.label.isEmpty()) words.append(cell.label);
  if (cell.state == CellState::kValue || cell.state == CellState::kStale) words.append(cell.text);
  if (cell.state != CellState::kValue) words.append(CellStateName(cell.state));
  if (!cell.warning.isEmpty()) words.append(cell.warning);
  return words.join(QStringLiteral(", "));
}

}  // namespace

QString CellStateName(CellState state) {
  switch (state) {
    case CellState::kNone:
      return {};
    case CellState::kValue:
      return Tr("current");
    case CellState::kNotAvailable:
      return Tr("N/A");
    case CellState::kWarmingUp:
      return Tr("warming up");
    case CellState::kStale:
      return Tr("stale");
  }
  return {};
}

void HeatModel::Show(HeatGrid grid) {
  if (grid.rows != grid_.rows || grid.columns.size() != grid_.columns.size()) {
    beginResetModel();
    grid_ = std::move(grid);
    endResetModel();
    return;
  }
  const bool other_columns = grid.columns != grid_.columns;
  const auto width = static_cast<std::ptrdiff_t>(grid_.columns.size());
  std::swap(grid_, grid);
  if (width == 0) return;
  if (other_columns) Q_EMIT headerDataChanged(Qt::Horizontal, 0, static_cast<int>(width) - 1);
  for (int row = 0; row < rowCount(); ++row) {
    const auto now = grid_.cells.begin() + row * width, before = grid.cells.begin() + row * width;
    if (std::equal(now, now + width, before)) continue;
    Q_EMIT dataChanged(index(row, 0), index(row, static_cast<int>(width) - 1));
  }
}

QModelIndex HeatModel::Find(const QString& key) const {
  if (key.isEmpty()) return {};
  const auto at = std::ranges::find(grid_.cells, key, &HeatCell::key);
  if (at == grid_.cells.end()) return {};
  const auto place = static_cast<int>(at - grid_.cells.begin());
  return index(place / columnCount(), place % columnCount());
}

QVariant HeatModel::data(const QModelIndex& index, int role) const {
  if (!index.isValid() || index.row() >= rowCount() || index.column() >= columnCount()) return {};
  const HeatCell& cell = Cell(index.row(), index.column());
  switch (role) {
    case Qt::DisplayRole:
      return Shown(cell);
    case Qt::ToolTipRole:
      return cell.tip.isEmpty() ? QVariant() : QVariant(SafeTip(cell.tip));
    case Qt::AccessibleTextRole:
      return Spoken(cell);
    case Qt::TextAlignmentRole:
      return QVariant(Qt::AlignCenter);
    case kSortRole:
      return cell.state == CellState::kValue ? QVariant(cell.value) : QVariant();
    case kKeyRole:
      return cell.key;
    case kStateRole:
      return static_cast<int>(cell.state);
    case kHeatRole:
      return cell.share;
    case kLabelRole:
      return cell.label;
    case kWarningRole:
      return cell.warning;
    default:
      return {};
  }
}

QVariant HeatModel::headerData(int section, Qt::Orientation orientation, int role) const {
  const QStringList& names = orientation == Qt::Horizontal ? grid_.columns : grid_.rows;
  if (section < 0 || section >= names.size()) return {};
  return role == Qt::DisplayRole ? QVariant(names[section]) : QVariant();
}

Qt::ItemFlags HeatModel::flags(const QModelIndex& index) const {
  if (!index.isValid()) return Qt::NoItemFlags;
  return Cell(index.row(), index.column()).state == CellState::kNone
             ? Qt::NoItemFlags
             : Qt::ItemIsEnabled | Qt::ItemIsSelectable;
}

}  // namespace onepiece::gui
