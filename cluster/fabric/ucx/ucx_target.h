// The owner's end of connections. Each peer has a worker, and one thread moves all of them.
// Internal to the backend.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/fabric.h"
#include "cluster/fabric/ucx/ucx_session.h"
#include "cluster/fabric/ucx/ucx_wire.h"
#include "cluster/fabric/ucx/ucx_worker.h"

namespace onepiece::fabric {

class UcxDoorbell final : public Doorbell {
 public:
  [[nodiscard]] std::uint32_t count() const override { return count_.load(); }
  void Wait(std::uint32_t seen, base::Duration limit) override;
  void Ring() override;

 private:
  std::atomic<std::uint32_t> count_{0};  // Changes under mutex_ only.
  base::Mutex mutex_;
  base::CondVar rung_;
};

/// Memory of this process. It starts as zeros, with its pages present.
class UcxMemory {
 public:
  /// Errors: RESOURCE_EXHAUSTED (NO_MEMORY).
  static absl::StatusOr<std::shared_ptr<UcxMemory>> Allocate(std::uint64_t length_bytes);
  ~UcxMemory();
  UcxMemory(const UcxMemory&) = delete;
  UcxMemory& operator=(const UcxMemory&) = delete;
  [[nodiscard]] std::span<std::byte> bytes() const { return {base_, length_bytes_}; }

 private:
  UcxMemory(std::byte* base, std::uint64_t length_bytes)
      : base_(base), length_bytes_(length_bytes) {}
  std::byte* const base_;
  const std::uint64_t length_bytes_;
};

/// Executes the operations of one peer: checks each against the region, carries it out and answers.
/// The peer has a worker to itself, which makes Close a fence: the peer's operations take effect
/// only in this worker's Progress, so after Close none can, whatever is still on its way.
///
/// Threading: thread-safe.
class UcxTarget {
 public:
  /// `doorbell` may be null. A peer is welcome when it knows `agreement`.
  static absl::StatusOr<std::shared_ptr<UcxTarget>> Open(std::shared_ptr<UcxContext> context,
                                                         std::shared_ptr<UcxMemory> memory,
                                                         std::shared_ptr<UcxDoorbell> doorbell,
                                                         UcxAgreement agreement, Rights rights);
  [[nodiscard]] const std::string& worker_address() const { return worker_address_; }
  [[nodiscard]] int fd() const { return fd_; }
  /// As UcxWorker::AdmitOnly.
  void AdmitOnly(const std::vector<std::string>& sources);
  /// Executes some of the operations that have arrived. Returns true when there are more. False
  /// means that fd() becomes readable with the next one, or that the target is closed or flooded.
  bool Progress();
  /// Whether the peer has left more answers than kUcxReplyBytes lying here. Nothing more of it is
  /// executed. UcxProgress closes such a target.
  [[nodiscard]] bool flooded();
  /// Whether the peer has shown that it is the one that was let in.
  [[nodiscard]] bool welcomed();
  /// The fence.
  void Close();

 private:
  UcxTarget(std::unique_ptr<UcxWorker> worker, std::shared_ptr<UcxMemory> memory,
            std::shared_ptr<UcxDoorbell> doorbell, UcxAgreement agreement, Rights rights,
            std::string worker_address);
  // UCX calls these handlers inside Progress and Close, which hold mutex_.
  static ucs_status_t OnHello(void* self, const void* header, std::size_t header_length, void* data,
                              std::size_t length, const ucp_am_recv_param_t* param);
  static ucs_status_t OnOp(void* self, const void* header, std::size_t header_length, void* data,
                           std::size_t length, const ucp_am_recv_param_t* param);
  static void OnSent(void* request, ucs_status_t status, void* reply);
  /// Bytes that UCX may read until it has sent them.
  struct Reply {
    UcxTarget* target = nullptr;
    std::list<Reply>::iterator self;
    UcxSealedHeader header;
    std::string verdict;
    std::vector<std::byte> data;
  };
  /// What a reply counts against kUcxReplyBytes: its bytes, and what it costs without any.
  static std::uint64_t CostOf(std::uint64_t data_bytes) { return data_bytes + 256; }
  /// Returns nullptr when the peer's replies have no room for it: the target is flooded.
  Reply* NewReply(std::vector<std::byte> data) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(Reply& reply, ucp_ep_h peer, UcxMessage message, const void* header, std::size_t size)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerAll(const UcxSession::Outcome& outcome, ucp_ep_h peer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(const UcxOp& op, ucp_ep_h peer, std::uint64_t offset, std::vector<std::byte> data)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<UcxMemory> memory_;  // Kept while the worker may write into it.
  const std::shared_ptr<UcxDoorbell> doorbell_;
  const std::string worker_address_;
  const int fd_;
  base::Mutex mutex_;
  // The worker goes before the replies that it may look at.
  std::list<Reply> replies_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t reply_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // At most kUcxReplyBytes.
  bool flooded_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<UcxWorker> worker_ ABSL_GUARDED_BY(mutex_);  // Null: closed.
  UcxSession session_ ABSL_GUARDED_BY(mutex_);
  // The way back to the peer that was welcomed; null before. Others may connect until then, and
  // what they send is dropped.
  ucp_ep_h peer_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

/// The thread that moves the targets of one fabric. It sleeps while no peer sends. It closes a
/// target whose peer has not been welcomed within a time, so that its port is open no longer.
///
/// Threading: thread-safe.
class UcxProgress {
 public:
  static absl::StatusOr<std::unique_ptr<UcxProgress>> Start(base::Duration handshake_limit);
  ~UcxProgress();
  UcxProgress(const UcxProgress&) = delete;
  UcxProgress& operator=(const UcxProgress&) = delete;
  /// Errors: RESOURCE_EXHAUSTED.
  absl::Status Add(std::shared_ptr<UcxTarget> target);
  /// Closes it. Idempotent.
  void Remove(UcxTarget& target);
  /// How many peers this process has closed because they did not take their answers.
  [[nodiscard]] static std::uint64_t flooded_peers();

 private:
  UcxProgress(base::Duration handshake_limit, int epoll_fd, int wake_fd);
  void Run();
  bool Move(const std::shared_ptr<UcxTarget>& target);
  void Collect(bool wait, std::vector<std::shared_ptr<UcxTarget>>& busy);
  /// Milliseconds until the next handshake ends; -1 when none is under way.
  int NextHandshakeEnd();
  void EndHandshakes();

  /// A target and the time, of the real clock, by which its peer must be welcome.
  struct Handshake {
    base::MonotonicTime end;
    std::weak_ptr<UcxTarget> target;
  };
  const base::Duration handshake_limit_;
  const int epoll_fd_;
  const int wake_fd_;
  std::atomic<bool> stopping_{false};
  base::Mutex mutex_;
  std::map<int, std::shared_ptr<UcxTarget>> targets_ ABSL_GUARDED_BY(mutex_);  // By fd.
  std::vector<std::shared_ptr<UcxTarget>> fresh_ ABSL_GUARDED_BY(mutex_);  // Not progressed yet.
  std::deque<Handshake> handshakes_ ABSL_GUARDED_BY(mutex_);               // The earliest first.
  std::thread thread_;
};

}  // namespace onepiece::fabric
