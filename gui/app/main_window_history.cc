// The part of MainWindow that deals with sessions and recordings.
#include <QDir>
#include <QDockWidget>
#include <QFileInfo>
#include <QMetaObject>
#include <QStatusBar>
#include <QThreadPool>
#include <utility>

#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/local/resources.h"
#include "gui/app/connection.h"
#include "gui/app/history_dialogs.h"
#include "gui/app/main_window.h"
#include "gui/app/recording_service.h"
#include "gui/models/format.h"
#include "gui/views/prompts.h"

namespace onepiece::gui {
namespace {

/// How long after a failure recording is tried again.
constexpr std::int64_t kTryAgainMs = 10'000;

using Opened = std::shared_ptr<history::Recording>;

absl::StatusOr<Opened> OpenFile(const std::string& path) {
  auto recording = history::Recording::Open(path);
  if (!recording.ok()) return recording.status();
  return Opened(*std::move(recording));
}

std::int64_t NowMs() { return base::ToUnixMs(base::SystemClock().WallNow()); }

std::vector<history::Rule> ShippedRules() {
  const auto path = local::ResourcePath("alerts.yaml");
  if (!path.ok()) return {};
  QFile file(QString::fromStdString(*path));
  if (!file.open(QIODevice::ReadOnly)) return {};
  auto rules = history::ParseRules(file.readAll().toStdString());
  if (!rules.ok()) {
    qWarning("%s: %s", path->c_str(), rules.status().ToString().c_str());
    return {};
  }
  return *std::move(rules);
}

}  // namespace

void MainWindow::ConnectContext(const std::string& name) {
  const auto found = FindContext(options_.contexts_path, name);
  if (found.ok()) return Connect(found->cluster, found->credentials);
  Say(tr("Context"), tr("The cluster was not asked: %1.\n\nChoose a cluster that is known, or add "
                        "one: Connections (Ctrl+L).")
                         .arg(SafeText(base::Message(found.status()), 1000)));
}

void MainWindow::Connect(const session::ClusterAddress& target,
                         const contexts::Credentials& login) {
  Disconnect();
  if (const absl::Status shown = LogIn(login); !shown.ok()) {
    Say(tr("Login"), tr("%1 was not asked, because the login (%2) cannot be read: %3.\n\nChoose "
                        "another login: Connections (Ctrl+L).")
                         .arg(SafeText(target.name, 60), LoginName(login),
                              SafeText(base::Message(shown), 1000)));
    return;
  }
  auto session = std::make_shared<session::Session>(target);
  recorder_ = std::make_shared<RecordingService>(
      session, (options_.data_folder + QStringLiteral("/recordings")).toStdString(),
      ShippedRules());
  shown_cluster_->SetDesk(recorder_);
  shown_cluster_->Follow(std::move(session));
  Settings& settings = options_.settings.values;
  settings.last_connection = QString::fromStdString(target.name);
  last_recorded_ms_ = 0;
  // The cluster's last recording is opened right away, so that a cluster that does not answer can
  // be shown as it was.
  if (const QString last = settings.recordings.value(settings.last_connection); !last.isEmpty()) {
    shown_cluster_->Work<Opened>(
        this, [last] { return OpenFile(last.toStdString()); },
        [this, opening = opening_](absl::StatusOr<Opened> opened) {
          // The cluster may have answered first, and AdoptRecording() has set its recording.
          if (opening != opening_ || shown_cluster_->recording() != nullptr || !opened.ok()) return;
          shown_cluster_->SetRecording(*std::move(opened));
          ShowLastRecorded();
        });
  }
  adopt_.start(500);
  setWindowTitle(tr("%1 – OnePiece Console").arg(SafeText(target.name, 40)));
}

void MainWindow::Disconnect() {
  ++opening_;
  adopt_.stop();
  adopted_.clear();
  auto session = shown_cluster_->session();
  shown_cluster_->SetDesk(nullptr);
  shown_cluster_->SetRecording(nullptr);
  shown_cluster_->Follow(nullptr);
  scrubber_->SetNotice({});
  if (session == nullptr) return;
  // Session and service end on another thread: their own threads may wait for the network for a
  // second, and the GUI thread must not.
  QThreadPool::globalInstance()->start(
      [service = std::move(recorder_), old = std::move(session)]() mutable {
        service.reset();
        old.reset();
      });
  recorder_ = nullptr;
}

void MainWindow::AdoptRecording() {
  const int connection = shown_cluster_->connection();
  if (recorder_ == nullptr || adopting_for_ == connection) return;
  const history::RecordState state = recorder_->state();
  const std::string path = recorder_->WantedPath();
  if (path.empty()) return;
  const bool records = state.recording && state.path == path;
  if (adopted_ == path) {
    scrubber_->SetNotice(
        state.status.ok() ? QString()
                          : tr("Not recorded: %1").arg(SafeText(base::Message(state.status), 200)));
    if (records || NowMs() - adopted_at_ms_ < kTryAgainMs) return;
  }
  adopting_for_ = connection;
  shown_cluster_->Work<Opened>(
      this,
      [service = recorder_, path]() -> absl::StatusOr<Opened> {
        const absl::Status begun = service->Begin();
        // If another console records this cluster, its file can be read just as well.
        if (!begun.ok() && base::GetReason(begun).reason != "IN_USE") return begun;
        return OpenFile(path);
      },
      [this, path, connection](absl::StatusOr<Opened> opened) {
        // Another cluster was chosen meanwhile. A file that is only being opened leaves the cluster
        // as it is, so opening_ says nothing here.
        if (connection != shown_cluster_->connection()) return;
        adopting_for_ = 0;
        adopted_ = path;
        adopted_at_ms_ = NowMs();
        if (!opened.ok()) {
          scrubber_->SetNotice(
              tr("Not recorded: %1").arg(SafeText(base::Message(opened.status()), 200)));
        } else {
          // The file is opened anew each time: Begin() may have moved a damaged file away and made
          // another of the same name.
          shown_cluster_->SetRecording(*std::move(opened));
          Settings& settings = options_.settings.values;
          QString& known = settings.recordings[settings.last_connection];
          if (known != QString::fromStdString(path)) {
            known = QString::fromStdString(path);
            SaveSettings();
          }
        }
      });
}

void MainWindow::ShowLastRecorded() {
  const session::LinkStatus& link = shown_cluster_->link();
  if (shown_cluster_->session() == nullptr || shown_cluster_->recording() == nullptr) return;
  // Only while nothing was ever heard and the first attempt has failed. An operator who has chosen
  // another instant since is left there.
  if (last_recorded_ms_ == 0 && link.last_heard_ms == 0 && link.attempt > 0 &&
      shown_cluster_->live()) {
    const auto info = shown_cluster_->recording()->Info();
    if (info.ok() && shown_cluster_->ViewAt(info->interval.to_ms).ok()) {
      last_recorded_ms_ = info->interval.to_ms;
    }
  } else if (last_recorded_ms_ != 0 && link.last_heard_ms != 0) {
    const bool as_we_left_it =
        !shown_cluster_->live() && shown_cluster_->viewing_ms() == last_recorded_ms_;
    last_recorded_ms_ = 0;
    if (as_we_left_it) shown_cluster_->GoLive();
  }
}

void MainWindow::OpenRecording(const QString& path) {
  const int opening = ++opening_;
  statusBar()->showMessage(tr("Opening %1…").arg(SafeText(path.toStdString(), 120)));
  shown_cluster_->Work<Opened>(
      this, [path] { return OpenFile(path.toStdString()); },
      [this, path, opening](absl::StatusOr<Opened> opened) {
        if (opening != opening_) return;  // Something else was opened meanwhile.
        statusBar()->clearMessage();
        if (!opened.ok()) {
          return Say(tr("The recording cannot be opened"),
                     SafeText(path.toStdString()) + u'\n' +
                         SafeText(base::Message(opened.status()), 1000));
        }
        Disconnect();
        shown_cluster_->SetRecording(*std::move(opened));
        setWindowTitle(tr("%1 – OnePiece Console")
                           .arg(SafeText(QFileInfo(path).fileName().toStdString(), 60)));
      });
}

void MainWindow::RunBookmark() {
  if (recorder_ == nullptr) {
    return Say(tr("Bookmark"), tr("Nothing is being recorded: a bookmark has no place."));
  }
  const std::int64_t at_ms = shown_cluster_->viewing_ms();
  AskBookmark(this, at_ms, [this, at_ms](const QString& text) {
    if (recorder_ == nullptr) return;
    shown_cluster_->Work<bool>(
        this,
        [service = recorder_, at_ms, said = text.toStdString()]() -> absl::StatusOr<bool> {
          const absl::Status status = service->Bookmark(at_ms, said);
          if (!status.ok()) return status;
          return true;
        },
        [this, at_ms](const absl::StatusOr<bool>& done) {
          if (!done.ok()) return TellFailure(this, tr("Set a bookmark"), done.status());
          statusBar()->showMessage(tr("Bookmark at %1.").arg(FormatTime(at_ms, NowMs())), 10'000);
          scrubber_->Refresh();
        });
  });
}

void MainWindow::RunCompare() {
  if (compare_ == nullptr) {
    compare_ = new CompareDialog(*shown_cluster_, this);
    connect(compare_, &CompareDialog::Opened, this,
            [this](const QString& entity) { Open({}, entity); });
  }
  compare_->show();
  compare_->raise();
  compare_->activateWindow();
}

void MainWindow::RunExportRange() {
  const QString title = tr("Export a part of the recording");
  if (shown_cluster_->recording() == nullptr) return Say(title, tr("Nothing is recorded."));
  const QString folder = options_.data_folder + QStringLiteral("/recordings");
  shown_cluster_->Read<history::RecordingInfo>(
      this, [](history::Recording& recording) { return recording.Info(); },
      [this, title, folder](const absl::StatusOr<history::RecordingInfo>& info) {
        if (!info.ok()) return TellFailure(this, title, info.status());
        QDir().mkpath(folder);
        AskExport(this, scrubber_->line()->interval(), info->interval, folder,
                  [this, from = info->path](history::Interval part, const QString& path) {
                    ExportRange(from, part, path);
                  });
      });
}

void MainWindow::ExportRange(const std::string& from, history::Interval part, const QString& path) {
  const QString file = SafeText(QFileInfo(path).fileName().toStdString(), 80);
  const int number = shown_cluster_->operations().Begin(tr("Export %1").arg(file));
  // A worker thread calls this, and may only ask whether the window is still there. All else runs
  // on the GUI thread.
  const auto note = [window = QPointer(this), number](double share) {
    QMetaObject::invokeMethod(
        qApp,
        [window, number, share] {
          if (window) window->shown_cluster().operations().Note(number, FormatShare(share));
        },
        Qt::QueuedConnection);
    return !window.isNull();
  };
  operations_dock_->show();
  // The export opens the recording once more, so that the time line can go on reading.
  shown_cluster_->Work<std::int64_t>(
      this,
      [from, part, path, note]() -> absl::StatusOr<std::int64_t> {
        ONEPIECE_ASSIGN_OR_RETURN(const auto recording, history::Recording::Open(from));
        ONEPIECE_RETURN_IF_ERROR(recording->Export(part, path.toStdString(), note));
        return QFileInfo(path).size();
      },
      [this, number, file](const absl::StatusOr<std::int64_t>& bytes) {
        shown_cluster_->operations().End(
            number, bytes.status(),
            bytes.ok() ? tr("%1, %2").arg(file, FormatBytes(static_cast<double>(*bytes)))
                       : QString());
        if (!bytes.ok()) TellFailure(this, tr("Export %1").arg(file), bytes.status());
      });
}

}  // namespace onepiece::gui
