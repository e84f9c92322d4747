// The table that all pages use for lists: sorting, filter, hidden rows, copying, columns.
//
// Threading: GUI thread only.
#pragma once

#include <QLabel>
#include <QPushButton>
#include <QSortFilterProxyModel>
#include <QTableView>
#include <QWidget>
#include <vector>

namespace onepiece::gui {

/// Makes a table in the console's style. It shows `model` as it is, for models that sort and filter
/// by themselves; all others are shown in a TablePanel. Colours come from kToneRole. Ctrl+C copies
/// the selected rows with their header as tab-separated text. A right click on the header chooses
/// columns; a left click calls the model's sort().
QTableView* MakeTable(const QString& name, QAbstractItemModel* model, QWidget* parent);

/// Shows the rows of a KeyedTable (kKeyRole, kSortRole, kToneRole). A click on the header sorts by
/// kSortRole and keeps the selection. A right click on it chooses columns. Ctrl+C copies the
/// selected rows with their header as tab-separated text. A line below the table says how many rows
/// a filter hides.
class TablePanel : public QWidget {
  Q_OBJECT
 public:
  /// `name` is the table's accessible name and the last part of its object name.
  ///
  /// Ownership: borrows `model`.
  TablePanel(const QString& name, QAbstractItemModel* model, QWidget* parent = nullptr);

  /// Shows only rows in which a cell contains the text; case does not matter. An empty text shows
  /// all.
  void SetFilter(const QString& text);
  /// Fits the columns to their rows, up to so many characters, or more where there is room. The
  /// last column takes the rest. This ends when the operator sets a width.
  void FitColumns(int max_characters = 40);
  /// Keeps room for `text` in a column, even if no row has it yet. Call it after FitColumns().
  void Reserve(int column, const QString& text);
  /// Sets what is shown when the model has no rows: why, and what to do.
  void SetEmptyText(const QString& text);
  /// Selects the row with this key and scrolls to it. False if there is none, or if a filter hides
  /// it.
  bool Select(const QString& key);
  /// The key of the current row. Empty for none.
  [[nodiscard]] QString current() const;
  /// The keys of all selected rows, in their order.
  [[nodiscard]] QStringList selected() const;
  [[nodiscard]] QTableView* table() const { return table_; }
  /// The visible rows, filtered and sorted. Pages export these.
  [[nodiscard]] QSortFilterProxyModel* rows() const { return rows_; }

 Q_SIGNALS:
  /// The current row has changed. Empty for none.
  void Current(const QString& key);
  /// The operator pressed Enter or double-clicked.
  void Activated(const QString& key);
  /// The operator pressed "Clear filters". The owner of the filter must empty it.
  void ClearWanted();

 protected:
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  void Count();
  void Fit();
  void Spread();

  QSortFilterProxyModel* rows_;
  QTableView* table_;
  QLabel* note_;
  QPushButton* clear_;
  QString empty_text_;
  int fit_characters_ = 0;   ///< From FitColumns(). 0 once the operator has set widths.
  int fitted_rows_ = 0;      ///< The largest number of rows that widths were fitted to.
  std::vector<int> needed_;  ///< Widths that show everything, by column.
  bool fitting_ = false;
};

}  // namespace onepiece::gui
