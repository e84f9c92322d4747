// Memory that the device may use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/verbs/device.h"

namespace onepiece::fabric::verbs {

/// Pages of our own: zeroed, present, huge ones for big regions where the system has them, absent
/// from children that this process forks.
class Pages {
 public:
  /// Errors: RESOURCE_EXHAUSTED (NO_MEMORY).
  static absl::StatusOr<std::unique_ptr<Pages>> Allocate(std::uint64_t length_bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  /// Exactly the length asked for.
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  Pages(std::span<std::byte> bytes, std::size_t mapped_bytes)
      : bytes_(bytes), mapped_bytes_(mapped_bytes) {}
  const std::span<std::byte> bytes_;
  const std::size_t mapped_bytes_;
};

/// Pins `bytes` and makes them known to the device; `access` are IBV_ACCESS_ flags, never relaxed
/// ordering: the ring's words must arrive in order.
/// Errors: RESOURCE_EXHAUSTED (MEMLOCK_LIMIT, whose message says what to raise), INTERNAL
/// (VERBS_FAILED).
absl::StatusOr<Handle<ibv_mr>> RegisterMemory(ibv_pd* domain, std::span<const std::byte> bytes,
                                              int access);

/// Registered memory through which small pieces and results pass. One chain uses one at a time.
struct Staging {
  static constexpr std::size_t kBytes = 256 * 1024;
  std::unique_ptr<Pages> pages;
  Handle<ibv_mr> registration;
};

/// The cache of registrations: staging areas that wait for the next chain. Only memory of ours is
/// cached: a registration pins pages, not addresses, so one of a caller's memory would be wrong
/// without notice once the caller has freed it and got the same address again. Thread-safe.
class StagingPool {
 public:
  explicit StagingPool(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  /// Errors: those of Pages::Allocate and RegisterMemory.
  absl::StatusOr<Staging> Take();
  /// REQUIRES: the device has done with it.
  void GiveBack(Staging staging);

 private:
  static constexpr std::size_t kMaxIdle = 16;
  const std::shared_ptr<Device> device_;
  base::Mutex mutex_;
  std::vector<Staging> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::fabric::verbs
