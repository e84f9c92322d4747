// The part of ShownCluster that says where snapshots come from: a session or a recording.
#include <utility>

#include "gui/models/shown_cluster.h"

namespace onepiece::gui {
namespace {

/// How long after a failure the cluster is asked again who we are.
constexpr int kAskAgainMs = 5000;

/// Whether the session has a stream of the cluster's events, also one that is silent.
bool IsConnected(session::Link link) {
  return link == session::Link::kLive || link == session::Link::kLagging ||
         link == session::Link::kStale;
}

session::LinkStatus Offline(std::string detail) {
  session::LinkStatus link;
  link.link = session::Link::kOffline;
  link.detail = std::move(detail);
  return link;
}

}  // namespace

void ShownCluster::Follow(std::shared_ptr<session::Session> session) {
  tick_.disconnect(this);
  session_ = std::move(session);
  ++connection_;
  me_.reset();
  asking_who_ = false;
  viewing_ms_ = 0;
  mode_ = ControlMode::kObserve;  // Nobody has unlocked this cluster yet.
  if (session_ != nullptr) {
    connect(&tick_, &QTimer::timeout, this, &ShownCluster::Tick);
    tick_.start();
    AskWhoWeAre();
  } else {
    tick_.stop();
    Show(std::make_shared<session::Snapshot>(), Offline({}));
  }
  Q_EMIT ModeChanged();
  if (session_ != nullptr) Tick();
}

void ShownCluster::SetRecording(std::shared_ptr<history::Recording> recording) {
  recording_ = std::move(recording);
  // A session's own recording changes nothing that is shown now: snapshot and link stay the
  // session's.
  if (session_ != nullptr || recording_ == nullptr) {
    Q_EMIT ModeChanged();
    return;
  }
  const auto info = recording_->Info();
  link_ = Offline(info.ok() ? info->path : info.status().ToString());
  Q_EMIT LinkChanged();
  GoLive();
}

absl::Status ShownCluster::ViewAt(std::int64_t at_ms) {
  if (recording_ == nullptr) return absl::FailedPreconditionError("nothing is being recorded");
  // At() takes a few milliseconds, so the GUI thread may call it.
  auto snapshot = recording_->At(at_ms);
  if (!snapshot.ok()) return snapshot.status();
  viewing_ms_ = at_ms;
  shown_ = *std::move(snapshot);
  Q_EMIT ModeChanged();
  Q_EMIT Changed();
  return absl::OkStatus();
}

void ShownCluster::GoLive() {
  if (session_ == nullptr) {  // The last instant of a file is the newest one.
    if (recording_ == nullptr) return;
    const auto info = recording_->Info();
    if (info.ok()) ViewAt(info->interval.to_ms).IgnoreError();
    return;
  }
  viewing_ms_ = 0;
  Q_EMIT ModeChanged();
  Tick();
}

void ShownCluster::Tick() {
  const bool was_connected = IsConnected(link_.link);
  Show(session_->Latest(), session_->status());
  const bool back = !was_connected && IsConnected(link_.link);
  // Tokens are revoked and certificates renewed while nobody is connected.
  const bool answers = IsConnected(link_.link) || link_.link == session::Link::kAuthFailed;
  if (back || (answers && ask_again_.hasExpired())) AskWhoWeAre();
}

void ShownCluster::AskWhoWeAre() {
  if (session_ == nullptr || asking_who_) return;
  asking_who_ = true;
  ask_again_ = QDeadlineTimer(QDeadlineTimer::Forever);
  Ask<v1::WhoAmIResponse>(
      this, [](client::Client& client) { return client.WhoAmI(); },
      [this, asked = connection_](absl::StatusOr<v1::WhoAmIResponse> answer) {
        if (asked != connection_) return;  // Another cluster was chosen meanwhile.
        asking_who_ = false;
        if (answer.ok()) return TakeIdentity(*std::move(answer));
        // An older server does not have the method.
        if (!absl::IsUnimplemented(answer.status())) ask_again_.setRemainingTime(kAskAgainMs);
      },
      {});
}

void ShownCluster::TakeIdentity(v1::WhoAmIResponse me) {
  me_ = std::move(me);
  Q_EMIT LinkChanged();
}

}  // namespace onepiece::gui
