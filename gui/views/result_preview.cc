#include "gui/views/result_preview.h"

#include <QApplication>
#include <QClipboard>
#include <QFileDialog>
#include <QHBoxLayout>
#include <QPainter>
#include <QStyle>
#include <QVBoxLayout>
#include <algorithm>
#include <span>
#include <utility>

#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/media/image.h"
#include "cluster/media/media.h"
#include "cluster/session/link.h"
#include "gui/models/format.h"
#include "gui/views/prompts.h"

namespace onepiece::gui {

/// Draws a picture as large as fits, with its own proportions.
class FrameView : public QWidget {
 public:
  explicit FrameView(QWidget* parent) : QWidget(parent) {
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Expanding);
    setMinimumSize(96, 96);
    setAccessibleName(ResultPreview::tr("Picture of the result"));
  }
  void Show(const QImage& image) {
    image_ = image;
    update();
  }
  [[nodiscard]] const QImage& image() const { return image_; }
  [[nodiscard]] QSize sizeHint() const override { return {320, 240}; }

 protected:
  void paintEvent(QPaintEvent* /*event*/) override {
    if (image_.isNull()) return;
    QPainter painter(this);
    painter.setRenderHint(QPainter::SmoothPixmapTransform);
    const QSize size = image_.size().scaled(this->size(), Qt::KeepAspectRatio);
    painter.drawImage(
        QRect(QPoint((width() - size.width()) / 2, (height() - size.height()) / 2), size), image_);
  }

 private:
  QImage image_;
};

namespace {

/// The bytes of one decoding. While it runs, its frames exist twice, and the frames of the previous
/// one exist as well.
constexpr std::size_t kWindowBytes = ResultPreview::kMaxPixelBytes / 4;
/// The most artifacts of one job that are offered.
constexpr int kMaxArtifacts = 1000;

bool IsImage(const std::string& media_type) { return media_type.starts_with("image/"); }

/// A copy of packed RGB pixels.
QImage ToImage(const std::byte* rgb, std::int64_t width, std::int64_t height) {
  return QImage(reinterpret_cast<const uchar*>(rgb), static_cast<int>(width),
                static_cast<int>(height), static_cast<qsizetype>(width * 3), QImage::Format_RGB888)
      .copy();
}

absl::StatusOr<std::string> FetchBounded(client::Client& client, const std::string& uid,
                                         const std::string& artifact, const std::stop_token& stop) {
  base::Clock& clock = base::SystemClock();
  const auto until = clock.Now() + std::chrono::seconds(ResultPreview::kFetchSeconds);
  std::string bytes;
  const auto fetched = client.Fetch(uid, artifact, [&](std::string_view chunk) -> absl::Status {
    if (stop.stop_requested()) return absl::CancelledError("nobody waits for it any more");
    if (clock.Now() > until)
      return absl::DeadlineExceededError("the result came too slowly for a look; save it instead");
    if (static_cast<std::int64_t>(bytes.size() + chunk.size()) > ResultPreview::kMaxFileBytes)
      return absl::ResourceExhaustedError("the result is larger than it said");
    bytes.append(chunk);
    return absl::OkStatus();
  });
  if (!fetched.ok()) return fetched.status();
  return bytes;
}

}  // namespace

ResultPreview::ResultPreview(ShownCluster& shown_cluster, QWidget* parent)
    : QWidget(parent),
      shown_cluster_(shown_cluster),
      artifacts_(new QComboBox(this)),
      view_(new FrameView(this)),
      words_(new QLabel(this)),
      place_(new QLabel(this)),
      slider_(new QSlider(Qt::Horizontal, this)) {
  worker_.setMaxThreadCount(1);
  setObjectName(QStringLiteral("jobs.result"));
  words_->setTextFormat(Qt::PlainText);
  words_->setWordWrap(true);
  words_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  words_->setObjectName(QStringLiteral("jobs.result.words"));
  MakeControls();
  auto* top = new QHBoxLayout;
  top->addWidget(artifacts_);
  top->addWidget(words_, 1);
  for (QPushButton* button : {load_, save_, copy_}) top->addWidget(button);
  auto* below = new QHBoxLayout;
  for (QPushButton* button : {back_, play_, forward_}) below->addWidget(button);
  below->addWidget(slider_, 1);
  below->addWidget(place_);
  auto* layout = new QVBoxLayout(this);
  layout->addLayout(top);
  layout->addWidget(view_, 1);
  layout->addLayout(below);
  connect(&timer_, &QTimer::timeout, this, [this] {
    if (position_ + 1 < total_) {
      MoveTo(position_ + 1);
    } else {
      Play(false);
    }
  });
  connect(&shown_cluster, &ShownCluster::ModeChanged, this, &ResultPreview::ShowState);
  connect(&shown_cluster, &ShownCluster::LinkChanged, this, &ResultPreview::ShowState);
  ShowState();
}

ResultPreview::~ResultPreview() {
  if (stop_ != nullptr) stop_->request_stop();
}

void ResultPreview::MakeControls() {
  const auto button = [this](const QString& text, const QString& tip, const char* name) {
    auto* made = new QPushButton(text, this);
    made->setToolTip(tip);
    made->setAccessibleName(tip);
    made->setObjectName(QStringLiteral("jobs.result.%1").arg(QLatin1String(name)));
    return made;
  };
  artifacts_->setAccessibleName(tr("File of the result"));
  load_ = button(tr("Show"), tr("Fetch the result for a look; it stays in the cluster"), "load");
  save_ = button(tr("Save as…"), tr("Save the result; it stays in the cluster"), "save");
  copy_ = button(tr("Copy SHA-256"), tr("Copy the result's SHA-256"), "copy");
  play_ = button(tr("Play"), tr("Play or pause"), "play");
  back_ = button(QStringLiteral("◀"), tr("One frame back"), "back");
  forward_ = button(QStringLiteral("▶"), tr("One frame on"), "forward");
  for (QPushButton* small : {back_, forward_}) {
    small->setMaximumWidth(fontMetrics().averageCharWidth() * 6);
  }
  play_->setCheckable(true);
  slider_->setAccessibleName(tr("Frame"));
  slider_->setPageStep(10);
  connect(load_, &QPushButton::clicked, this, &ResultPreview::Load);
  connect(save_, &QPushButton::clicked, this, &ResultPreview::Save);
  connect(copy_, &QPushButton::clicked, this, [this] {
    if (artifact() == nullptr) return;
    QApplication::clipboard()->setText(QString::fromStdString(artifact()->sha256()));
    Q_EMIT Told(tr("SHA-256 copied"));
  });
  connect(play_, &QPushButton::toggled, this, &ResultPreview::Play);
  connect(back_, &QPushButton::clicked, this, [this] { MoveTo(position_ - 1); });
  connect(forward_, &QPushButton::clicked, this, [this] { MoveTo(position_ + 1); });
  connect(slider_, &QSlider::valueChanged, this, [this](int value) { MoveTo(value); });
  connect(artifacts_, &QComboBox::currentIndexChanged, this, [this] {
    Forget();
    ShowState();
  });
}

const v1::ResultArtifact* ResultPreview::artifact() const {
  const int at = artifacts_->currentIndex();
  return job_ == nullptr || at < 0 || at >= job_->result().artifacts_size()
             ? nullptr
             : &job_->result().artifacts(at);
}

QImage ResultPreview::image() const { return view_->image(); }

QString ResultPreview::WhyNot() const {
  if (job_ == nullptr || job_->state() != v1::Job::SUCCEEDED) {
    return job_ != nullptr && job_->state() == v1::Job::EXPIRED
               ? tr("Nobody fetched the result in time: the cluster has given it up.")
               : tr("There is no result: the job has not succeeded.");
  }
  if (job_->result().fetched()) return tr("The result was fetched: the cluster has given it up.");
  if (job_->result().evicted())
    return tr("The result was sent once and then gave way to others when memory was short.");
  if (artifact() == nullptr) return tr("The job has made no file.");
  if (shown_cluster_.snapshot()->recorded || !shown_cluster_.live())
    return tr("Results are not recorded: they can be looked at live.");
  if (shown_cluster_.session() == nullptr) return tr("No cluster is connected.");
  return {};
}

void ResultPreview::Show(const std::shared_ptr<const v1::Job>& job) {
  if (job == job_) return;
  const auto key = [](const std::shared_ptr<const v1::Job>& of) {
    return of == nullptr ? std::string() : of->uid() + '\n' + of->result().SerializeAsString();
  };
  const bool same = key(job) == key(job_);
  job_ = job;
  if (same) {
    ShowState();
    return;
  }
  Forget();
  const QSignalBlocker quiet(artifacts_);
  artifacts_->clear();
  if (job_ != nullptr) {
    for (const v1::ResultArtifact& made : job_->result().artifacts()) {
      artifacts_->addItem(tr("%1 · %2 · %3")
                              .arg(SafeText(made.artifact(), 40), SafeText(made.media_type(), 40),
                                   FormatBytes(static_cast<double>(made.size_bytes()))));
      if (artifacts_->count() == kMaxArtifacts) break;
    }
  }
  ShowState();
}

void ResultPreview::Forget() {
  Play(false);
  if (stop_ != nullptr) stop_->request_stop();
  stop_ = nullptr;
  file_ = nullptr;
  window_ = {};
  total_ = position_ = 0;
  wanted_ = -1;
  loading_ = decoding_ = false;
  view_->Show({});
  // Differs from every reason, so that ShowState() says the next one.
  why_not_ = QStringLiteral("\n");
}

void ResultPreview::ShowState() {
  const QString why_not = WhyNot();
  const bool any = why_not.isEmpty();
  artifacts_->setVisible(artifacts_->count() > 0);
  load_->setEnabled(any && !loading_ && file_ == nullptr);
  load_->setText(loading_ ? tr("Fetching…") : tr("Show"));
  save_->setEnabled(any);
  copy_->setEnabled(artifact() != nullptr);
  load_->setToolTip(any ? load_->accessibleName() : why_not);
  save_->setToolTip(any ? save_->accessibleName() : why_not);
  if (why_not != why_not_ && total_ == 0 && !loading_) {
    Say(any ? tr("Show fetches it for a look; it stays in the cluster.") : why_not);
  }
  why_not_ = why_not;
  const bool film = total_ > 1;
  for (QWidget* widget : std::initializer_list<QWidget*>{play_, back_, forward_, slider_, place_}) {
    widget->setVisible(film);
  }
  back_->setEnabled(position_ > 0);
  forward_->setEnabled(position_ + 1 < total_);
  if (film) {
    const QSignalBlocker quiet(slider_);
    slider_->setRange(0, total_ - 1);
    slider_->setValue(position_);
    place_->setText(tr("frame %1 of %2").arg(position_ + 1).arg(total_));
  }
}

void ResultPreview::Say(const QString& text) { words_->setText(text); }

void ResultPreview::Load() {
  if (!WhyNot().isEmpty() || loading_ || file_ != nullptr) return;
  const v1::ResultArtifact& wanted = *artifact();
  if (wanted.media_type() != "video/mp4" && !IsImage(wanted.media_type())) {
    Say(tr("There is no preview of %1. Save it instead.").arg(SafeText(wanted.media_type(), 80)));
    return;
  }
  if (wanted.size_bytes() > kMaxFileBytes) {
    Say(tr("It is too large for a look (%1, at most %2). Save it instead.")
            .arg(FormatBytes(static_cast<double>(wanted.size_bytes())),
                 FormatBytes(static_cast<double>(kMaxFileBytes))));
    return;
  }
  loading_ = true;
  Say(tr("Fetching %1…").arg(FormatBytes(static_cast<double>(wanted.size_bytes()))));
  ShowState();
  stop_ = std::make_shared<std::stop_source>();
  shown_cluster_.Ask<std::string>(
      this,
      [uid = job_->uid(), name = wanted.artifact(), stop = stop_](client::Client& client) {
        return FetchBounded(client, uid, name, stop->get_token());
      },
      [this, stop = stop_](absl::StatusOr<std::string> bytes) {
        if (stop == stop_) Fetched(std::move(bytes));  // Otherwise another result is shown by now.
      },
      tr("Fetch the result of %1").arg(SafeText(job_->uid(), 64)));
}

void ResultPreview::Fetched(absl::StatusOr<std::string> bytes) {
  loading_ = false;
  if (!bytes.ok()) {
    Say(tr("It cannot be fetched: %1").arg(SafeText(session::Explain(bytes.status()), 500)));
    ShowState();
    return;
  }
  file_ = std::make_shared<const std::string>(*std::move(bytes));
  Decode(0);
  ShowState();
}

void ResultPreview::Decode(int position) {
  if (decoding_) {
    wanted_ = position;
    return;
  }
  decoding_ = true;
  const bool image = IsImage(artifact()->media_type());
  // Some frames before the position are decoded as well, because people step back.
  const auto frame_bytes =
      window_.frames.empty() ? kWindowBytes : std::size_t(window_.frames.front().sizeInBytes());
  const auto before =
      std::min<std::size_t>(8, kWindowBytes / (4 * std::max<std::size_t>(1, frame_bytes)));
  const int from = std::max(0, position - static_cast<int>(before));
  worker_.start([this, file = file_, stop = stop_, position, from, image] {
    const auto work = [&]() -> absl::StatusOr<Window> {
      const auto bytes = std::as_bytes(std::span(*file));
      Window window;
      if (image) {
        auto decoded = media::DecodeImage(bytes);
        if (!decoded.ok()) return decoded.status();
        window.frames = {ToImage(decoded->rgb.data(), decoded->width, decoded->height)};
        window.total = 1;
        return window;
      }
      auto clip = media::DecodeClip(bytes, from, kWindowBytes, stop->get_token());
      if (!clip.ok()) return clip.status();
      const media::FramesView view = clip->frames.view();
      const std::int64_t stride = view.width * view.height * 3;
      for (std::int64_t i = 0; i < view.count; ++i) {
        window.frames.push_back(ToImage(view.rgb.data() + i * stride, view.width, view.height));
      }
      window.first = static_cast<int>(clip->first);
      window.total = static_cast<int>(clip->total);
      window.fps = clip->frames.fps;
      return window;
    };
    QMetaObject::invokeMethod(
        this,
        [this, stop, position, window = work()]() mutable {
          if (stop == stop_) Decoded(std::move(window), position);
        },
        Qt::QueuedConnection);
  });
}

void ResultPreview::Decoded(absl::StatusOr<Window> window, int position) {
  decoding_ = false;
  if (!window.ok()) {
    Play(false);
    Say(tr("It cannot be shown: %1").arg(SafeText(session::Explain(window.status()), 500)));
    ShowState();
    return;
  }
  window_ = *std::move(window);
  total_ = window_.total;
  // The file claims more frames than it has.
  const int last = window_.first + static_cast<int>(window_.frames.size()) - 1;
  if (position > last) total_ = last + 1;
  const QSize size = window_.frames.front().size();
  Say(total_ > 1 ? tr("%1 × %2, %3 frames/s. It stays in the cluster.")
                       .arg(size.width())
                       .arg(size.height())
                       .arg(QString::number(window_.fps, 'g', 4))
                 : tr("%1 × %2. It stays in the cluster.").arg(size.width()).arg(size.height()));
  const int next = std::exchange(wanted_, -1);
  MoveTo(next >= 0 ? next : std::min(position, total_ - 1));
}

void ResultPreview::MoveTo(int position) {
  if (total_ == 0) return;
  position = std::clamp(position, 0, total_ - 1);
  const int at = position - window_.first;
  if (at < 0 || at >= static_cast<int>(window_.frames.size())) {
    Decode(position);
    return;
  }
  position_ = position;
  view_->Show(window_.frames[static_cast<std::size_t>(at)]);
  ShowState();
}

void ResultPreview::Play(bool play) {
  if (play && total_ > 1) {
    if (position_ + 1 >= total_) MoveTo(0);
    const double fps = std::clamp(window_.fps > 0 ? window_.fps : 16.0, 1.0, 60.0);
    timer_.start(static_cast<int>(1000 / fps));
  } else {
    timer_.stop();
  }
  const QSignalBlocker quiet(play_);
  play_->setChecked(timer_.isActive());
  play_->setText(timer_.isActive() ? tr("Pause") : tr("Play"));
}

void ResultPreview::Save() {
  const QString why_not = WhyNot();
  if (!why_not.isEmpty()) {
    Q_EMIT Told(why_not);
    return;
  }
  const v1::ResultArtifact& wanted = *artifact();
  const QString ending = wanted.media_type() == "video/mp4"   ? QStringLiteral(".mp4")
                         : wanted.media_type() == "image/png" ? QStringLiteral(".png")
                                                              : QString();
  auto* dialog = new QFileDialog(this, tr("Save the result"));
  dialog->setAcceptMode(QFileDialog::AcceptSave);
  dialog->setAttribute(Qt::WA_DeleteOnClose);
  dialog->setObjectName(QStringLiteral("jobs.result.file"));
  dialog->selectFile(SafeText(job_->uid(), 64).remove(u'/') + ending);
  connect(
      dialog, &QFileDialog::fileSelected, this,
      [this, uid = job_->uid(), name = wanted.artifact()](const QString& path) {
        Q_EMIT Told(tr("Saving the result to %1…").arg(path));
        shown_cluster_.Ask<v1::ResultArtifact>(
            this,
            [uid, name, to = path.toStdString()](client::Client& client) {
              return client.FetchToFile(uid, name, to);
            },
            [this, path](absl::StatusOr<v1::ResultArtifact> saved) {
              if (saved.ok()) {
                Q_EMIT Told(tr("Result saved to %1 (%2); it stays in the cluster")
                                .arg(path, FormatBytes(static_cast<double>(saved->size_bytes()))));
              } else {
                TellFailure(this, tr("The result was not saved"), saved.status());
              }
            },
            tr("Save the result of %1").arg(SafeText(uid, 64)));
      });
  dialog->open();
}

void ResultPreview::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  ShowState();
}

void ResultPreview::hideEvent(QHideEvent* event) {
  QWidget::hideEvent(event);
  Play(false);  // The page is hidden.
}

}  // namespace onepiece::gui
