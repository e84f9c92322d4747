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

/// Pages of this process. They start as zeros and are present; big regions get huge pages where the
/// system has them. Children that this process forks do not have them.
class Pages {
 public:
  /// Errors: RESOURCE_EXHAUSTED (NO_MEMORY).
  static absl::StatusOr<std::unique_ptr<Pages>> Allocate(std::uint64_t length_bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  /// The bytes, exactly as many as the caller asked for.
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  Pages(std::span<std::byte> bytes, std::size_t mapped_bytes)
      : bytes_(bytes), mapped_bytes_(mapped_bytes) {}
  const std::span<std::byte> bytes_;
  const std::size_t mapped_bytes_;
};

/// Pins `bytes` and makes them known to the device. `access` are IBV_ACCESS_ flags, but never
/// relaxed ordering, because the ring's words must arrive in order.
///
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

/// A cache of registrations: staging areas that wait for the next chain. It caches no registration
/// of a caller's memory. A registration pins pages, not addresses, so it would silently be wrong
/// once the caller frees that memory and gets the same address again.
///
/// Threading: thread-safe.
class StagingPool {
 public:
  explicit StagingPool(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  /// Errors: those of Pages::Allocate and RegisterMemory.
  absl::StatusOr<Staging> Take();
  /// REQUIRES: the device does not use it any more.
  void GiveBack(Staging staging);

 private:
  static constexpr std::size_t kMaxIdle = 16;
  const std::shared_ptr<Device> device_;
  base::Mutex mutex_;
  std::vector<Staging> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::fabric::verbs
