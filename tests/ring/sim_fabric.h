// A fabric whose memory is this process's own: fast, the same in every run, and open to the
// deterministic harness, which is told before everything that takes effect.
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

/// Memory of one region.
struct SimMemory {
  std::uint64_t number = 0;
  std::vector<std::uint64_t> words;
  bool retired = false;
  [[nodiscard]] std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words)); }
};

/// What the harness hears and decides. Each may be empty.
struct SimHooks {
  /// Before a region is registered ("register"), a peer let in ("accept") or revoked ("revoke"), or
  /// an operation of the consumer's own loopback takes effect: a scheduling point.
  std::function<void(const char* what)> point;
  /// `op` is about to take effect; `held` is the lock word that this channel has taken last, or 0.
  std::function<void(const SimMemory& memory, const fabric::Op& op, std::uint64_t held)> effect;
  /// What Revoke answers without fencing anybody: a lie.
  std::function<bool(const SimMemory& memory)> revoke;
};

/// Not thread-safe.
class SimFabric final : public fabric::Fabric {
 public:
  explicit SimFabric(base::Clock& clock) : clock_(clock) {}
  SimHooks hooks;
  /// The region registered last, of those that are not gone; null when there is none.
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

/// `inner`, but every chain has two operations exchanged: a producer that does not keep the order.
///
/// Ownership: Borrows `inner`.
class ReorderingFabric final : public fabric::Fabric {
 public:
  /// Operation `second` is executed in the place of `first`, which goes where `second` was.
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
