// Tells the keepers of work what became of it (cluster/node/kept_work.h).
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/message/message.h"
#include "cluster/node/cluster_view.h"
#include "onepiece/v1/work.pb.h"

namespace onepiece::node {

/// Sends what it is told to the keepers from its own thread, many works in one call. It repeats a
/// call until the keeper answers. What is left of a keeper that is gone, or of a job whose deadline
/// is over, is of no use and is dropped. Beyond kMaxPending it drops what comes: its keeper then
/// finds out from the job's record.
///
/// Ownership: owns its thread. Borrows the view and the clock.
/// Threading: thread-safe. `tell` is called on the thread of Start(). Without Start(), one thread
/// may call TellAll().
/// Blocking: only TellAll() waits, and Close() and the destructor, for a call under way and one
/// round more.
class Settler {
 public:
  /// Tells one keeper.
  using Tell =
      std::function<absl::Status(const v1::Endpoint& keeper, const v1::SettleWorkRequest&)>;
  static constexpr std::size_t kMaxPending = 10'000;
  static constexpr int kMaxWorks = 1000;  ///< In one call.

  Settler(const ClusterView& view, Tell tell, base::Clock& clock = base::SystemClock());
  ~Settler();  ///< Close().
  Settler(const Settler&) = delete;
  Settler& operator=(const Settler&) = delete;

  /// The work of this message is completed: handed on, or its job has ended here. Does nothing for
  /// work without a keeper, as Moved().
  void Completed(const message::Header& header);
  /// The message that came with this header was passed on to this holder.
  void Moved(const message::Header& header, const v1::WorkHolder& to);
  /// Begins to tell, on a thread of its own.
  void Start();
  /// Tells once more what is pending, and ends the thread. Idempotent.
  void Close() { thread_ = {}; }
  /// Tells each keeper once what is pending. Returns whether everybody was told.
  bool TellAll();
  [[nodiscard]] std::size_t pending() const;

 private:
  /// A keeper's node id and incarnation.
  using Keeper = std::pair<std::string, std::uint64_t>;
  struct Word {
    v1::WorkSettled settled;
    std::uint64_t routing_epoch = 0;  ///< Of a table that may show the keeper dead.
    base::MonotonicTime deadline{};
  };

  void Add(const message::Header& header, v1::WorkSettled settled);
  void Main(const std::stop_token& stop);

  const ClusterView& view_;
  const Tell tell_;
  base::Clock& clock_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::map<Keeper, std::vector<Word>> pending_ ABSL_GUARDED_BY(mutex_);
  std::size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::jthread thread_;
};

}  // namespace onepiece::node
