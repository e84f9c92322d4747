// A table of rows that have keys: an update changes, inserts and removes just the rows that differ,
// so that selections, scroll positions and screen readers survive ten updates a second.
//
// Threading  GUI thread only.
#pragma once

#include <QAbstractTableModel>
#include <QHash>
#include <QString>
#include <QVariant>
#include <functional>
#include <utility>
#include <vector>

namespace onepiece::gui {

/// Role of the number or text that a column sorts and exports by; display text when not given.
inline constexpr int kSortRole = Qt::UserRole;
/// Role of a cell's StatusTone (gui/models/format.h).
inline constexpr int kToneRole = Qt::UserRole + 1;
/// Role of a row's key.
inline constexpr int kKeyRole = Qt::UserRole + 2;

template <typename Row>
class KeyedTable : public QAbstractTableModel {
 public:
  struct Column {
    QString title;
    QString tip;  ///< What it is, its unit, and which CLI field it equals.
    std::function<QVariant(const Row&, int role)> data;  ///< Qt's roles and those above.
    Qt::Alignment alignment = Qt::AlignLeft | Qt::AlignVCenter;
  };

  KeyedTable(std::vector<Column> columns, std::function<QString(const Row&)> key,
             QObject* parent = nullptr)
      : QAbstractTableModel(parent), columns_(std::move(columns)), key_(std::move(key)) {}

  /// Rows in their order. Keys are unique. `same` says that a row needs no repainting.
  void Update(std::vector<Row> rows, const std::function<bool(const Row&, const Row&)>& same);

  [[nodiscard]] const Row& at(int row) const { return rows_[static_cast<std::size_t>(row)]; }
  [[nodiscard]] int RowOf(const QString& key) const;

  int rowCount(const QModelIndex& parent = {}) const override;
  int columnCount(const QModelIndex& parent = {}) const override;
  QVariant data(const QModelIndex& index, int role) const override;
  QVariant headerData(int section, Qt::Orientation orientation, int role) const override;

 private:
  std::vector<Column> columns_;
  std::function<QString(const Row&)> key_;
  std::vector<Row> rows_;
};

}  // namespace onepiece::gui
