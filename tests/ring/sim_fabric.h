// A fabric whose memory belongs to this process. It is fast and the same in every run, and tells
// the deterministic harness before any operation takes effect.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/fabric/fabric.h"

namespace onepiece::ring {

/// The memory of one region.
struct SimMemory {
  std::uint64_t number = 0;
  std::vector<std::uint64_t> words;
  bool retired = false;
  [[nodiscard]] std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words)); }
};

/// The harness hears and decides through these functions. Each may be empty.
struct SimHooks {
  /// A scheduling point. Called before a region is registered ("register"), before a peer is let in
  /// ("accept") or revoked ("revoke"), and before an operation of the consumer's loopback takes
  /// effect.
  std::function<void(const char* what)> point;
  /// `op` is about to take effect; `held` is the lock word that this channel has taken last, or 0.
  std::function<void(const SimMemory& memory, const fabric::Op& op, std::uint64_t held)> effect;
  /// A lie: the answer of a Revoke that fences nobody.
  std::function<bool(const SimMemory& memory)> revoke;
};

/// Threading: not thread-safe.
class SimFabric final : public fabric::Fabric {
 public:
  explicit SimFabric(base::Clock& clock) : clock_(clock) {}
  SimHooks hooks;
  /// The newest region that still exists; null when there is none.
  [[nodiscard]] std::shared_ptr<SimMemory> newest() const;

  base::Clock& clock() const override { return clock_; }
  absl::StatusOr<std::shared_ptr<fabric::Doorbell>> MakeDoorbell(std::string_view label) override;
  absl::StatusOr<std::unique_ptr<fabric::Region>> Register(
      std::uint64_t length_bytes, std::string_view label,
      std::shared_ptr<fabric::Doorbell> doorbell) override;
  absl::StatusOr<std::unique_ptr<fabric::Dialer>> Dial() override;

 private:
  friend class SimDialer;
  base::Clock& clock_;
  std::map<std::uint64_t, std::weak_ptr<SimMemory>> memories_;
  std::uint64_t last_number_ = 0;
};

/// `inner` with two operations of every chain exchanged: a producer that does not keep the order.
///
/// Ownership: borrows `inner`, which must outlive it.
class ReorderingFabric final : public fabric::Fabric {
 public:
  /// Executes operation `second` in the place of `first`, and `first` in the place of `second`.
  ReorderingFabric(fabric::Fabric& inner, std::string first, std::string second)
      : inner_(inner), first_(std::move(first)), second_(std::move(second)) {}
  base::Clock& clock() const override { return inner_.clock(); }
  absl::StatusOr<std::shared_ptr<fabric::Doorbell>> MakeDoorbell(std::string_view label) override {
    return inner_.MakeDoorbell(label);
  }
  absl::StatusOr<std::unique_ptr<fabric::Region>> Register(
      std::uint64_t length_bytes, std::string_view label,
      std::shared_ptr<fabric::Doorbell> doorbell) override {
    return inner_.Register(length_bytes, label, std::move(doorbell));
  }
  absl::StatusOr<std::unique_ptr<fabric::Dialer>> Dial() override;

 private:
  fabric::Fabric& inner_;
  const std::string first_;
  const std::string second_;
};

}  // namespace onepiece::ring
