// The band above every page. It says which cluster is shown, how fresh the numbers are, and whether
// anything may be changed. When something is wrong or the past is shown, a second line says so.
//
// Threading: GUI thread only.
#pragma once

#include <QFrame>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QTimer>

#include "gui/models/shown_cluster.h"

namespace onepiece::gui {

/// The band. The signals say what the operator wants; the window does it.
class TopBand : public QFrame {
  Q_OBJECT
 public:
  explicit TopBand(ShownCluster& shown_cluster, QWidget* parent);
  [[nodiscard]] QLineEdit* filter() const { return filter_; }

 Q_SIGNALS:
  void FilterChanged(const QString& text);
  void ModeWanted();
  void PaletteWanted();
  void RetryWanted();
  void SwitchWanted();
  /// The operator wants to read in full who this console is to the cluster.
  void IdentityWanted();

 private:
  void LayOut();
  void Connect();
  void Draw();
  void DrawIdentity();
  void DrawNotice();
  void CountDropped();

  ShownCluster& shown_cluster_;
  QLabel *cluster_, *link_, *as_of_, *dropping_, *past_, *notice_;
  QLineEdit* filter_;
  QPushButton *identity_, *mode_, *palette_, *retry_, *switch_;
  QWidget* notice_row_;
  QTimer ages_;                ///< Redraws once a second, because ages grow while nothing is heard.
  std::uint64_t dropped_ = 0;  ///< LinkStatus::dropped one second ago.
};

}  // namespace onepiece::gui
