#include "cluster/fabric/fault.h"

#include <thread>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/fabric/process.h"

namespace onepiece::fabric {

class FaultyChannel final : public Channel {
 public:
  FaultyChannel(std::unique_ptr<Channel> inner, std::shared_ptr<FaultBoard> board,
                PeerIdentity self, std::shared_ptr<FaultPolicy> policy)
      : Channel(inner->length_bytes()),
        inner_(std::move(inner)),
        board_(std::move(board)),
        self_(self),
        policy_(std::move(policy)) {}

 protected:
  absl::Status Run(std::span<const Op> chain, base::MonotonicTime deadline) override {
    for (const Op& op : chain) {
      const Fault fault =
          policy_ != nullptr ? policy_->Before({next_index_++, op.name, op.kind}) : Fault{};
      // A process that another of its channels (or the test) has killed does nothing any more.
      if (board_->IsDead(self_)) return Lost("the process is dead");
      switch (fault.kind) {
        case FaultKind::kDelay:
          std::this_thread::sleep_for(fault.delay);
          break;
        case FaultKind::kDrop:
          return Lost("the operation was lost");
        case FaultKind::kTear:
          ExecuteHalf(op, deadline);
          board_->Kill(self_);
          return Lost("the process died while it wrote");
        case FaultKind::kDie:
          board_->Kill(self_);
          return Lost("the process died");
        case FaultKind::kBreak:
        case FaultKind::kNone:
          break;
      }
      ONEPIECE_RETURN_IF_ERROR(inner_->Execute({&op, 1}, deadline));
      if (fault.kind == FaultKind::kBreak) return Lost("the completion was lost");
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status Lost(const char* why) {
    return base::MakeError(absl::StatusCode::kDeadlineExceeded, "INJECTED_FAULT", why);
  }

  void ExecuteHalf(const Op& op, base::MonotonicTime deadline) {
    Op half = op;
    std::vector<std::span<const std::byte>> pieces;
    if (op.kind == Op::Kind::kWriteWords) {
      half.words = op.words.first(op.words.size() / 2);
    } else if (op.kind == Op::Kind::kWrite) {
      for (const auto& piece : op.pieces) pieces.push_back(piece.first(piece.size() / 2));
      pieces.resize(1);  // Later pieces would land at the wrong place behind half a piece.
      half.pieces = pieces;
    } else {
      return;
    }
    (void)inner_->Execute({&half, 1}, deadline);
  }

  const std::unique_ptr<Channel> inner_;
  const std::shared_ptr<FaultBoard> board_;
  const PeerIdentity self_;
  const std::shared_ptr<FaultPolicy> policy_;
  std::uint64_t next_index_ = 0;
};

namespace {

// A pretended process is really this one: what `inner` would tell of it is what the board says.
class BoardAccess final : public Access {
 public:
  BoardAccess(std::unique_ptr<Access> inner, std::shared_ptr<FaultBoard> board,
              const PeerIdentity& peer)
      : inner_(std::move(inner)), board_(std::move(board)), peer_(peer) {}
  const RemoteRegion& remote() const override { return inner_->remote(); }
  const PeerIdentity& peer() const override { return peer_; }
  bool PeerIsDead() const override { return board_->IsDead(peer_); }
  bool Revoke() override {
    const bool revoked = inner_->Revoke();
    return revoked || PeerIsDead();
  }

 private:
  const std::unique_ptr<Access> inner_;
  const std::shared_ptr<FaultBoard> board_;
  const PeerIdentity peer_;
};

class BoardRegion final : public Region {
 public:
  BoardRegion(std::unique_ptr<Region> inner, std::shared_ptr<FaultBoard> board)
      : inner_(std::move(inner)), board_(std::move(board)) {}
  std::span<std::byte> bytes() override { return inner_->bytes(); }
  absl::StatusOr<std::unique_ptr<Access>> Accept(const Offer& offer) override {
    if (!board_->Knows(offer.peer)) return inner_->Accept(offer);
    if (board_->IsDead(offer.peer)) {
      return base::MakeError(absl::StatusCode::kUnavailable, "PEER_GONE",
                             "the peer's process is dead");
    }
    Offer real = offer;
    real.peer = SelfIdentity();
    ONEPIECE_ASSIGN_OR_RETURN(auto access, inner_->Accept(real));
    return std::make_unique<BoardAccess>(std::move(access), board_, offer.peer);
  }

 private:
  const std::unique_ptr<Region> inner_;
  const std::shared_ptr<FaultBoard> board_;
};

class FaultyDialer final : public Dialer {
 public:
  FaultyDialer(std::unique_ptr<Dialer> inner, std::shared_ptr<FaultBoard> board,
               const PeerIdentity& self, std::shared_ptr<FaultPolicy> policy)
      : inner_(std::move(inner)),
        board_(std::move(board)),
        policy_(std::move(policy)),
        offer_{
            .backend = inner_->offer().backend, .peer = self, .details = inner_->offer().details} {}
  const Offer& offer() const override { return offer_; }
  absl::StatusOr<std::unique_ptr<Channel>> Connect(const RemoteRegion& remote) override {
    ONEPIECE_ASSIGN_OR_RETURN(auto channel, inner_->Connect(remote));
    return std::make_unique<FaultyChannel>(std::move(channel), board_, offer_.peer, policy_);
  }

 private:
  const std::unique_ptr<Dialer> inner_;
  const std::shared_ptr<FaultBoard> board_;
  const std::shared_ptr<FaultPolicy> policy_;
  const Offer offer_;
};

}  // namespace

Fault PlannedFault::Before(const FaultPoint& point) {
  if (point.index != index_) return {};
  std::unique_lock lock(mutex_);
  if (reached_) return {};
  reached_ = true;
  reached_name_ = point.name;
  changed_.notify_all();
  if (fault_.has_value()) return {.kind = *fault_};
  changed_.wait(lock, [this] { return released_; });
  return {};
}

bool PlannedFault::AwaitReached(base::Duration limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return reached_; });
}

void PlannedFault::Release() {
  const std::lock_guard lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

std::string PlannedFault::reached_name() const {
  const std::lock_guard lock(mutex_);
  return reached_name_;
}

Fault RandomFaults::Before(const FaultPoint&) {
  const std::lock_guard lock(mutex_);
  double draw = std::uniform_real_distribution<double>(0, 1)(random_);
  const std::pair<double, FaultKind> choices[] = {{rates_.delay, FaultKind::kDelay},
                                                  {rates_.drop, FaultKind::kDrop},
                                                  {rates_.tear, FaultKind::kTear},
                                                  {rates_.die, FaultKind::kDie},
                                                  {rates_.break_channel, FaultKind::kBreak}};
  for (const auto& [rate, kind] : choices) {
    if (draw < rate) {
      const auto max = static_cast<std::uint64_t>(rates_.max_delay.count());
      return {.kind = kind, .delay = base::Duration(random_() % (max + 1))};
    }
    draw -= rate;
  }
  return {};
}

PeerIdentity FaultBoard::NewProcess() {
  const std::lock_guard lock(mutex_);
  return {.host = SelfIdentity().host, .pid = ++last_pid_, .start_time = 1};
}

void FaultBoard::Kill(const PeerIdentity& process) {
  const std::lock_guard lock(mutex_);
  dead_.insert(process.pid);
}

bool FaultBoard::Knows(const PeerIdentity& process) const {
  const std::lock_guard lock(mutex_);
  return process.pid > (1 << 28) && process.pid <= last_pid_;
}

bool FaultBoard::IsDead(const PeerIdentity& process) const {
  const std::lock_guard lock(mutex_);
  return dead_.contains(process.pid);
}

FaultyFabric::FaultyFabric(Fabric& inner, std::shared_ptr<FaultBoard> board, PeerIdentity self,
                           std::shared_ptr<FaultPolicy> policy)
    : inner_(inner), board_(std::move(board)), self_(self), policy_(std::move(policy)) {}

absl::StatusOr<std::shared_ptr<Doorbell>> FaultyFabric::MakeDoorbell(std::string_view label) {
  return inner_.MakeDoorbell(label);
}

absl::StatusOr<std::unique_ptr<Region>> FaultyFabric::Register(std::uint64_t length_bytes,
                                                               std::string_view label,
                                                               std::shared_ptr<Doorbell> doorbell) {
  ONEPIECE_ASSIGN_OR_RETURN(auto region, inner_.Register(length_bytes, label, std::move(doorbell)));
  return std::make_unique<BoardRegion>(std::move(region), board_);
}

absl::StatusOr<std::unique_ptr<Dialer>> FaultyFabric::Dial() {
  ONEPIECE_ASSIGN_OR_RETURN(auto dialer, inner_.Dial());
  return std::make_unique<FaultyDialer>(std::move(dialer), board_, self_, policy_);
}

}  // namespace onepiece::fabric
