// A fabric whose regions let a peer in only when a test says so, as verbs takes up to a second.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/fabric.h"
#include "tests/eventually.h"

namespace onepiece::values {

/// Makes one Accept wait.
///
/// Threading: thread-safe.
class AcceptGate {
 public:
  /// The next Accept waits until Release.
  void HoldNext() {
    const base::MutexLock lock(mutex_);
    hold_next_ = true;
  }
  /// Waits for an Accept to arrive here. False when none comes.
  [[nodiscard]] bool WaitUntilHeld() {
    return testing::Eventually([this] {
      const base::MutexLock lock(mutex_);
      return held_;
    });
  }
  void Release() {
    const base::MutexLock lock(mutex_);
    held_ = false;
    released_.NotifyAll();
  }
  void Pass() {
    base::MutexLock lock(mutex_);
    if (!std::exchange(hold_next_, false)) return;
    held_ = true;
    released_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !held_; });
  }

 private:
  base::Mutex mutex_;
  base::CondVar released_;
  bool hold_next_ ABSL_GUARDED_BY(mutex_) = false;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
};

/// Ownership: borrows the gate, which must outlive it.
class SlowRegion final : public fabric::Region {
 public:
  SlowRegion(std::unique_ptr<fabric::Region> inner, AcceptGate& gate)
      : inner_(std::move(inner)), gate_(gate) {}
  std::span<std::byte> bytes() override { return inner_->bytes(); }
  absl::StatusOr<std::unique_ptr<fabric::Access>> Accept(const fabric::Offer& offer) override {
    gate_.Pass();
    return inner_->Accept(offer);
  }

 private:
  const std::unique_ptr<fabric::Region> inner_;
  AcceptGate& gate_;
};

/// Ownership: borrows `inner`, which must outlive it.
///
/// Threading: thread-safe.
class SlowFabric final : public fabric::Fabric {
 public:
  explicit SlowFabric(fabric::Fabric& inner) : inner_(inner) {}
  AcceptGate& gate() { return gate_; }

  base::Clock& clock() const override { return inner_.clock(); }
  absl::StatusOr<std::shared_ptr<fabric::Doorbell>> MakeDoorbell(std::string_view label) override {
    return inner_.MakeDoorbell(label);
  }
  absl::StatusOr<std::unique_ptr<fabric::Region>> Register(
      std::uint64_t length_bytes, std::string_view label,
      std::shared_ptr<fabric::Doorbell> doorbell) override {
    auto region = inner_.Register(length_bytes, label, std::move(doorbell));
    if (!region.ok()) return region.status();
    return std::make_unique<SlowRegion>(*std::move(region), gate_);
  }
  absl::StatusOr<std::unique_ptr<fabric::Dialer>> Dial() override { return inner_.Dial(); }

 private:
  fabric::Fabric& inner_;
  AcceptGate gate_;
};

}  // namespace onepiece::values
