#include "tests/ring/sim_fabric.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/fabric/process.h"
#include "cluster/ring/layout.h"

namespace onepiece::ring {
namespace {

using fabric::Op;

constexpr char kBackend[] = "sim";

// Reads the identity once, because the system is slow to tell it and nothing forks here.
const fabric::PeerIdentity& Self() {
  static const fabric::PeerIdentity self = fabric::SelfIdentity();
  return self;
}

absl::Status Gone() {
  return base::MakeError(absl::StatusCode::kUnavailable, "REGION_RETIRED", "the region is gone");
}

class SimDoorbell final : public fabric::Doorbell {
 public:
  std::uint32_t count() const override { return count_; }
  void Wait(std::uint32_t, base::Duration) override {}
  void Ring() override { ++count_; }

 private:
  std::uint32_t count_ = 0;
};

class SimAccess final : public fabric::Access {
 public:
  SimAccess(std::shared_ptr<SimMemory> memory, const fabric::PeerIdentity& peer,
            const SimHooks& hooks)
      : memory_(std::move(memory)),
        peer_(peer),
        hooks_(hooks),
        remote_{.backend = kBackend,
                .address = std::to_string(memory_->number),
                .length_bytes = memory_->bytes().size()} {}
  const fabric::RemoteRegion& remote() const override { return remote_; }
  const fabric::PeerIdentity& peer() const override { return peer_; }
  bool PeerIsDead() const override { return false; }
  bool Revoke() override {
    if (hooks_.point) hooks_.point("revoke");
    return hooks_.revoke && hooks_.revoke(*memory_);
  }

 private:
  const std::shared_ptr<SimMemory> memory_;
  const fabric::PeerIdentity peer_;
  const SimHooks& hooks_;
  const fabric::RemoteRegion remote_;
};

class SimRegion final : public fabric::Region {
 public:
  SimRegion(std::shared_ptr<SimMemory> memory, const SimHooks& hooks)
      : memory_(std::move(memory)), hooks_(hooks) {}
  ~SimRegion() override { memory_->retired = true; }
  SimRegion(const SimRegion&) = delete;
  SimRegion& operator=(const SimRegion&) = delete;
  std::span<std::byte> bytes() override { return memory_->bytes(); }
  absl::StatusOr<std::unique_ptr<fabric::Access>> Accept(const fabric::Offer& offer,
                                                         fabric::Rights /*rights*/) override {
    if (hooks_.point) hooks_.point("accept");
    return std::make_unique<SimAccess>(memory_, offer.peer, hooks_);
  }

 private:
  const std::shared_ptr<SimMemory> memory_;
  const SimHooks& hooks_;
};

class SimChannel final : public fabric::Channel {
 public:
  SimChannel(std::shared_ptr<SimMemory> memory, const SimHooks& hooks, base::Clock& clock)
      : Channel(memory->bytes().size()), memory_(std::move(memory)), hooks_(hooks), clock_(clock) {}

 protected:
  absl::Status Run(std::span<const Op> chain, base::MonotonicTime deadline) override {
    if (memory_->retired) return Gone();
    for (const Op& op : chain) {
      if (clock_.Now() >= deadline) {
        return base::MakeError(absl::StatusCode::kDeadlineExceeded, "CHAIN_TIMEOUT", op.name);
      }
      if (hooks_.effect) hooks_.effect(*memory_, op, held_);
      Do(op);
    }
    return absl::OkStatus();
  }

 private:
  void Do(const Op& op) {
    std::byte* at = memory_->bytes().data() + op.offset;
    switch (op.kind) {
      case Op::Kind::kWrite:
        for (const auto& piece : op.pieces) {
          at = std::ranges::copy(piece, at).out;
        }
        break;
      case Op::Kind::kWriteWords:
        std::memcpy(at, op.words.data(), op.words.size_bytes());
        break;
      case Op::Kind::kRead:
        if (!op.into.empty()) std::memcpy(op.into.data(), at, op.into.size());
        break;
      case Op::Kind::kReadWords:
        // Empty when a read lands late: nobody waits for it any more.
        for (std::size_t i = 0; i < op.words_into.size(); ++i) {
          op.words_into[i] = fabric::LoadWord(at + sizeof(std::uint64_t) * i);
        }
        break;
      case Op::Kind::kCompareAndSwap:
        *op.old_value = fabric::LoadWord(at);
        if (*op.old_value == op.compare) {
          fabric::StoreWord(at, op.value);
          if (op.offset == kLockOffset) held_ = op.value;
        }
        break;
      case Op::Kind::kFetchAdd:
        *op.old_value = fabric::LoadWord(at);
        fabric::StoreWord(at, *op.old_value + op.value);
        break;
      case Op::Kind::kNotify:
        break;
    }
  }

  const std::shared_ptr<SimMemory> memory_;
  const SimHooks& hooks_;
  base::Clock& clock_;
  std::uint64_t held_ = 0;
};

class ReorderingChannel final : public fabric::Channel {
 public:
  ReorderingChannel(std::unique_ptr<fabric::Channel> inner, const std::string& first,
                    const std::string& second)
      : Channel(inner->length_bytes()), inner_(std::move(inner)), first_(first), second_(second) {}

 protected:
  absl::Status Run(std::span<const Op> chain, base::MonotonicTime deadline) override {
    std::vector<Op> mixed(chain.begin(), chain.end());
    const auto named = [&mixed](const std::string& name) {
      return std::ranges::find_if(mixed, [&name](const Op& op) { return op.name == name; });
    };
    const auto first = named(first_);
    const auto second = named(second_);
    if (first != mixed.end() && second != mixed.end()) std::iter_swap(first, second);
    return inner_->Execute(mixed, deadline);
  }

 private:
  const std::unique_ptr<fabric::Channel> inner_;
  const std::string first_;
  const std::string second_;
};

class ReorderingDialer final : public fabric::Dialer {
 public:
  ReorderingDialer(std::unique_ptr<fabric::Dialer> inner, std::string first, std::string second)
      : inner_(std::move(inner)), first_(std::move(first)), second_(std::move(second)) {}
  const fabric::Offer& offer() const override { return inner_->offer(); }
  absl::StatusOr<std::unique_ptr<fabric::Channel>> Connect(
      const fabric::RemoteRegion& remote) override {
    ONEPIECE_ASSIGN_OR_RETURN(auto channel, inner_->Connect(remote));
    return std::make_unique<ReorderingChannel>(std::move(channel), first_, second_);
  }

 private:
  const std::unique_ptr<fabric::Dialer> inner_;
  const std::string first_;
  const std::string second_;
};

}  // namespace

class SimDialer final : public fabric::Dialer {
 public:
  explicit SimDialer(SimFabric& fabric)
      : fabric_(fabric), offer_{.backend = kBackend, .peer = Self()} {}
  const fabric::Offer& offer() const override { return offer_; }
  absl::StatusOr<std::unique_ptr<fabric::Channel>> Connect(
      const fabric::RemoteRegion& remote) override {
    const auto found = fabric_.memories_.find(std::stoull(remote.address));
    const auto memory = found == fabric_.memories_.end() ? nullptr : found->second.lock();
    if (memory == nullptr || memory->retired) return Gone();
    return std::make_unique<SimChannel>(memory, fabric_.hooks, fabric_.clock_);
  }

 private:
  SimFabric& fabric_;
  const fabric::Offer offer_;
};

std::shared_ptr<SimMemory> SimFabric::newest() const {
  for (auto it = memories_.rbegin(); it != memories_.rend(); ++it) {
    if (auto memory = it->second.lock()) return memory;
  }
  return nullptr;
}

absl::StatusOr<std::shared_ptr<fabric::Doorbell>> SimFabric::MakeDoorbell(std::string_view) {
  return std::make_shared<SimDoorbell>();
}

absl::StatusOr<std::unique_ptr<fabric::Region>> SimFabric::Register(
    std::uint64_t length_bytes, std::string_view, std::shared_ptr<fabric::Doorbell>) {
  if (hooks.point) hooks.point("register");
  auto memory = std::make_shared<SimMemory>();
  memory->number = ++last_number_;
  memory->words.resize(length_bytes / sizeof(std::uint64_t));
  memories_[memory->number] = memory;
  return std::make_unique<SimRegion>(std::move(memory), hooks);
}

absl::StatusOr<std::unique_ptr<fabric::Dialer>> SimFabric::Dial() {
  return std::make_unique<SimDialer>(*this);
}

absl::StatusOr<std::unique_ptr<fabric::Dialer>> ReorderingFabric::Dial() {
  ONEPIECE_ASSIGN_OR_RETURN(auto dialer, inner_.Dial());
  return std::make_unique<ReorderingDialer>(std::move(dialer), first_, second_);
}

}  // namespace onepiece::ring
