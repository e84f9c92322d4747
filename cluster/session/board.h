// Where the feeds of a Session put what they learn, and readers take it: the latest of each part,
// and the state of the connection. Internal to gui/client.
//
// Threading  Thread-safe; every call takes one lock for moments, but Sleep.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>

#include "cluster/base/clock.h"
#include "cluster/session/link.h"
#include "cluster/session/snapshot.h"

namespace onepiece::gui {

/// The console's clock.
inline std::int64_t NowMs() { return base::ToUnixMs(base::SystemClock().WallNow()); }

/// Now, by the clock that people set, and by one that nobody sets and that goes on while the
/// machine sleeps: what was heard before that is old afterwards.
struct BoardTime {
  std::int64_t wall_ms = 0, up_ms = 0;
};
BoardTime SystemBoardTime();

/// What makes feeds begin anew. Each number grows.
struct Turns {
  std::uint64_t losses = 0;    ///< Connections lost: what is known must be told again.
  std::uint64_t resyncs = 0;   ///< Session::Resync.
  std::uint64_t clusters = 0;  ///< Another cluster answers at the same address.
};

class Board {
 public:
  explicit Board(std::function<BoardTime()> now = SystemBoardTime);

  /// Replaces a part. `updates` of the cluster went into it.
  template <typename T>
  void Put(Part<T> Snapshot::*part, std::shared_ptr<const T> value, std::string error = {},
           std::uint64_t updates = 1) {
    PutPart(part, {std::move(value), now_().wall_ms, std::move(error)}, updates);
  }
  template <typename T>
  void PutPart(Part<T> Snapshot::*part, Part<T> value, std::uint64_t updates = 1) {
    const std::scoped_lock lock(mutex_);
    const auto& now = (newest_.*part).value;
    if (now != value.value) {
      // Whoever looks sees the last of the updates alone, and perhaps never saw the one before.
      const bool overtaken = now != nullptr && (taken_ == nullptr || now != (*taken_.*part).value);
      dropped_ += updates - 1 + (overtaken ? 1 : 0);
    }
    newest_.*part = std::move(value);
    latest_ = nullptr;
  }
  /// There is nothing newer, and why; the value stays.
  template <typename T>
  void Fail(Part<T> Snapshot::*part, const std::string& why) {
    const std::scoped_lock lock(mutex_);
    if ((newest_.*part).error == why) return;
    (newest_.*part).error = why;
    latest_ = nullptr;
  }
  std::shared_ptr<const Snapshot> Latest();
  /// Null: not known yet.
  [[nodiscard]] std::shared_ptr<const v1::Cluster> cluster() const;

  void Heard(std::int64_t server_ms, int api_version);
  void Trying();
  void Lost(const absl::Status& why, base::Duration until_next_try);
  void RefusedReadOnly();
  [[nodiscard]] LinkStatus link();

  [[nodiscard]] Turns turns() const;
  /// Ends every Sleep.
  void Wake();
  void Resync();
  void OtherCluster();
  /// Waits; ends early after a Wake since the last Sleep with this `seen`. False: stop was
  /// requested.
  bool Sleep(base::Duration time, const std::stop_token& stop, std::uint64_t& seen);

 private:
  /// The time, after link_ has been told that the clock was set. With mutex_ held.
  std::int64_t LinkNowMs();

  const std::function<BoardTime()> now_;
  mutable std::mutex mutex_;
  std::condition_variable_any woken_;
  // Guarded by mutex_.
  Snapshot newest_;
  std::shared_ptr<const Snapshot> latest_;  // Null: newest_ is newer.
  std::shared_ptr<const Snapshot> taken_;   // What Latest() said last.
  std::uint64_t dropped_ = 0;
  LinkState link_;
  std::int64_t clock_offset_ms_ = 0;  // Of the clock to one that nobody sets.
  Turns turns_;
  std::uint64_t wakes_ = 0;
};

}  // namespace onepiece::gui
