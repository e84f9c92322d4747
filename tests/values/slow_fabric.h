// A fabric whose regions let a peer in, or fence it, only when a test says so. Verbs takes up to a
// second for the one and 70 ms for the other.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/fabric.h"
#include "tests/eventually.h"

namespace onepiece::values {

/// Makes one call wait.
///
/// Threading: thread-safe.
class Gate {
 public:
  /// The next call waits until Release.
  void HoldNext() {
    const base::MutexLock lock(mutex_);
    hold_next_ = true;
  }
  /// Waits for a call to arrive here. False when none comes.
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
class SlowAccess final : public fabric::Access {
 public:
  SlowAccess(std::unique_ptr<fabric::Access> inner, Gate& revoke)
      : inner_(std::move(inner)), revoke_(revoke) {}
  const fabric::RemoteRegion& remote() const override { return inner_->remote(); }
  const fabric::PeerIdentity& peer() const override { return inner_->peer(); }
  bool PeerIsDead() const override { return inner_->PeerIsDead(); }
  bool Revoke() override {
    revoke_.Pass();
    return inner_->Revoke();
  }

 private:
  const std::unique_ptr<fabric::Access> inner_;
  Gate& revoke_;
};

/// Ownership: borrows the gates, which must outlive it.
class SlowRegion final : public fabric::Region {
 public:
  SlowRegion(std::unique_ptr<fabric::Region> inner, Gate& gate, Gate& revoke)
      : inner_(std::move(inner)), gate_(gate), revoke_(revoke) {}
  std::span<std::byte> bytes() override { return inner_->bytes(); }
  absl::StatusOr<std::unique_ptr<fabric::Access>> Accept(const fabric::Offer& offer,
                                                         fabric::Rights rights) override {
    gate_.Pass();
    auto access = inner_->Accept(offer, rights);
    if (!access.ok()) return access.status();
    return std::make_unique<SlowAccess>(*std::move(access), revoke_);
  }

 private:
  const std::unique_ptr<fabric::Region> inner_;
  Gate& gate_;
  Gate& revoke_;
};

/// Ownership: borrows `inner`, which must outlive it.
///
/// Threading: thread-safe.
class SlowFabric final : public fabric::Fabric {
 public:
  explicit SlowFabric(fabric::Fabric& inner) : inner_(inner) {}
  /// Of Region::Accept.
  Gate& gate() { return gate_; }
  /// Of Access::Revoke.
  Gate& revoke_gate() { return revoke_; }

  base::Clock& clock() const override { return inner_.clock(); }
  absl::StatusOr<std::shared_ptr<fabric::Doorbell>> MakeDoorbell(std::string_view label) override {
    return inner_.MakeDoorbell(label);
  }
  absl::StatusOr<std::unique_ptr<fabric::Region>> Register(
      std::uint64_t length_bytes, std::string_view label,
      std::shared_ptr<fabric::Doorbell> doorbell) override {
    auto region = inner_.Register(length_bytes, label, std::move(doorbell));
    if (!region.ok()) return region.status();
    return std::make_unique<SlowRegion>(*std::move(region), gate_, revoke_);
  }
  absl::StatusOr<std::unique_ptr<fabric::Dialer>> Dial() override { return inner_.Dial(); }

 private:
  fabric::Fabric& inner_;
  Gate gate_, revoke_;
};

}  // namespace onepiece::values
