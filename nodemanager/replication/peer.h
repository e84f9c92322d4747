// The sending half of a connection to one replica. Private to this folder.
#pragma once

#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "nodemanager/replication/encoded_message.h"
#include "onepiece/v1/consensus.grpc.pb.h"

namespace onepiece::nodemanager {

/// Opens a stream to `address` when there is something to send, and opens it again when it breaks.
///
/// Ownership: owns its thread, and a queue of at most kMaxMessages and kMaxBytes.
/// Threading: thread-safe.
/// Blocking: Send() never blocks. The destructor joins the thread.
class Peer {
 public:
  static constexpr std::size_t kMaxMessages = 4096;
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

  Peer(std::string address, v1::ReplicaHello hello, base::Clock& clock);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Queues a message. A full queue is emptied first, because a peer that is so far behind needs
  /// only the newest messages, and consensus sends again what it misses.
  void Send(std::shared_ptr<const EncodedMessage> message);

 private:
  void Run(const std::stop_token& stop);
  // Sends until the stream breaks, and returns the reason.
  absl::Status Speak(const std::stop_token& stop);
  std::vector<std::shared_ptr<const EncodedMessage>> Take(const std::stop_token& stop);
  // Logs why the stream broke, unless that was the last reason too.
  void Tell(const absl::Status& why);

  const std::string address_;
  const v1::ReplicaHello hello_;
  base::Clock& clock_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::string told_;  // Thread's own: the last failure in the log, so that each is told once.

  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<std::shared_ptr<const EncodedMessage>> queue_ ABSL_GUARDED_BY(mutex_);
  std::size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;

  std::jthread thread_;
};

}  // namespace onepiece::nodemanager
