// What every page of the console is.
#pragma once

#include <QAbstractItemModel>
#include <QString>
#include <QWidget>
#include <functional>
#include <vector>

#include "gui/models/store.h"

namespace onepiece::gui {

/// Something that can be done: in menus, the palette (Ctrl+K) and by a shortcut, with the CLI's
/// verb. One whose id begins with the kind of an entity ("node.drain") is offered in the inspector
/// too, after its page was told to Focus on that entity.
struct Command {
  QString id;     ///< "rebalance.plan": stable, for settings.
  QString title;  ///< "Plan a rebalance…"
  QString cli;    ///< "onepiece rebalance plan", copied by Ctrl+Shift+C; empty: the CLI has none.
  QString shortcut;              ///< Default, editable; no single key changes the cluster.
  bool changes_cluster = false;  ///< Disabled with Store::WhyNoChange().
  std::function<void()> run;
};

/// A page. It draws Store::snapshot() whenever that changes while it is visible, and once when it
/// is shown.
///
/// Threading  GUI thread only.
class View : public QWidget {
  Q_OBJECT
 public:
  /// `id` is the CLI's word for it ("rings"): settings, tests and accessible names go by it.
  View(QString id, QString title, Store& store, QWidget* parent = nullptr);

  [[nodiscard]] const QString& id() const { return id_; }
  [[nodiscard]] const QString& title() const { return title_; }
  [[nodiscard]] virtual std::vector<Command> Commands() { return {}; }
  /// What "export" writes as CSV and JSON (kSortRole of every cell): the page's main table; null:
  /// only its picture.
  [[nodiscard]] virtual QAbstractItemModel* ExportModel() { return nullptr; }
  /// Shows one thing ("node/instance-3", "job/UID"): drill-down from elsewhere.
  virtual void Focus(const QString& entity);
  /// Keeps rows that contain the text; what is hidden is counted where it was.
  virtual void SetFilter(const QString& text);
  /// For F1: what it shows, how to read it, its keys. Plain text with paragraphs.
  [[nodiscard]] virtual QString Help() const = 0;

 Q_SIGNALS:
  /// Someone wants to see this: the shell finds the page ("rings", "ring/database-1").
  void Wanted(const QString& view_id, const QString& entity);
  /// Something that was asked for came to an end, or is under way: said in the status line for a
  /// few seconds. "Cancel of 3 jobs acknowledged".
  void Told(const QString& text);
  /// Its filter shall be emptied: the shell owns the filter's text.
  void ClearFilterWanted();
  /// What stands behind the title in its tab, seen from every page: "2" of "Alerts (2)". Empty:
  /// nothing.
  void Badge(const QString& text);

 protected:
  [[nodiscard]] Store& store() { return store_; }
  /// Draws store().snapshot(). Cheap: 10 a second with 64 GPUs, 200 rings, 10^5 jobs.
  virtual void Draw(const Snapshot& snapshot) = 0;
  void showEvent(QShowEvent* event) override;

 private:
  QString id_, title_;
  Store& store_;
};

}  // namespace onepiece::gui
