// The table that pages show lists in: sorting, filter, what is hidden, copying, columns.
//
// Threading  GUI thread only.
#pragma once

#include <QLabel>
#include <QPushButton>
#include <QSortFilterProxyModel>
#include <QTableView>
#include <QWidget>
#include <vector>

namespace onepiece::gui {

/// A table in the console's style, with `model` as it is: colours by kToneRole, Ctrl+C copies the
/// selected rows as tab-separated text with their header, a right click on the header chooses
/// columns, a click on it calls the model's sort(). For models that sort and filter by themselves;
/// everything else is shown in a TablePanel.
QTableView* MakeTable(const QString& name, QAbstractItemModel* model, QWidget* parent);

/// Rows of a KeyedTable (kKeyRole, kSortRole, kToneRole). A click on a header sorts by kSortRole
/// and never loses the selection; a right click on it chooses columns; Ctrl+C copies the selected
/// rows as tab-separated text with its header. Below it stands how many rows a filter hides.
class TablePanel : public QWidget {
  Q_OBJECT
 public:
  /// `name` is the table's accessible name and the last part of its object name. The model is
  /// borrowed.
  TablePanel(const QString& name, QAbstractItemModel* model, QWidget* parent = nullptr);

  /// Keeps rows of which some cell contains the text (case does not matter). Empty: all.
  void SetFilter(const QString& text);
  /// Columns take what their rows need, up to so many characters, or more where there is room,
  /// until people choose their widths; the last one takes the rest.
  void FitColumns(int max_characters = 40);
  /// That column has room for `text`, which may come later. After FitColumns.
  void Reserve(int column, const QString& text);
  /// What is said when the model has no rows at all: why, and what to do.
  void SetEmptyText(const QString& text);
  /// The row with this key is selected and scrolled to; false: there is none, or a filter hides it.
  bool Select(const QString& key);
  /// Of the current row; empty: none.
  [[nodiscard]] QString current() const;
  /// Of all selected rows, in their order.
  [[nodiscard]] QStringList selected() const;
  [[nodiscard]] QTableView* table() const { return table_; }
  /// What is seen: filtered and sorted. Views that export give this.
  [[nodiscard]] QSortFilterProxyModel* rows() const { return rows_; }

 Q_SIGNALS:
  /// The current row changed; empty: none.
  void Current(const QString& key);
  /// Enter or a double click.
  void Activated(const QString& key);
  /// "Clear filters" was pressed: whoever owns the filter empties it.
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
  int fit_characters_ = 0;   ///< Of FitColumns; 0: widths are people's.
  int fitted_rows_ = 0;      ///< The most rows that widths were fitted to.
  std::vector<int> needed_;  ///< Widths that show everything, by column.
  bool fitting_ = false;
};

}  // namespace onepiece::gui
