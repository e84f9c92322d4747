// The one place that the console's views draw from: the shown snapshot, live or of the past, and
// whether anything may be changed now.
//
// A timer takes Session::Latest() ten times a second.
//
// Threading: GUI thread only.
// Blocking: no call waits for the network or for a long read of a file.
#pragma once

#include <QCoreApplication>
#include <QDeadlineTimer>
#include <QObject>
#include <QPointer>
#include <QString>
#include <QThreadPool>
#include <QTimer>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/history/recording.h"
#include "cluster/session/session.h"
#include "cluster/session/snapshot.h"
#include "gui/models/alert_desk.h"
#include "gui/models/operations.h"
#include "onepiece/v1/identity.pb.h"

namespace onepiece::gui {

/// Whether the operator may change the cluster from this console.
enum class ControlMode { kObserve, kControl };

class ShownCluster : public QObject {
  Q_OBJECT
 public:
  explicit ShownCluster(QObject* parent = nullptr);
  ~ShownCluster() override;

  /// Follows `session`, from the next tick on. Null if there is none, for example when only a file
  /// is open. Always goes back to observe mode.
  ///
  /// Ownership: shares the session.
  void Follow(std::shared_ptr<session::Session> session);
  /// Shows a snapshot, if live, and the state of the connection. Each tick calls this with what the
  /// session has.
  void Show(std::shared_ptr<const session::Snapshot> snapshot, const session::LinkStatus& link);
  /// Sets the recording that the past comes from: the session's own, or a file. With a file and no
  /// session, the link is kOffline and the recording's last instant is shown.
  void SetRecording(std::shared_ptr<history::Recording> recording);

  [[nodiscard]] const std::shared_ptr<session::Session>& session() const { return session_; }
  [[nodiscard]] const std::shared_ptr<history::Recording>& recording() const { return recording_; }
  /// Counts the calls of Follow(). Callers compare it to drop answers that belong to an earlier
  /// cluster.
  [[nodiscard]] int connection() const { return connection_; }
  /// Never null.
  [[nodiscard]] const std::shared_ptr<const session::Snapshot>& snapshot() const { return shown_; }
  [[nodiscard]] const session::LinkStatus& link() const { return link_; }

  [[nodiscard]] bool live() const { return viewing_ms_ == 0; }
  /// The shown instant in milliseconds since 1970; the present when live.
  [[nodiscard]] std::int64_t viewing_ms() const;
  /// Shows the past. On an error (a gap, nothing recorded) the shown snapshot stays.
  absl::Status ViewAt(std::int64_t at_ms);
  /// Stops at the shown instant. The recorder goes on.
  void Pause();
  /// Shows the newest snapshot again; without a session, the recording's last one.
  void GoLive();
  /// Sets the snapshot that the dialog "Compare two instants" compares with. Null for none.
  void Pin(std::shared_ptr<const session::Snapshot> snapshot);
  [[nodiscard]] const std::shared_ptr<const session::Snapshot>& pinned() const { return pinned_; }

  [[nodiscard]] ControlMode mode() const { return mode_; }
  void SetMode(ControlMode mode);
  /// Why nothing can be changed now; empty if changes are possible. Every disabled control shows it
  /// as its tool tip: "Observe mode: unlock with Ctrl+Shift+U",
  /// "Viewing the past: press L to go live", "Connection stale", "Recording",
  /// "The server is read-only". With a `method` (gui/models/permissions.h), also why this identity
  /// may not call it.
  [[nodiscard]] QString WhyNoChange(std::string_view method = {}) const;
  /// Why this identity may not call `method`: "Needs the scope operate; ci has submit". Empty if it
  /// may, and until the cluster has said who we are: an answer that is late must not keep an
  /// operator from acting, and the server refuses by itself what is forbidden.
  [[nodiscard]] QString WhyForbidden(std::string_view method) const;

  /// Who this console is to the cluster, as the cluster says. Null until it has said so, and when
  /// none is connected.
  [[nodiscard]] const v1::WhoAmIResponse* me() const { return me_ ? &*me_ : nullptr; }
  /// Asks the cluster who we are. Follow() does, and every tick that finds the connection back.
  void AskWhoWeAre();
  /// Takes the answer. LinkChanged() follows.
  void TakeIdentity(v1::WhoAmIResponse me);

  /// Runs `call` on a thread of the session, then `then` on the GUI thread, unless `context` has
  /// been destroyed by then. Every mutation and every slow question goes through here. `what`
  /// ("Drain instance-3") is listed among the operations, with the outcome. It is empty if the
  /// caller lists an operation that this call is a part of.
  ///
  /// Errors: `then` gets UNAVAILABLE when there is no session, or when too many calls wait already.
  template <typename T>
  void Ask(QObject* context, std::function<absl::StatusOr<T>(client::Client&)> call,
           std::function<void(absl::StatusOr<T>)> then, const QString& what);
  /// As Ask(), for questions to the recording: marks, gaps, series. The calls run one after the
  /// other.
  ///
  /// Errors: `then` gets FAILED_PRECONDITION when nothing is recorded.
  template <typename T>
  void Read(QObject* context, std::function<absl::StatusOr<T>(history::Recording&)> call,
            std::function<void(absl::StatusOr<T>)> then);
  /// As Ask(), for anything else that may take long and needs no connection: files, locks.
  template <typename T>
  void Work(QObject* context, std::function<absl::StatusOr<T>()> call,
            std::function<void(absl::StatusOr<T>)> then);

  /// Who takes acknowledgements and silences. Null if alerts can only be looked at.
  [[nodiscard]] const std::shared_ptr<AlertDesk>& desk() const { return desk_; }
  void SetDesk(std::shared_ptr<AlertDesk> desk) { desk_ = std::move(desk); }
  [[nodiscard]] OperationLog& operations() { return operations_; }

 Q_SIGNALS:
  /// Another snapshot is shown; at most ten times a second.
  void Changed();
  /// The state of the connection, or who we are to the cluster, has changed.
  void LinkChanged();
  /// Live or past, the pinned snapshot, the control mode or the recording has changed.
  void ModeChanged();

 private:
  template <typename T>
  static void Deliver(const QPointer<QObject>& alive, std::function<void(absl::StatusOr<T>)> then,
                      absl::StatusOr<T> answer);
  void Tick();

  std::shared_ptr<session::Session> session_;
  int connection_ = 0;
  std::shared_ptr<history::Recording> recording_;
  std::shared_ptr<AlertDesk> desk_;
  OperationLog operations_;
  std::shared_ptr<const session::Snapshot> shown_, pinned_;
  session::LinkStatus link_;
  std::optional<v1::WhoAmIResponse> me_;
  bool asking_who_ = false;
  /// When to ask again who we are, after no answer came.
  QDeadlineTimer ask_again_{QDeadlineTimer::Forever};
  std::int64_t viewing_ms_ = 0;
  ControlMode mode_ = ControlMode::kObserve;
  QTimer tick_;
  QThreadPool reading_;  ///< One thread, so that reads come in order.
};

template <typename T>
void ShownCluster::Deliver(const QPointer<QObject>& alive,
                           std::function<void(absl::StatusOr<T>)> then, absl::StatusOr<T> answer) {
  // The call goes to qApp and not to `alive`, which may be destroyed on the GUI thread at any time.
  // Only that thread may look at it.
  QMetaObject::invokeMethod(
      qApp,
      [alive, then = std::move(then), answer = std::move(answer)]() mutable {
        if (alive) then(std::move(answer));
      },
      Qt::QueuedConnection);
}

template <typename T>
void ShownCluster::Ask(QObject* context, std::function<absl::StatusOr<T>(client::Client&)> call,
                       std::function<void(absl::StatusOr<T>)> then, const QString& what) {
  const int number = what.isEmpty() ? 0 : operations_.Begin(what);
  // A refused change shows that the server is read-only. That is true only of the server that was
  // asked, so an answer from before the last Follow() does not count.
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
void ShownCluster::Read(QObject* context,
                        std::function<absl::StatusOr<T>(history::Recording&)> call,
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
void ShownCluster::Work(QObject* context, std::function<absl::StatusOr<T>()> call,
                        std::function<void(absl::StatusOr<T>)> then) {
  QThreadPool::globalInstance()->start(
      [alive = QPointer<QObject>(context), call = std::move(call), then = std::move(then)] {
        Deliver<T>(alive, then, call());
      });
}

}  // namespace onepiece::gui
