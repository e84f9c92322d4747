#include "cluster/fabric/fault.h"

#include <unistd.h>

#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/fabric/process.h"
#include "cluster/fabric/wire.h"

namespace onepiece::fabric {

namespace {

constexpr base::Duration kLandTimeout = std::chrono::seconds(10);
constexpr std::size_t kLinkBytes = sizeof(std::uint64_t);

// SelfIdentity, asked once by each thread of each process: the system is slow to tell.
const PeerIdentity& RealSelf() {
  thread_local PeerIdentity self;
  if (self.pid != getpid()) self = SelfIdentity();
  return self;
}

absl::Status Lost(const char* why) {
  return base::MakeError(absl::StatusCode::kDeadlineExceeded, "INJECTED_FAULT", why);
}

// An operation with what it refers to: its caller has gone on.
struct HeldOp {
  explicit HeldOp(const Op& from) : op(from), words(from.words.begin(), from.words.end()) {
    for (const auto& piece : op.pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
    whole = bytes;
    op.pieces = {&whole, 1};
    op.words = words;
    op.into = {};
    op.words_into = {};
    op.old_value = &old_value;
  }
  HeldOp(const HeldOp&) = delete;
  HeldOp& operator=(const HeldOp&) = delete;

  Op op;
  std::vector<std::byte> bytes;
  std::span<const std::byte> whole;
  std::vector<std::uint64_t> words;
  std::uint64_t old_value = 0;
};

}  // namespace

// One connection of a pretended process. Its mutex makes the fence sharp: an operation takes effect
// before a revocation returns, or not at all. Thread-safe.
class FaultLink {
 public:
  FaultLink(const PeerIdentity& self, base::Clock& clock) : self_(self), clock_(clock) {}
  // Once, before anything else.
  void Attach(std::unique_ptr<Channel> inner) { inner_ = std::move(inner); }

  absl::Status Execute(const Op& op, base::MonotonicTime deadline, const FaultBoard& board) {
    const base::MutexLock lock(mutex_);
    if (board.IsDead(self_)) return Lost("the process is dead");
    if (revoked_) return Lost("the peer has revoked the access");
    return inner_->Execute({&op, 1}, deadline);
  }
  void Revoke() {
    const base::MutexLock lock(mutex_);
    revoked_ = true;
  }
  void Hold(std::span<const Op> rest) {
    const base::MutexLock lock(mutex_);
    for (const Op& op : rest) held_.push_back(std::make_unique<HeldOp>(op));
  }
  void Discard() {
    const base::MutexLock lock(mutex_);
    held_.clear();
  }
  // Takes the oldest operation out; false when there is none.
  bool LandOne(const FaultBoard& board) {
    std::unique_ptr<HeldOp> held;
    {
      const base::MutexLock lock(mutex_);
      if (held_.empty()) return false;
      held = std::move(held_.front());
      held_.pop_front();
    }
    // A fence may have come since the lock was released. Execute then refuses the operation.
    (void)Execute(held->op, clock_.Now() + kLandTimeout, board);
    return true;
  }

 private:
  const PeerIdentity self_;
  base::Clock& clock_;  // The fabric's.
  std::unique_ptr<Channel> inner_;
  base::Mutex mutex_;  // Taken before the board's.
  bool revoked_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::unique_ptr<HeldOp>> held_ ABSL_GUARDED_BY(mutex_);
};

class FaultyChannel final : public Channel {
 public:
  FaultyChannel(std::uint64_t length_bytes, Rights rights, std::shared_ptr<FaultLink> link,
                std::shared_ptr<FaultBoard> board, PeerIdentity self,
                std::shared_ptr<FaultPolicy> policy, base::Clock& clock)
      : Channel(length_bytes, rights),
        clock_(clock),
        link_(std::move(link)),
        board_(std::move(board)),
        self_(self),
        policy_(std::move(policy)) {}
  ~FaultyChannel() override {
    // A board that cannot revoke plays shm. There a chain's stores are the caller's own, so none is
    // under way once the channel is gone.
    if (!board_->revokes()) link_->Discard();
  }
  FaultyChannel(const FaultyChannel&) = delete;
  FaultyChannel& operator=(const FaultyChannel&) = delete;

 protected:
  absl::Status Run(std::span<const Op> chain, base::MonotonicTime deadline) override {
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const Op& op = chain[i];
      const Fault fault =
          policy_ != nullptr ? policy_->Before({next_index_++, op.name, op.kind}) : Fault{};
      switch (fault.kind) {
        case FaultKind::kDelay:
          clock_.Pause({}, fault.delay);
          break;
        case FaultKind::kDrop:
          return Lost("the operation was lost");
        case FaultKind::kTear:
          // The half goes first, because the link refuses every operation of a dead process.
          ExecuteHalf(op, deadline);
          board_->Kill(self_);
          return Lost("the process died while it wrote");
        case FaultKind::kDie:
          board_->Kill(self_);
          return Lost("the process died");
        case FaultKind::kSplit:
          ExecuteHalf(op, deadline);
          // The policy is asked about this operation again. At 0 the index wraps, and the loop
          // brings it back.
          --i;
          continue;
        case FaultKind::kLate:
          link_->Hold(chain.subspan(i));
          board_->AddLate(link_);
          return Lost("the completion did not come in time");
        case FaultKind::kBreak:
        case FaultKind::kNone:
          break;
      }
      ONEPIECE_RETURN_IF_ERROR(link_->Execute(op, deadline, *board_));
      CountPosted(1, 1);
      if (fault.kind == FaultKind::kBreak) return Lost("the completion was lost");
    }
    return absl::OkStatus();
  }

 private:
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
    (void)link_->Execute(half, deadline, *board_);
  }

  base::Clock& clock_;
  const std::shared_ptr<FaultLink> link_;
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
              std::shared_ptr<FaultLink> link, const PeerIdentity& peer)
      : inner_(std::move(inner)), board_(std::move(board)), link_(std::move(link)), peer_(peer) {}
  const RemoteRegion& remote() const override { return inner_->remote(); }
  const PeerIdentity& peer() const override { return peer_; }
  bool PeerIsDead() const override { return board_->IsDead(peer_); }
  bool Revoke() override {
    const bool revoked = inner_->Revoke();
    if (board_->revokes()) link_->Revoke();
    return revoked || board_->revokes() || PeerIsDead();
  }

 private:
  const std::unique_ptr<Access> inner_;
  const std::shared_ptr<FaultBoard> board_;
  const std::shared_ptr<FaultLink> link_;
  const PeerIdentity peer_;
};

// A pretended process writes the number of its link behind the inner backend's details.
std::uint64_t LinkNumber(const Offer& offer) {
  if (offer.details.size() < kLinkBytes) return 0;
  return WireReader(std::string_view(offer.details).substr(offer.details.size() - kLinkBytes))
      .U64();
}

class BoardRegion final : public Region {
 public:
  BoardRegion(std::unique_ptr<Region> inner, std::shared_ptr<FaultBoard> board)
      : inner_(std::move(inner)), board_(std::move(board)) {}
  std::span<std::byte> bytes() override { return inner_->bytes(); }
  absl::StatusOr<std::unique_ptr<Access>> Accept(const Offer& offer, Rights rights) override {
    if (!board_->Knows(offer.peer)) return inner_->Accept(offer, rights);
    if (board_->IsDead(offer.peer)) {
      return base::MakeError(absl::StatusCode::kUnavailable, "PEER_GONE",
                             "the peer's process is dead");
    }
    const auto link = board_->FindLink(LinkNumber(offer));
    if (link == nullptr) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "MALFORMED_OFFER",
                             "the offer names no link of the board");
    }
    Offer real = offer;
    real.peer = RealSelf();
    real.details.resize(real.details.size() - kLinkBytes);
    ONEPIECE_ASSIGN_OR_RETURN(auto access, inner_->Accept(real, rights));
    return std::make_unique<BoardAccess>(std::move(access), board_, link, offer.peer);
  }

 private:
  const std::unique_ptr<Region> inner_;
  const std::shared_ptr<FaultBoard> board_;
};

class FaultyDialer final : public Dialer {
 public:
  FaultyDialer(std::unique_ptr<Dialer> inner, std::shared_ptr<FaultBoard> board,
               const PeerIdentity& self, std::shared_ptr<FaultPolicy> policy, base::Clock& clock)
      : inner_(std::move(inner)),
        board_(std::move(board)),
        policy_(std::move(policy)),
        clock_(clock),
        link_(std::make_shared<FaultLink>(self, clock)),
        offer_{
            .backend = inner_->offer().backend, .peer = self, .details = inner_->offer().details} {
    if (board_->Knows(self)) AppendU64(offer_.details, board_->AddLink(link_));
  }
  const Offer& offer() const override { return offer_; }
  absl::StatusOr<std::unique_ptr<Channel>> Connect(const RemoteRegion& remote) override {
    ONEPIECE_ASSIGN_OR_RETURN(auto channel, inner_->Connect(remote));
    const std::uint64_t length_bytes = channel->length_bytes();
    const Rights rights = channel->rights();
    link_->Attach(std::move(channel));
    return std::make_unique<FaultyChannel>(length_bytes, rights, link_, board_, offer_.peer,
                                           policy_, clock_);
  }

 private:
  const std::unique_ptr<Dialer> inner_;
  const std::shared_ptr<FaultBoard> board_;
  const std::shared_ptr<FaultPolicy> policy_;
  base::Clock& clock_;
  const std::shared_ptr<FaultLink> link_;
  Offer offer_;
};

}  // namespace

Fault PlannedFault::Before(const FaultPoint& point) {
  if (point.index != index_) return {};
  base::MutexLock lock(mutex_);
  if (reached_) return {};
  reached_ = true;
  reached_name_ = point.name;
  changed_.NotifyAll();
  if (fault_.has_value()) return {.kind = *fault_};
  changed_.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return released_; });
  return {};
}

bool PlannedFault::AwaitReached(base::Duration limit) {
  base::MutexLock lock(mutex_);
  return changed_.WaitFor(lock, limit,
                          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return reached_; });
}

void PlannedFault::Release() {
  const base::MutexLock lock(mutex_);
  released_ = true;
  changed_.NotifyAll();
}

std::string PlannedFault::reached_name() const {
  const base::MutexLock lock(mutex_);
  return reached_name_;
}

Fault RandomFaults::Before(const FaultPoint&) {
  const base::MutexLock lock(mutex_);
  // One draw decides among all kinds, so the place of a kind in the list does not change its
  // probability.
  double draw = std::uniform_real_distribution<double>(0, 1)(random_);
  const std::pair<double, FaultKind> choices[] = {{rates_.delay, FaultKind::kDelay},
                                                  {rates_.drop, FaultKind::kDrop},
                                                  {rates_.tear, FaultKind::kTear},
                                                  {rates_.die, FaultKind::kDie},
                                                  {rates_.break_channel, FaultKind::kBreak},
                                                  {rates_.split, FaultKind::kSplit},
                                                  {rates_.late, FaultKind::kLate}};
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
  const base::MutexLock lock(mutex_);
  return {.host = RealSelf().host, .pid = ++last_pid_, .start_time = 1};
}

void FaultBoard::Kill(const PeerIdentity& process) {
  const base::MutexLock lock(mutex_);
  dead_.insert(process.pid);
}

bool FaultBoard::Knows(const PeerIdentity& process) const {
  const base::MutexLock lock(mutex_);
  return process.pid > (1 << 28) && process.pid <= last_pid_;
}

bool FaultBoard::IsDead(const PeerIdentity& process) const {
  const base::MutexLock lock(mutex_);
  return dead_.contains(process.pid);
}

int FaultBoard::Land(int limit) {
  int landed = 0;
  while (landed < limit) {
    std::shared_ptr<FaultLink> link;
    {
      const base::MutexLock lock(mutex_);
      if (late_.empty()) break;
      link = late_.front();
    }
    if (link->LandOne(*this)) {
      ++landed;
      continue;
    }
    const base::MutexLock lock(mutex_);
    std::erase(late_, link);
  }
  return landed;
}

std::uint64_t FaultBoard::AddLink(std::shared_ptr<FaultLink> link) {
  const base::MutexLock lock(mutex_);
  std::erase_if(links_, [](const auto& entry) { return entry.second.expired(); });
  links_[++last_link_] = std::move(link);
  return last_link_;
}

std::shared_ptr<FaultLink> FaultBoard::FindLink(std::uint64_t number) const {
  const base::MutexLock lock(mutex_);
  const auto found = links_.find(number);
  return found == links_.end() ? nullptr : found->second.lock();
}

void FaultBoard::AddLate(std::shared_ptr<FaultLink> link) {
  const base::MutexLock lock(mutex_);
  late_.push_back(std::move(link));
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
  return std::make_unique<FaultyDialer>(std::move(dialer), board_, self_, policy_, inner_.clock());
}

}  // namespace onepiece::fabric
