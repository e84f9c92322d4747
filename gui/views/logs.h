// The page "Logs": what all processes log, as one stream.
#pragma once

#include <QCheckBox>
#include <QComboBox>
#include <QPushButton>
#include <QSet>
#include <QThreadPool>
#include <QTimer>
#include <QToolButton>
#include <memory>

#include "cluster/session/log_tail.h"
#include "gui/models/log_lines.h"
#include "gui/views/list_page.h"

namespace onepiece::gui {

class LogsView : public ListPage {
  Q_OBJECT
 public:
  explicit LogsView(ShownCluster& shown_cluster, QWidget* parent = nullptr);
  ~LogsView() override;
  [[nodiscard]] QString Help() const override;
  [[nodiscard]] std::vector<Command> Commands() override;
  /// Shows only the lines of "node/ID".
  void Focus(const QString& entity) override;
  void SetFilter(const QString& text) override;
  /// True while a tail follows processes.
  [[nodiscard]] bool tails() const { return tail_ != nullptr; }

 protected:
  void Draw(const session::Snapshot& snapshot) override;
  void hideEvent(QHideEvent* event) override;

 private:
  void Begin();
  void End();
  void Take();
  /// Tells the tail which processes to follow, if they have changed.
  void Follow();
  void ShowLines();
  void ApplyFilter();
  void ChooseProcesses();
  void SetPaused(bool paused);

  LogLines lines_;
  std::unique_ptr<KeyedTable<std::shared_ptr<const LogRow>>> table_;
  std::shared_ptr<session::LogTail> tail_;  ///< Null if no process is followed.
  int connection_ = -1;  ///< The ShownCluster::connection() that the lines are from.
  std::vector<std::tuple<std::string, std::uint64_t, std::string>> followed_;
  QSet<QString> chosen_;  ///< Node ids. Empty for all.
  QString text_, bad_expression_;
  std::uint64_t shown_changes_ = 0;
  int left_out_ = 0;  ///< Processes beyond LogTail::kMaxProcesses.
  QToolButton* processes_;
  QComboBox* level_;
  QCheckBox *regex_, *hidden_too_;
  QPushButton* pause_;
  QTimer take_;
  /// Begins and ends tails, which waits for threads. Declared last, so that it ends before what it
  /// uses.
  QThreadPool tailing_;
};

}  // namespace onepiece::gui
