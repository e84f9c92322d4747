// The one place that the console's views draw from: the snapshot that is shown, live or of the
// past, and whether anything may be changed now.
//
// Threading  GUI thread only. A timer takes Session::Latest() ten times a second; no call waits for
// the
//            network or for a long read of a file.
#pragma once

#include <QCoreApplication>
#include <QObject>
#include <QPointer>
#include <QString>
#include <QThreadPool>
#include <QTimer>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/session/session.h"
#include "cluster/session/snapshot.h"
#include "cluster/history/recording.h"
#include "gui/models/alert_desk.h"
#include "gui/models/operations.h"

namespace onepiece::gui {

/// May the operator change the cluster from here?
enum class ControlMode { kObserve, kControl };

class Store : public QObject {
  Q_OBJECT
 public:
  explicit Store(QObject* parent = nullptr);
  ~Store() override;

  /// Follows `session` (null: none, e.g. only a file is open); views see its snapshots from the
  /// next tick on.
  void Follow(std::shared_ptr<Session> session);
  /// Shows a snapshot while live, and what is known of the connection: what a tick does with the
  /// session's.
  void Show(std::shared_ptr<const Snapshot> snapshot, const LinkStatus& link);
  /// Where the past comes from: the session's own recording, or a file (then Link is kOffline and
  /// the instant shown is the recording's last).
  void SetRecording(std::shared_ptr<history::Recording> recording);

  [[nodiscard]] const std::shared_ptr<Session>& session() const { return session_; }
  [[nodiscard]] const std::shared_ptr<history::Recording>& recording() const { return recording_; }
  /// Counts the calls of Follow: what was asked of one cluster is not meant for the next.
  [[nodiscard]] int connection() const { return connection_; }
  /// Never null.
  [[nodiscard]] const std::shared_ptr<const Snapshot>& snapshot() const { return shown_; }
  [[nodiscard]] const LinkStatus& link() const { return link_; }

  [[nodiscard]] bool live() const { return viewing_ms_ == 0; }
  /// The instant shown; now when live.
  [[nodiscard]] std::int64_t viewing_ms() const;
  /// Shows the past; a failure (a gap, nothing recorded) keeps what is shown, and is returned.
  absl::Status ViewAt(std::int64_t at_ms);
  /// Stops following without leaving the instant; recording goes on.
  void Pause();
  void GoLive();
  /// The snapshot that is compared with (pinned); null: none.
  void Pin(std::shared_ptr<const Snapshot> snapshot);
  [[nodiscard]] const std::shared_ptr<const Snapshot>& pinned() const { return pinned_; }

  [[nodiscard]] ControlMode mode() const { return mode_; }
  void SetMode(ControlMode mode);
  /// Empty: changes are possible. Else why not, for the tooltip of everything that is disabled:
  /// "Observe mode: unlock with Ctrl+Shift+U", "Viewing the past", "Connection stale", "Recording",
  /// "The server is read-only".
  [[nodiscard]] QString WhyNoChange() const;

  /// Runs `call` off the GUI thread and `then` on it, unless `context` is gone by then. Every
  /// mutation and every slow question goes through here. `what` is listed among the operations with
  /// what came of it: "Drain instance-3"; empty: it is a part of one that the caller lists.
  template <typename T>
  void Ask(QObject* context, std::function<absl::StatusOr<T>(client::Client&)> call,
           std::function<void(absl::StatusOr<T>)> then, const QString& what);
  /// The same of the recording: marks, gaps, series. Calls run one after the other.
  /// FAILED_PRECONDITION: nothing is recorded.
  template <typename T>
  void Read(QObject* context, std::function<absl::StatusOr<T>(history::Recording&)> call,
            std::function<void(absl::StatusOr<T>)> then);
  /// The same of anything else that may take long and needs no connection: files, locks.
  template <typename T>
  void Work(QObject* context, std::function<absl::StatusOr<T>()> call,
            std::function<void(absl::StatusOr<T>)> then);

  /// Who takes acknowledgements and silences; null: alerts are only looked at.
  [[nodiscard]] const std::shared_ptr<AlertDesk>& desk() const { return desk_; }
  void SetDesk(std::shared_ptr<AlertDesk> desk) { desk_ = std::move(desk); }
  [[nodiscard]] OperationLog& operations() { return operations_; }

 Q_SIGNALS:
  /// Another snapshot is shown (≤ 10 a second).
  void Changed();
  void LinkChanged();
  /// Live, past, pinned or control mode.
  void ModeChanged();

 private:
  template <typename T>
  static void Deliver(const QPointer<QObject>& alive, std::function<void(absl::StatusOr<T>)> then,
                      absl::StatusOr<T> answer);
  void Tick();

  std::shared_ptr<Session> session_;
  int connection_ = 0;
  std::shared_ptr<history::Recording> recording_;
  std::shared_ptr<AlertDesk> desk_;
  OperationLog operations_;
  std::shared_ptr<const Snapshot> shown_, pinned_;
  LinkStatus link_;
  std::int64_t viewing_ms_ = 0;
  ControlMode mode_ = ControlMode::kObserve;
  QTimer tick_;
  QThreadPool reading_;  ///< One thread.
};

template <typename T>
void Store::Deliver(const QPointer<QObject>& alive, std::function<void(absl::StatusOr<T>)> then,
                    absl::StatusOr<T> answer) {
  QMetaObject::invokeMethod(
      qApp,
      [alive, then = std::move(then), answer = std::move(answer)]() mutable {
        if (alive) then(std::move(answer));
      },
      Qt::QueuedConnection);
}

template <typename T>
void Store::Ask(QObject* context, std::function<absl::StatusOr<T>(client::Client&)> call,
                std::function<void(absl::StatusOr<T>)> then, const QString& what) {
  const int number = what.isEmpty() ? 0 : operations_.Begin(what);
  // A change that is refused tells of a server that is read-only: of the one that was asked.
  const auto note = [this, context = QPointer<QObject>(context), asked = connection_, number,
                     then = std::move(then)](absl::StatusOr<T> answer) {
    operations_.End(number, answer.status());
    if (connection_ == asked && session_ != nullptr) session_->NoteAnswer(answer.status());
    if (context) then(std::move(answer));
  };
  const QPointer<QObject> alive(this);
  const bool taken = session_ != nullptr &&
                     session_->Do([alive, note, call = std::move(call)](client::Client& client) {
                       Deliver<T>(alive, note, call(client));
                     });
  if (!taken) {
    Deliver<T>(alive, note,
               absl::UnavailableError("no connection, or too much is being asked for"));
  }
}

template <typename T>
void Store::Read(QObject* context, std::function<absl::StatusOr<T>(history::Recording&)> call,
                 std::function<void(absl::StatusOr<T>)> then) {
  reading_.start([alive = QPointer<QObject>(context), recording = recording_,
                  call = std::move(call), then = std::move(then)] {
    Deliver<T>(alive, then,
               recording != nullptr
                   ? call(*recording)
                   : absl::StatusOr<T>(absl::FailedPreconditionError("nothing is being recorded")));
  });
}

template <typename T>
void Store::Work(QObject* context, std::function<absl::StatusOr<T>()> call,
                 std::function<void(absl::StatusOr<T>)> then) {
  QThreadPool::globalInstance()->start(
      [alive = QPointer<QObject>(context), call = std::move(call), then = std::move(then)] {
        Deliver<T>(alive, then, call());
      });
}

}  // namespace onepiece::gui
