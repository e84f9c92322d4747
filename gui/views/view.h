// The base of all pages of the console.
#pragma once

#include <QAbstractItemModel>
#include <QString>
#include <QWidget>
#include <functional>
#include <string_view>
#include <vector>

#include "gui/models/permissions.h"
#include "gui/models/shown_cluster.h"

namespace onepiece::gui {

/// A command, as menus, the palette (Ctrl+K) and shortcuts offer it. If its id begins with the kind
/// of an entity ("node.drain"), the inspector offers it, too, and tells the command's page to Focus
/// on the entity first.
struct Command {
  QString id;     ///< "rebalance.plan". Stable, because settings refer to it.
  QString title;  ///< "Plan a rebalance…"
  /// "onepiece rebalance plan". Ctrl+Shift+C copies it. Empty if the CLI has no such verb.
  QString cli;
  /// The default, which settings may change. No single key may change the cluster.
  QString shortcut;
  bool changes_cluster = false;  ///< Disabled while ShownCluster::WhyNoChange() has a reason.
  std::function<void()> run;
  /// The method that decides who may do it (gui/models/permissions.h). Empty if anybody may.
  std::string_view method{};
};

/// A page. While it is visible it draws ShownCluster::snapshot() whenever that changes, and once
/// when it is shown.
///
/// Threading: GUI thread only.
class View : public QWidget {
  Q_OBJECT
 public:
  /// `id` is the CLI's word for the page ("rings"). Settings, tests and accessible names use it.
  View(QString id, QString title, ShownCluster& shown_cluster, QWidget* parent = nullptr);

  [[nodiscard]] const QString& id() const { return id_; }
  [[nodiscard]] const QString& title() const { return title_; }
  [[nodiscard]] virtual std::vector<Command> Commands() { return {}; }
  /// The page's main table, which "export" writes as CSV and JSON (kSortRole of each cell). Null if
  /// only the picture can be exported.
  [[nodiscard]] virtual QAbstractItemModel* ExportModel() { return nullptr; }
  /// Shows one entity ("node/instance-3", "job/UID") that was chosen elsewhere.
  virtual void Focus(const QString& entity);
  /// Shows only rows that contain the text. The page says how many are hidden.
  virtual void SetFilter(const QString& text);
  /// The text for F1: what the page shows, how to read it, its keys. Plain text with paragraphs.
  [[nodiscard]] virtual QString Help() const = 0;

 Q_SIGNALS:
  /// The operator wants to see an entity. The window finds its page ("rings", "ring/database-1").
  void Wanted(const QString& view_id, const QString& entity);
  /// An operation has ended or is under way: "Cancel of 3 jobs acknowledged". The status line shows
  /// it for a few seconds.
  void Told(const QString& text);
  /// The filter shall be emptied. The window owns its text.
  void ClearFilterWanted();
  /// Sets what follows the title in the tab, and so is visible on every page: "2" of "Alerts (2)".
  /// Empty for nothing.
  void Badge(const QString& text);

 protected:
  [[nodiscard]] ShownCluster& shown_cluster() { return shown_cluster_; }
  /// Draws a snapshot. It must be cheap: it is called ten times a second with 64 GPUs, 200 rings
  /// and 10^5 jobs.
  virtual void Draw(const session::Snapshot& snapshot) = 0;
  void showEvent(QShowEvent* event) override;

 private:
  QString id_, title_;
  ShownCluster& shown_cluster_;
};

}  // namespace onepiece::gui
