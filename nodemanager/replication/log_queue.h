// What the thread of a replicated log has to do next. Private to this folder.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "nodemanager/paxos/replica.h"
#include "nodemanager/replication/group_id.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {

/// Something that a caller asks of the replica. The log's thread does it.
struct LogRequest {
  /// Begins the request on the log's thread. Returns the slot whose entry answers the request. No
  /// slot means that it is answered when all that it did is durable.
  /// Null when the request asks for a snapshot. It is then answered when a snapshot of what is
  /// applied now is durable.
  std::function<absl::StatusOr<paxos::Slot>(paxos::Replica&, paxos::Time, paxos::Outputs&)> begin;
  std::shared_ptr<const std::string> payload;  ///< The command's bytes, or null.
  std::optional<v1::Command> command;          ///< What `payload` says.
  bool appends = false;                        ///< It waits while the log has no room.
  /// It asks for the leader's read index, and is answered when that is in `index`.
  bool asks_index = false;
  paxos::Slot index;
  /// Called once, on any thread. It must not block.
  std::function<void(absl::StatusOr<v1::CommandResult>)> answer;

  /// Answers, unless that was done before. Thread-safe.
  void Finish(absl::StatusOr<v1::CommandResult> result) {
    if (finished_.exchange(true)) return;
    answer(std::move(result));
    answer = nullptr;  // What it holds may go, even if the log keeps the request for a while.
  }
  /// True when nobody waits for the answer any more.
  [[nodiscard]] bool finished() const { return finished_.load(); }

 private:
  std::atomic<bool> finished_{false};
};

/// What came in between two steps of the log's thread.
struct LogInputs {
  std::vector<paxos::Message> messages;
  std::vector<std::shared_ptr<LogRequest>> requests;
  bool woken = false;  ///< Wake() was called.
  /// The group that has asked a new replica to join, if any.
  std::string cluster_id;
  GroupId group;
};

/// The bounded queue from the network and from callers to the log's thread. It is closed at first.
///
/// Threading: thread-safe. One thread takes.
class LogQueue {
 public:
  /// Lets messages and requests in, unless Close() was called.
  void Open();
  /// Refuses messages and requests for good. What is in the queue stays there.
  void Close();
  /// Drops the message while the queue is closed or full. Consensus sends again.
  void PushMessage(paxos::Message message);
  /// An invitation is taken at any time, and replaces an earlier one.
  void PushInvitation(const std::string& cluster_id, GroupId group);
  /// Errors: UNAVAILABLE (NOT_LEADER) while the queue is closed, RESOURCE_EXHAUSTED (LOG_BUSY).
  absl::Status PushRequest(std::shared_ptr<LogRequest> request);
  /// Ends a wait although nothing has come in.
  void Wake();
  /// Takes all that is there. Never blocks.
  LogInputs Take();
  /// Waits until something is there, `limit` has passed or `stop` is requested, and then takes all.
  LogInputs WaitAndTake(const std::stop_token& stop, base::Duration limit);

 private:
  [[nodiscard]] bool IsEmpty() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  [[nodiscard]] absl::Status CheckRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  base::Mutex mutex_;
  base::CondVar pushed_;
  LogInputs inputs_ ABSL_GUARDED_BY(mutex_);
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // Close() was called.
};

}  // namespace onepiece::nodemanager
