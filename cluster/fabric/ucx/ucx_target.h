// The owner's end of connections: one worker for each peer, all of them moved by one thread.
// Internal to the backend.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cluster/fabric/fabric.h"
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
  std::mutex mutex_;
  std::condition_variable rung_;
};

/// Executes what one peer asks for. The peer has a worker to itself, because that is what makes a
/// fence of it: over TCP an operation takes effect only when this worker's Progress reads it from
/// this worker's sockets, so after Close nothing of the peer can, whatever is still on its way.
///
/// Threading  Thread-safe.
class UcxTarget {
 public:
  /// `doorbell` may be null. `expected` is what a peer must know to be welcome.
  static absl::StatusOr<std::shared_ptr<UcxTarget>> Open(std::shared_ptr<UcxContext> context,
                                                         std::shared_ptr<UcxMemory> memory,
                                                         std::shared_ptr<UcxDoorbell> doorbell,
                                                         UcxHello expected);
  [[nodiscard]] const std::string& worker_address() const { return worker_address_; }
  [[nodiscard]] int fd() const { return fd_; }
  /// Executes some of what has arrived. True: there is more. False: fd() will tell, or closed.
  bool Progress();
  /// The fence.
  void Close();

 private:
  UcxTarget(std::unique_ptr<UcxWorker> worker, std::shared_ptr<UcxMemory> memory,
            std::shared_ptr<UcxDoorbell> doorbell, UcxHello expected, std::string worker_address);
  static ucs_status_t OnHello(void* self, const void* header, std::size_t header_length, void* data,
                              std::size_t length, const ucp_am_recv_param_t* param);
  static ucs_status_t OnNotify(void* self, const void* header, std::size_t header_length,
                               void* data, std::size_t length, const ucp_am_recv_param_t* param);
  UcxVerdict Judge(const absl::StatusOr<UcxHello>& hello);

  const std::shared_ptr<UcxMemory> memory_;  // Kept while the worker may write into it.
  const std::shared_ptr<UcxDoorbell> doorbell_;
  const UcxHello expected_;
  const std::string worker_address_;
  const int fd_;
  std::mutex mutex_;
  std::unique_ptr<UcxWorker> worker_;  // Guarded by mutex_, as is the next. Null: closed.
  bool welcomed_ = false;
};

/// The thread that moves the targets of one fabric; asleep while no peer sends. Thread-safe.
class UcxProgress {
 public:
  static absl::StatusOr<std::unique_ptr<UcxProgress>> Start();
  ~UcxProgress();
  UcxProgress(const UcxProgress&) = delete;
  UcxProgress& operator=(const UcxProgress&) = delete;
  /// Errors: RESOURCE_EXHAUSTED.
  absl::Status Add(std::shared_ptr<UcxTarget> target);
  /// Closes it. Idempotent.
  void Remove(UcxTarget& target);

 private:
  UcxProgress(int epoll_fd, int wake_fd);
  void Run();
  void Collect(bool wait, std::vector<std::shared_ptr<UcxTarget>>& busy);

  const int epoll_fd_;
  const int wake_fd_;
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::map<int, std::shared_ptr<UcxTarget>> targets_;  // By fd. Guarded by mutex_, as is the next.
  std::vector<std::shared_ptr<UcxTarget>> fresh_;      // Not progressed yet.
  std::thread thread_;
};

}  // namespace onepiece::fabric
