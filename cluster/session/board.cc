#include "cluster/session/board.h"

#include <time.h>

#include <cstdlib>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"

namespace onepiece::session {
namespace {

/// The two clocks always run a little apart. A larger jump means that somebody has set the clock.
constexpr std::int64_t kClockSetMs = 500;

}  // namespace

BoardTime SystemBoardTime() {
  timespec up{};
  clock_gettime(CLOCK_BOOTTIME, &up);
  return {NowMs(), std::int64_t{up.tv_sec} * 1000 + up.tv_nsec / 1'000'000};
}

Board::Board(std::function<BoardTime()> now) : now_(std::move(now)), link_(now_().wall_ms) {
  const BoardTime begin = now_();
  clock_offset_ms_ = begin.wall_ms - begin.up_ms;
  newest_.at_ms = begin.wall_ms;
  latest_ = std::make_shared<const Snapshot>(newest_);
}

std::shared_ptr<const Snapshot> Board::Latest() {
  const base::MutexLock lock(mutex_);
  if (latest_ == nullptr) {
    newest_.at_ms = now_().wall_ms;
    latest_ = std::make_shared<const Snapshot>(newest_);
  }
  taken_ = latest_;
  return latest_;
}

std::shared_ptr<const v1::Cluster> Board::cluster() const {
  const base::MutexLock lock(mutex_);
  return newest_.cluster.value;
}

std::int64_t Board::LinkNowMs() {
  const BoardTime now = now_();
  const std::int64_t set_by = now.wall_ms - now.up_ms - clock_offset_ms_;
  if (std::abs(set_by) >= kClockSetMs) {
    clock_offset_ms_ += set_by;
    link_.ClockSet(set_by);
  }
  return now.wall_ms;
}

void Board::Heard(std::int64_t server_ms, int api_version) {
  const base::MutexLock lock(mutex_);
  const std::int64_t now = LinkNowMs();
  const Link before = link_.At(now).link;
  link_.Heard(now, server_ms, api_version);
  if (before == link_.At(now).link) return;
  // The connection is back, so every feed asks immediately.
  ++wakes_;
  woken_.NotifyAll();
}

void Board::Trying() {
  const base::MutexLock lock(mutex_);
  link_.Trying(LinkNowMs());
}

void Board::Lost(const absl::Status& why, base::Duration until_next_try) {
  const base::MutexLock lock(mutex_);
  const std::int64_t now = LinkNowMs();
  // One loss may take many tries, and only the first of them counts as a loss.
  if (link_.At(now).attempt == 0) ++turns_.losses;
  link_.Lost(now, why, now + until_next_try / std::chrono::milliseconds(1));
}

void Board::RefusedReadOnly() {
  const base::MutexLock lock(mutex_);
  link_.RefusedReadOnly();
}

LinkStatus Board::link() {
  const base::MutexLock lock(mutex_);
  LinkStatus status = link_.At(LinkNowMs());
  status.dropped = dropped_;
  return status;
}

Turns Board::turns() const {
  const base::MutexLock lock(mutex_);
  return turns_;
}

void Board::Wake() {
  const base::MutexLock lock(mutex_);
  ++wakes_;
  woken_.NotifyAll();
}

void Board::Resync() {
  const base::MutexLock lock(mutex_);
  ++turns_.resyncs;
  ++wakes_;
  woken_.NotifyAll();
}

void Board::OtherCluster() {
  const base::MutexLock lock(mutex_);
  ++turns_.clusters;
}

bool Board::Sleep(base::Duration time, const std::stop_token& stop, std::uint64_t& seen) {
  base::MutexLock lock(mutex_);
  base::Clock& clock = base::SystemClock();
  clock.WaitUntil(woken_, lock, stop, clock.Now() + time,
                  [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return wakes_ != seen; });
  seen = wakes_;
  return !stop.stop_requested();
}

}  // namespace onepiece::session
