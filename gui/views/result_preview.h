// The preview of a job's result. It fetches the result into memory and decodes some frames around
// the position, both off the GUI thread and within bounds. It never acknowledges the result, so the
// result stays in the cluster.
//
// Threading: GUI thread only.
#pragma once

#include <QComboBox>
#include <QImage>
#include <QLabel>
#include <QPushButton>
#include <QSlider>
#include <QThreadPool>
#include <QTimer>
#include <QWidget>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "gui/models/shown_cluster.h"

namespace onepiece::gui {

class FrameView;

/// Shows and saves the result of one job.
class ResultPreview : public QWidget {
  Q_OBJECT
 public:
  /// A larger result is not fetched for the preview. It can be saved.
  static constexpr std::int64_t kMaxFileBytes = 128 << 20;
  /// The most bytes of pixels that are kept, of frames around the position.
  static constexpr std::size_t kMaxPixelBytes = std::size_t{256} << 20;
  /// A fetch that takes longer is given up.
  static constexpr int kFetchSeconds = 60;

  explicit ResultPreview(ShownCluster& shown_cluster, QWidget* parent = nullptr);
  ~ResultPreview() override;

  /// Shows a job's result; null shows none. Another job or another result drops what was loaded.
  void Show(const std::shared_ptr<const v1::Job>& job);
  /// Fetches and decodes the result, and says in words what happens.
  void Load();
  /// Asks for a file and fetches the result into it. The result stays in the cluster.
  void Save();

  /// Why the result cannot be fetched now. Empty if it can.
  [[nodiscard]] QString WhyNot() const;
  [[nodiscard]] int frames() const { return total_; }
  [[nodiscard]] int position() const { return position_; }
  /// The visible picture; null if there is none.
  [[nodiscard]] QImage image() const;
  [[nodiscard]] QString words() const { return words_->text(); }

 Q_SIGNALS:
  void Told(const QString& text);

 protected:
  void showEvent(QShowEvent* event) override;
  void hideEvent(QHideEvent* event) override;

 private:
  /// The frames that were decoded last.
  struct Window {
    std::vector<QImage> frames;
    int first = 0, total = 0;
    double fps = 0;
  };
  [[nodiscard]] const v1::ResultArtifact* artifact() const;
  void MakeControls();
  void Forget();
  void Fetched(absl::StatusOr<std::string> bytes);
  void Decode(int position);
  void Decoded(absl::StatusOr<Window> window, int position);
  void MoveTo(int position);
  void Play(bool play);
  void Say(const QString& text);
  void ShowState();

  ShownCluster& shown_cluster_;
  std::shared_ptr<const v1::Job> job_;
  std::string shown_;  ///< Uid and hash of the result that is loaded or being loaded.
  std::shared_ptr<const std::string> file_;
  Window window_;
  int total_ = 0, position_ = 0;
  bool loading_ = false, decoding_ = false;
  QString why_not_;  ///< The reason that was shown last.
  int wanted_ = -1;  ///< The position asked for while another one was being decoded. -1 for none.
  std::shared_ptr<std::stop_source> stop_;
  QComboBox* artifacts_;
  FrameView* view_;
  QLabel *words_, *place_;
  QSlider* slider_;
  QPushButton *load_, *play_, *back_, *forward_, *save_, *copy_;
  QTimer timer_;
  QThreadPool worker_;  ///< One thread. Declared last, so that it ends before what it uses.
};

}  // namespace onepiece::gui
