// A stage that is loaded in a worker process, from the instance's end. Private to stages/worker.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "onepiece/v1/worker.pb.h"
#include "stages/sdk/stage.h"
#include "stages/worker/packet_socket.h"
#include "stages/worker/shared_message.h"
#include "stages/worker/workers.h"

namespace onepiece::worker {

/// How often a run looks whether the job is still wanted.
inline constexpr std::chrono::milliseconds kLook(200);

/// One stage in one process. It may be lost, and opened again.
///
/// Ownership: borrows the Workers.
/// Threading: one thread at a time, but for metrics().
class StageLink {
 public:
  StageLink(Workers& workers, StageName name) : workers_(workers), name_(std::move(name)) {}
  ~StageLink() { Unload(); }
  StageLink(const StageLink&) = delete;
  StageLink& operator=(const StageLink&) = delete;

  /// Starts the device's process if need be, and loads the stage in it. `options.device` is the
  /// process's device.
  ///
  /// Blocking: while it loads.
  /// Errors: those of Workers::Get() and of the stage; UNAVAILABLE (runtime::kWorkerLost).
  absl::Status Open(const sdk::LoadOptions& options);
  /// Whether the stage is loaded in a process that lives.
  [[nodiscard]] bool is_open() const { return process_ != nullptr && process_->alive(); }
  /// False before Open, and after Unload and Lose.
  [[nodiscard]] bool has_process() const { return process_ != nullptr; }
  void Unload();

  /// REQUIRES of what follows: has_process().
  absl::Status Send(const v1::ToWorker& request, int fd = -1);
  /// Errors: DEADLINE_EXCEEDED; UNAVAILABLE when the process has closed the socket.
  absl::StatusOr<FileDescriptor> Receive(v1::FromWorker& packet, base::MonotonicTime deadline);
  /// Ends the process, because the link failed with `why` or nobody wants what it computes. Returns
  /// UNAVAILABLE (runtime::kWorkerLost), which says how the process ended.
  absl::Status Lose(const absl::Status& why);
  [[nodiscard]] int fd() const { return socket_.fd(); }

  /// As of the last Open.
  [[nodiscard]] const sdk::StageInfo& info() const { return info_; }
  [[nodiscard]] const std::string& device() const { return device_; }
  [[nodiscard]] std::vector<sdk::StageMetric> metrics() const;
  [[nodiscard]] const WorkersOptions& options() const { return workers_.options(); }

 private:
  Workers& workers_;
  const StageName name_;
  std::string device_;
  sdk::StageInfo info_;
  std::shared_ptr<WorkerProcess> process_;  // Null: not loaded, or lost.
  PacketSocket socket_;
  mutable base::Mutex mutex_;
  std::vector<sdk::StageMetric> metrics_ ABSL_GUARDED_BY(mutex_);
};

/// Tells the context of a step that the link's stage has done, and the stage whether to go on. When
/// the context wants the state, `receive` waits for it. Returns an error when the run has ended
/// with it.
using ReceiveRan = std::function<absl::StatusOr<FileDescriptor>(v1::FromWorker&)>;
absl::Status TakeStep(StageLink& link, sdk::StageContext& context, const v1::StageStep& step,
                      const ReceiveRan& receive);

/// What a run has made.
///
/// Errors: those of the stage, and of Map().
absl::StatusOr<std::vector<message::Artifact>> TakeOutputs(const v1::StageRan& ran,
                                                           const FileDescriptor& memory);

/// Writes a job for workers.
absl::StatusOr<SharedMessage> ShareWork(const sdk::StageContext& context, const std::string& stage,
                                        const std::vector<message::Artifact>& inputs);

}  // namespace onepiece::worker
