#include "gui/models/store.h"

#include <tuple>
#include <utility>

#include "cluster/base/clock.h"

namespace onepiece::gui {
namespace {

std::int64_t NowMs() { return base::ToUnixMs(base::SystemClock().WallNow()); }

/// What people are told of the connection; its age and its counts change all the time.
auto Told(const LinkStatus& link) {
  return std::tie(link.link, link.attempt, link.next_try_ms, link.detail, link.read_only);
}

}  // namespace

Store::Store(QObject* parent) : QObject(parent), shown_(std::make_shared<Snapshot>()) {
  tick_.setInterval(100);
  reading_.setMaxThreadCount(1);
}

Store::~Store() = default;

void Store::Show(std::shared_ptr<const Snapshot> snapshot, const LinkStatus& link) {
  const bool told = Told(link) != Told(link_);
  link_ = link;
  if (told) Q_EMIT LinkChanged();
  if (!live() || snapshot == nullptr || snapshot == shown_) return;
  shown_ = std::move(snapshot);
  Q_EMIT Changed();
}

std::int64_t Store::viewing_ms() const { return live() ? NowMs() : viewing_ms_; }

void Store::Pause() {
  if (!live()) return;
  viewing_ms_ = shown_->at_ms != 0 ? shown_->at_ms : NowMs();
  Q_EMIT ModeChanged();
}

void Store::Pin(std::shared_ptr<const Snapshot> snapshot) {
  pinned_ = std::move(snapshot);
  Q_EMIT ModeChanged();
}

void Store::SetMode(ControlMode mode) {
  if (mode == mode_) return;
  mode_ = mode;
  Q_EMIT ModeChanged();
}

QString Store::WhyNoChange() const {
  if (link_.link == Link::kOffline) {
    return recording_ != nullptr ? tr("Recording") : tr("No cluster is connected");
  }
  if (!live()) return tr("Viewing the past: press L to go live");
  switch (link_.link) {
    case Link::kLive:
      break;
    case Link::kConnecting:
      return tr("Connecting");
    case Link::kLagging:
      return tr("Connection lagging");
    case Link::kStale:
      return tr("Connection stale");
    case Link::kReconnecting:
      return tr("Connection lost");
    case Link::kAuthFailed:
      return tr("The server does not let us in");
    case Link::kVersionMismatch:
      return tr("The server speaks another version");
    case Link::kOffline:
      return tr("Recording");
  }
  if (link_.read_only) return tr("The server is read-only");
  if (mode_ == ControlMode::kObserve) return tr("Observe mode: unlock with Ctrl+Shift+U");
  return {};
}

}  // namespace onepiece::gui
