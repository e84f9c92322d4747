#include "gui/models/shown_cluster.h"

#include <tuple>
#include <utility>

#include "cluster/base/clock.h"
#include "gui/models/permissions.h"

namespace onepiece::gui {
namespace {

std::int64_t NowMs() { return base::ToUnixMs(base::SystemClock().WallNow()); }

/// The part of the connection's state that people see. Its age and its counts change all the time
/// and are no reason for LinkChanged().
auto Told(const session::LinkStatus& link) {
  return std::tie(link.link, link.attempt, link.next_try_ms, link.detail, link.read_only);
}

}  // namespace

ShownCluster::ShownCluster(QObject* parent)
    : QObject(parent), shown_(std::make_shared<session::Snapshot>()) {
  tick_.setInterval(100);
  reading_.setMaxThreadCount(1);
}

ShownCluster::~ShownCluster() = default;

void ShownCluster::Show(std::shared_ptr<const session::Snapshot> snapshot,
                        const session::LinkStatus& link) {
  // The state of the connection is shown in the past, too, so it is taken over before live() is
  // asked.
  const bool told = Told(link) != Told(link_);
  link_ = link;
  if (told) Q_EMIT LinkChanged();
  if (!live() || snapshot == nullptr || snapshot == shown_) return;
  shown_ = std::move(snapshot);
  Q_EMIT Changed();
}

std::int64_t ShownCluster::viewing_ms() const { return live() ? NowMs() : viewing_ms_; }

void ShownCluster::Pause() {
  if (!live()) return;
  viewing_ms_ = shown_->at_ms != 0 ? shown_->at_ms : NowMs();
  Q_EMIT ModeChanged();
}

void ShownCluster::Pin(std::shared_ptr<const session::Snapshot> snapshot) {
  pinned_ = std::move(snapshot);
  Q_EMIT ModeChanged();
}

void ShownCluster::SetMode(ControlMode mode) {
  if (mode == mode_) return;
  mode_ = mode;
  Q_EMIT ModeChanged();
}

QString ShownCluster::WhyForbidden(std::string_view method) const {
  return me_ && !method.empty() ? gui::WhyForbidden(*me_, method) : QString();
}

QString ShownCluster::WhyNoChange(std::string_view method) const {
  // This comes before the hint to go live: without a session that key would not help.
  if (link_.link == session::Link::kOffline) {
    return recording_ != nullptr ? tr("Recording") : tr("No cluster is connected");
  }
  // Neither going live nor unlocking helps those who lack the scope, so that is said first.
  if (QString why = WhyForbidden(method); !why.isEmpty()) return why;
  if (!live()) return tr("Viewing the past: press L to go live");
  switch (link_.link) {
    case session::Link::kLive:
      break;
    case session::Link::kConnecting:
      return tr("Connecting");
    case session::Link::kLagging:
      return tr("Connection lagging");
    case session::Link::kStale:
      return tr("Connection stale");
    case session::Link::kReconnecting:
      return tr("Connection lost");
    case session::Link::kAuthFailed:
      return tr("The server does not let us in");
    case session::Link::kVersionMismatch:
      return tr("The server speaks another version");
    case session::Link::kOffline:
      return tr("Recording");
  }
  if (link_.read_only) return tr("The server is read-only");
  if (mode_ == ControlMode::kObserve) return tr("Observe mode: unlock with Ctrl+Shift+U");
  return {};
}

}  // namespace onepiece::gui
