// A fabric that runs out of memory when a test says so.
#pragma once

#include <atomic>
#include <memory>
#include <string_view>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::values {

/// Ownership: borrows `inner`, which must outlive it.
///
/// Threading: thread-safe.
class ScarceFabric final : public fabric::Fabric {
 public:
  explicit ScarceFabric(fabric::Fabric& inner) : inner_(inner) {}
  /// While it is full, Register fails.
  void SetFull(bool full) { full_ = full; }
  /// How often Register has failed.
  [[nodiscard]] int refused() const { return refused_; }

  base::Clock& clock() const override { return inner_.clock(); }
  absl::StatusOr<std::shared_ptr<fabric::Doorbell>> MakeDoorbell(std::string_view label) override {
    return inner_.MakeDoorbell(label);
  }
  absl::StatusOr<std::unique_ptr<fabric::Region>> Register(
      std::uint64_t length_bytes, std::string_view label,
      std::shared_ptr<fabric::Doorbell> doorbell) override {
    if (!full_) return inner_.Register(length_bytes, label, std::move(doorbell));
    ++refused_;
    return base::MakeError(absl::StatusCode::kResourceExhausted, "SHARED_MEMORY_FULL",
                           "no memory (the test says so)");
  }
  absl::StatusOr<std::unique_ptr<fabric::Dialer>> Dial() override { return inner_.Dial(); }

 private:
  fabric::Fabric& inner_;
  std::atomic<bool> full_{false};
  std::atomic<int> refused_{0};
};

}  // namespace onepiece::values
