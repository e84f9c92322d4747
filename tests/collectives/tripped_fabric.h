// A fabric on which this process does something before a certain operation: it dies or stops.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "cluster/fabric/fabric.h"

namespace onepiece::collectives {

/// Calls `before` ahead of each operation of each channel.
class TrippedFabric final : public fabric::Fabric {
 public:
  TrippedFabric(fabric::Fabric& inner, std::function<void(const fabric::Op&)> before)
      : inner_(inner), before_(std::move(before)) {}
  [[nodiscard]] base::Clock& clock() const override { return inner_.clock(); }
  absl::StatusOr<std::shared_ptr<fabric::Doorbell>> MakeDoorbell(std::string_view label) override {
    return inner_.MakeDoorbell(label);
  }
  absl::StatusOr<std::unique_ptr<fabric::Region>> Register(
      std::uint64_t length_bytes, std::string_view label,
      std::shared_ptr<fabric::Doorbell> doorbell) override {
    return inner_.Register(length_bytes, label, std::move(doorbell));
  }
  absl::StatusOr<std::unique_ptr<fabric::Dialer>> Dial() override {
    auto dialer = inner_.Dial();
    if (!dialer.ok()) return dialer.status();
    return std::make_unique<TrippedDialer>(*std::move(dialer), before_);
  }

 private:
  class TrippedChannel final : public fabric::Channel {
   public:
    TrippedChannel(std::unique_ptr<fabric::Channel> inner,
                   const std::function<void(const fabric::Op&)>& before)
        : Channel(inner->length_bytes()), inner_(std::move(inner)), before_(before) {}

   protected:
    absl::Status Run(std::span<const fabric::Op> chain, base::MonotonicTime deadline) override {
      for (const fabric::Op& op : chain) {
        before_(op);
        if (auto status = inner_->Execute({&op, 1}, deadline); !status.ok()) return status;
      }
      return absl::OkStatus();
    }

   private:
    const std::unique_ptr<fabric::Channel> inner_;
    const std::function<void(const fabric::Op&)>& before_;
  };

  class TrippedDialer final : public fabric::Dialer {
   public:
    TrippedDialer(std::unique_ptr<fabric::Dialer> inner,
                  const std::function<void(const fabric::Op&)>& before)
        : inner_(std::move(inner)), before_(before) {}
    [[nodiscard]] const fabric::Offer& offer() const override { return inner_->offer(); }
    absl::StatusOr<std::unique_ptr<fabric::Channel>> Connect(
        const fabric::RemoteRegion& remote) override {
      auto channel = inner_->Connect(remote);
      if (!channel.ok()) return channel.status();
      return std::make_unique<TrippedChannel>(*std::move(channel), before_);
    }

   private:
    const std::unique_ptr<fabric::Dialer> inner_;
    const std::function<void(const fabric::Op&)>& before_;
  };

  fabric::Fabric& inner_;
  const std::function<void(const fabric::Op&)> before_;
};

}  // namespace onepiece::collectives
