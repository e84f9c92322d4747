// The board between the feeds of a Session and its readers. Feeds put what they learn on it, and
// readers take the latest of each part and the state of the connection. Internal to
// cluster/session.
//
// Threading: may be used from any thread.
// Blocking: only Sleep() waits. Every other call takes one lock for moments.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/session/link.h"
#include "cluster/session/snapshot.h"

namespace onepiece::session {

/// Returns the time of this machine's clock, in milliseconds since 1970.
inline std::int64_t NowMs() { return base::ToUnixMs(base::SystemClock().WallNow()); }

/// One instant on two clocks: the wall clock, which people set, and a clock that nobody sets and
/// that goes on while the machine sleeps. The second tells that news from before a sleep is old.
struct BoardTime {
  std::int64_t wall_ms = 0, up_ms = 0;
};
BoardTime SystemBoardTime();

/// Counts of the events that make feeds begin anew.
struct Turns {
  std::uint64_t losses = 0;    ///< Lost connections. Everything known must be told again.
  std::uint64_t resyncs = 0;   ///< Calls of Session::Resync.
  std::uint64_t clusters = 0;  ///< Times that another cluster answered at the same address.
};

class Board {
 public:
  explicit Board(std::function<BoardTime()> now = SystemBoardTime);

  /// Replaces a part. `updates` is the number of the cluster's updates that the new part contains.
  template <typename T>
  void Put(Part<T> Snapshot::*part, std::shared_ptr<const T> value, std::string error = {},
           std::uint64_t updates = 1) {
    PutPart(part, {std::move(value), now_().wall_ms, std::move(error)}, updates);
  }
  template <typename T>
  void PutPart(Part<T> Snapshot::*part, Part<T> value, std::uint64_t updates = 1) {
    const base::MutexLock lock(mutex_);
    const auto& now = (newest_.*part).value;
    if (now != value.value) {
      // A reader sees only the last of these updates. If no reader took the part before, that one
      // is lost as well.
      const bool overtaken = now != nullptr && (taken_ == nullptr || now != (*taken_.*part).value);
      dropped_ += updates - 1 + (overtaken ? 1 : 0);
    }
    newest_.*part = std::move(value);
    latest_ = nullptr;
  }
  /// Says why a part cannot be newer. Its value stays.
  template <typename T>
  void Fail(Part<T> Snapshot::*part, const std::string& why) {
    const base::MutexLock lock(mutex_);
    if ((newest_.*part).error == why) return;
    (newest_.*part).error = why;
    latest_ = nullptr;
  }
  std::shared_ptr<const Snapshot> Latest();
  /// Returns null while the cluster is not known.
  [[nodiscard]] std::shared_ptr<const v1::Cluster> cluster() const;

  void Heard(std::int64_t server_ms, int api_version);
  void Trying();
  void Lost(const absl::Status& why, base::Duration until_next_try);
  void RefusedReadOnly();
  [[nodiscard]] LinkStatus link();

  [[nodiscard]] Turns turns() const;
  /// Ends every Sleep().
  void Wake();
  void Resync();
  void OtherCluster();
  /// Waits for `time`. Returns early if there was a Wake() since the last Sleep() with this `seen`.
  /// Returns false when a stop was requested.
  bool Sleep(base::Duration time, const std::stop_token& stop, std::uint64_t& seen);

 private:
  /// Returns the time, after telling link_ if the clock was set.
  std::int64_t LinkNowMs() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<BoardTime()> now_;
  mutable base::Mutex mutex_;
  base::CondVar woken_;
  Snapshot newest_ ABSL_GUARDED_BY(mutex_);
  // Null when newest_ is newer.
  std::shared_ptr<const Snapshot> latest_ ABSL_GUARDED_BY(mutex_);
  // The last answer of Latest().
  std::shared_ptr<const Snapshot> taken_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  LinkState link_ ABSL_GUARDED_BY(mutex_);
  // The wall clock minus the clock that nobody sets.
  std::int64_t clock_offset_ms_ ABSL_GUARDED_BY(mutex_) = 0;
  Turns turns_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t wakes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace onepiece::session
