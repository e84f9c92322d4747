// The sending half of a connection to one replica. Private to this folder.
#pragma once

#include <deque>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "nodemanager/replication/encoded_message.h"
#include "onepiece/v1/consensus.grpc.pb.h"

namespace onepiece::nodemanager {

/// Opens a stream to `address` when there is something to send, and opens it again when it breaks.
/// While the stream takes what is sent, the caller's thread writes it: no thread is woken for a
/// message. The peer's own thread opens streams, waits for what a stream does not take at once, and
/// ends them.
///
/// Ownership: owns its thread, and a queue of at most kMaxMessages and kMaxBytes.
/// Threading: thread-safe.
/// Blocking: Send() encodes and copies into the socket's buffer, and never waits. The destructor
/// joins the thread.
class Peer {
 public:
  static constexpr std::size_t kMaxMessages = 4096;
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

  Peer(std::string address, v1::ReplicaHello hello, base::Clock& clock);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// Sends or queues a message. A full queue is emptied first, because a peer that is so far behind
  /// needs only the newest messages, and consensus sends again what it misses.
  void Send(std::shared_ptr<const EncodedMessage> message);

 private:
  struct Stream;
  // Who may use stream_.
  enum class Turn {
    kNobody,   // There is no stream, or it has not taken the hello yet, or it is broken.
    kSender,   // It waits for a message: whoever holds mutex_ may write.
    kWaiting,  // A write is under way, and the thread waits for its end.
  };

  void Run(const std::stop_token& stop);
  // Sends until the stream breaks, and returns the reason.
  absl::Status Speak(const std::stop_token& stop);
  // Serves the stream until it breaks or `stop` is requested.
  void Serve(Stream& stream, const std::stop_token& stop);
  // Begins to write what is queued. Goes on as long as the stream takes it at once.
  void WriteQueued() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins one write of at most about kEnvelopeBytes.
  void BeginWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Logs why the stream broke, unless that was the last reason too.
  void Tell(const absl::Status& why);

  const std::string address_;
  const v1::ReplicaHello hello_;
  base::Clock& clock_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::string told_;  // Thread's own: the last failure in the log, so that each is told once.

  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<std::shared_ptr<const EncodedMessage>> queue_ ABSL_GUARDED_BY(mutex_);
  std::size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  Turn turn_ ABSL_GUARDED_BY(mutex_) = Turn::kNobody;
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;  // Null when it is nobody's turn.

  std::jthread thread_;
};

}  // namespace onepiece::nodemanager
