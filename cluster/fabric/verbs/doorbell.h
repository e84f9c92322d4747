// The doorbell that peers ring with an empty RDMA write with immediate data.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/fabric.h"
#include "cluster/fabric/verbs/device.h"

namespace onepiece::fabric::verbs {

/// A shared receive queue and its completions. A ring of any region takes one receive.
///
/// The owner posts receives again when it looks (count, Wait). When a peer rings faster than that,
/// its own device holds it off.
///
/// Threading: thread-safe.
class VerbsDoorbell final : public Doorbell {
 public:
  /// Errors: INTERNAL or RESOURCE_EXHAUSTED (VERBS_FAILED).
  static absl::StatusOr<std::shared_ptr<VerbsDoorbell>> Create(std::shared_ptr<Device> device);
  ~VerbsDoorbell() override;
  VerbsDoorbell(const VerbsDoorbell&) = delete;
  VerbsDoorbell& operator=(const VerbsDoorbell&) = delete;

  std::uint32_t count() const override;
  void Wait(std::uint32_t seen, base::Duration limit) override;
  void Ring() override;
  /// The owner's queue pairs use these two.
  [[nodiscard]] ibv_srq* receives() const { return receives_.get(); }
  [[nodiscard]] ibv_cq* receive_queue() const { return queue_.get(); }

 private:
  VerbsDoorbell(std::shared_ptr<Device> device, int event)
      : device_(std::move(device)), event_(event) {}
  absl::Status Make();
  bool PostReceives(int number) const;
  void Collect() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Sleep(base::Duration limit);

  const std::shared_ptr<Device> device_;
  const int event_;  // An eventfd, which Ring writes.
  Handle<ibv_comp_channel> channel_;
  Handle<ibv_cq> queue_;
  Handle<ibv_srq> receives_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  mutable std::uint32_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  // One thread sleeps on the descriptors; the others wait for `changed_`.
  bool somebody_sleeps_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace onepiece::fabric::verbs
