// What a job made: looked at without taking it out of the cluster.
//
// What       Fetches a result into memory and decodes some frames of it around the position, both
// off
//            the GUI thread and within bounds. It is never acknowledged: it stays in the cluster.
// Threading  GUI thread only.
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

#include "gui/models/store.h"

namespace onepiece::gui {

class FrameView;

class ResultPreview : public QWidget {
  Q_OBJECT
 public:
  /// A result that is larger is not fetched for a look; it can be saved.
  static constexpr std::int64_t kMaxFileBytes = 128 << 20;
  /// Pixels kept, of frames around the position.
  static constexpr std::size_t kMaxPixelBytes = std::size_t{256} << 20;
  /// A fetch that takes longer is given up.
  static constexpr int kFetchSeconds = 60;

  explicit ResultPreview(Store& store, QWidget* parent = nullptr);
  ~ResultPreview() override;

  /// Null: none. Another job, or another result, forgets what was loaded.
  void Show(const std::shared_ptr<const v1::Job>& job);
  /// Fetches and decodes; what happens is said in words.
  void Load();
  /// Asks for a file and fetches into it; the result stays in the cluster.
  void Save();

  /// Why the result cannot be had from here now; empty: it can.
  [[nodiscard]] QString WhyNot() const;
  [[nodiscard]] int frames() const { return total_; }
  [[nodiscard]] int position() const { return position_; }
  /// What is seen; null: nothing.
  [[nodiscard]] QImage image() const;
  [[nodiscard]] QString words() const { return words_->text(); }

 Q_SIGNALS:
  void Told(const QString& text);

 protected:
  void showEvent(QShowEvent* event) override;
  void hideEvent(QHideEvent* event) override;

 private:
  /// What was decoded last.
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

  Store& store_;
  std::shared_ptr<const v1::Job> job_;
  std::string shown_;  ///< Uid and hash of what is loaded, or is being loaded.
  std::shared_ptr<const std::string> file_;
  Window window_;
  int total_ = 0, position_ = 0;
  bool loading_ = false, decoding_ = false;
  QString why_not_;  ///< As it was said last.
  int wanted_ = -1;  ///< Position asked for while another one was being decoded.
  std::shared_ptr<std::stop_source> stop_;
  QComboBox* artifacts_;
  FrameView* view_;
  QLabel *words_, *place_;
  QSlider* slider_;
  QPushButton *load_, *play_, *back_, *forward_, *save_, *copy_;
  QTimer timer_;
  QThreadPool worker_;  ///< One thread; last: it ends before what it uses.
};

}  // namespace onepiece::gui
