#include "nodemanager/paxos/replica.h"

#include <algorithm>
#include <utility>

#include "cluster/base/check.h"
#include "nodemanager/paxos/mutant.h"
#include "nodemanager/paxos/replica_impl.h"

namespace onepiece::paxos {
namespace {

// Corrects options that contradict each other to values that are safe.
ReplicaOptions Sane(ReplicaOptions options) {
  options.election_min = std::max<Duration>(options.election_min, std::chrono::milliseconds(1));
  options.election_max = std::max(options.election_max, options.election_min);
  options.lease = std::clamp(options.lease, Duration::zero(), options.election_min);
  options.heartbeat =
      std::clamp<Duration>(options.heartbeat, std::chrono::microseconds(1), options.election_min);
  options.max_drift = std::clamp(options.max_drift, 0.0, 0.5);
  return options;
}

// IsSane() checks what came from outside. A message that passes cannot make a step overflow, or
// allocate more than the message itself did.
bool IsSane(const Members& members) {
  if (members.seats.size() > Members::kMaxSeats) return false;
  for (const Seat& seat : members.seats) {
    if (members.FindName(seat.name) != &seat) return false;
    if (seat.replica != ReplicaId{} && members.Find(seat.replica) != &seat) return false;
  }
  return true;
}
bool IsSane(const LogEntry& entry) {
  return entry.kind != LogEntry::Kind::kMembers ||
         (IsSane(entry.members) && entry.members.voters() > 0);
}
// `owner` is who proposes under the ballot: the sender of a request and the receiver of a reply.
bool IsSane(Ballot ballot, ReplicaId owner) {
  return ballot.round < kMaxCount && ballot.replica == owner;
}

struct SanityOf {
  ReplicaId from, to;
  bool operator()(const PreVote& m) const { return IsSane(m.ballot, from); }
  bool operator()(const PreVoteReply& m) const {
    return IsSane(m.ballot, to) && m.promised.round < kMaxCount;
  }
  bool operator()(const Prepare& m) const { return IsSane(m.ballot, from); }
  bool operator()(const Promise& m) const {
    return IsSane(m.ballot, to) && m.promised.round < kMaxCount &&
           std::all_of(m.accepted.begin(), m.accepted.end(),
                       [](const AcceptedEntry& e) { return IsSane(e.entry); });
  }
  bool operator()(const Accept& m) const {
    return IsSane(m.ballot, from) && m.first >= kFirstSlot && m.first < kSlotLimit &&
           std::all_of(m.entries.begin(), m.entries.end(),
                       [](const LogEntry& e) { return IsSane(e); });
  }
  bool operator()(const Accepted& m) const {
    return IsSane(m.ballot, to) && m.promised.round < kMaxCount;
  }
  bool operator()(const InstallSnapshot& m) const {
    return IsSane(m.ballot, from) && m.snapshot && m.snapshot->index < kSlotLimit &&
           IsSane(m.snapshot->members);
  }
  bool operator()(const Join& m) const {
    return !m.name.empty() && m.name.size() <= 256 && m.address.size() <= 256;
  }
  bool operator()(const TakeOver& m) const { return IsSane(m.released, from); }
  bool operator()(const ReadIndexRequest& /*m*/) const { return true; }
  bool operator()(const ReadIndex& m) const { return m.index < kSlotLimit; }
};

}  // namespace

Replica::Impl::Impl(ReplicaOptions given, DurableState state, Time now)
    : options(Sane(std::move(given))),
      acceptor(std::move(state), options.lease, now),
      random(options.seed),
      handed(acceptor.snapshot()->index),
      max_round(acceptor.promised().round) {
  if (members().Votes(id())) role = Role::kFollower;
  deadline = now;
  // A lone voter need not wait for a leader, because nobody else can lead.
  const bool alone = members().voters() == 1;
  if (role == Role::kFollower && !alone) ArmElection(now);
}

// The message leaves after the writes of this batch are durable. A replica must find again after a
// crash whatever it has told others. Only what a leader sends to its peers (flow.cc) leaves
// earlier.
void Replica::Impl::Send(ReplicaId to, decltype(Message::body) body, Outputs& out) const {
  out.late.push_back({id(), to, std::move(body)});
}

// Ends what the present role was doing, and begins the next role.
void Replica::Impl::Become(Role next, Time now, Outputs& out) {
  if (role == Role::kLeader) {
    out.lost_leadership = true;
    RefuseReads(out);
    lead = {};
    if (leader == id()) leader = {};
  }
  if (role == Role::kCandidate) candidacy = {};
  if (next == Role::kFollower && !members().Votes(id())) next = Role::kLearner;
  role = next;
  if (role == Role::kFollower) ArmElection(now);
  if (role == Role::kLearner) deadline = now;  // It sends a Join at the next tick.
}

// Every step ends here. The step may have learnt of a change that gave this replica a seat or took
// its seat, so the role follows the members. Then what is chosen goes out.
void Replica::Impl::FinishStep(Time now, Outputs& out) {
  const bool votes = members().Votes(id());
  if (votes ? role == Role::kLearner : role != Role::kLearner) Become(Role::kFollower, now, out);
  for (; handed < acceptor.chosen(); ++handed) {
    out.chosen.push_back({handed + 1, acceptor.log().At(handed + 1).entry});
    if (Is(Mutant::kHandOutOfOrder) && out.chosen.size() > 1) {
      std::swap(out.chosen.back().entry, out.chosen[out.chosen.size() - 2].entry);
    }
  }
}

void Replica::Impl::Tick(Time now, Outputs& out) {
  if (IsLeader()) {
    LeadTick(now, out);
  } else if (now >= deadline) {
    if (role == Role::kLearner) {
      // A learner arms no election, so it notices here that its leader is silent.
      if (now - heard >= options.election_min) leader = {};
      Send(ReplicaId{}, Join{options.name, options.address, acceptor.match(), options.version},
           out);
      deadline = now + options.election_min;
    } else {
      Campaign(now, out);
    }
  }
  FinishStep(now, out);
}

Time Replica::Impl::next_deadline() const {
  // A replica that was just restored has chosen slots to hand out. Its first step is due at once.
  if (handed < acceptor.chosen()) return Time{};
  return IsLeader() ? lead.heartbeat_at : deadline;
}

void Replica::Impl::Receive(Time now, const Message& message, Outputs& out) {
  if (message.from == ReplicaId{} || (message.to != ReplicaId{} && message.to != id())) return;
  if (!std::visit(SanityOf{message.from, id()}, message.body)) return;
  std::visit([&](const auto& body) { On(now, message.from, body, out); }, message.body);
  FinishStep(now, out);
}

// Follows the leader of a ballot that the acceptor has just taken. If this replica leads, the
// ballot is higher than its own, and it stops leading. The binding begins when the message arrives,
// which is never before `sent`, and the leader counts its lease from `sent`.
void Replica::Impl::HearLeader(Time now, ReplicaId from, Ballot ballot, Outputs& out) {
  if (role == Role::kLeader || role == Role::kCandidate) Become(Role::kFollower, now, out);
  NoteRound(ballot);
  leader = from;
  leader_ballot = ballot;
  heard = now;
  failed_campaigns = 0;
  acceptor.Bind(now, ballot);
  if (role == Role::kFollower) ArmElection(now);
}

void Replica::Impl::Answer(Time now, ReplicaId to, Ballot ballot, Time sent, Outputs& out) const {
  const bool granted = ballot >= acceptor.promised() || Is(Mutant::kAcceptLowerBallot);
  Send(to,
       Accepted{ballot, granted, acceptor.promised(), granted ? acceptor.match() : Slot{}, sent,
                now, options.version},
       out);
}

void Replica::Impl::On(Time now, ReplicaId from, const Accept& m, Outputs& out) {
  if (from == id()) return;  // A leader accepts its own entries in Append().
  if (acceptor.TakeBallot(m.ballot, out)) {
    HearLeader(now, from, m.ballot, out);
    // The entries come first, because Learn() believes `chosen` only up to match().
    acceptor.Accept(m.ballot, m.first, m.entries, out);
    acceptor.Learn(m.chosen, out);
    TellAddress(now, from, out);
  }
  Answer(now, from, m.ballot, m.sent, out);
}

void Replica::Impl::On(Time now, ReplicaId from, const InstallSnapshot& m, Outputs& out) {
  if (from == id()) return;
  if (acceptor.TakeBallot(m.ballot, out)) {
    HearLeader(now, from, m.ballot, out);
    if (acceptor.Install(m.snapshot, out)) {
      // The snapshot holds what earlier steps of this batch handed out.
      out.chosen.clear();
      out.restore = m.snapshot;
      handed = m.snapshot->index;
    }
  }
  Answer(now, from, m.ballot, m.sent, out);
}

Replica::Replica(ReplicaOptions options, DurableState state, Time now)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(state), now)) {}
Replica::~Replica() = default;
Replica::Replica(Replica&&) noexcept = default;
Replica& Replica::operator=(Replica&&) noexcept = default;

DurableState Replica::Bootstrap(ReplicaId replica, Members seats, const std::string& name) {
  ONEPIECE_CHECK(replica != ReplicaId{} && seats.FindName(name) != nullptr);
  for (Seat& seat : seats.seats) seat.replica = seat.name == name ? replica : ReplicaId{};
  DurableState state;
  state.replica = replica;
  state.snapshot.members = seats;
  state.chosen = kFirstSlot;
  LogEntry first;
  first.kind = LogEntry::Kind::kMembers;
  first.members = std::move(seats);
  state.log.push_back({kFirstSlot, Ballot{}, std::move(first)});
  return state;
}

void Replica::Tick(Time now, Outputs& out) { impl_->Tick(now, out); }
Time Replica::next_deadline() const { return impl_->next_deadline(); }
void Replica::Receive(Time now, const Message& message, Outputs& out) {
  impl_->Receive(now, message, out);
}

absl::StatusOr<Slot> Replica::Propose(Time now, std::shared_ptr<const std::string> command,
                                      std::uint32_t version, Outputs& out) {
  LogEntry entry;
  entry.kind = command ? LogEntry::Kind::kCommand : LogEntry::Kind::kNoop;
  entry.version = version;
  entry.payload = std::move(command);
  auto slot = impl_->Propose(now, std::move(entry), out);
  impl_->FinishStep(now, out);
  return slot;
}
absl::StatusOr<Slot> Replica::AddSeat(Time now, const Seat& seat, Outputs& out) {
  auto slot = impl_->AddSeat(now, seat, out);
  impl_->FinishStep(now, out);
  return slot;
}
absl::StatusOr<Slot> Replica::RemoveSeat(Time now, const std::string& name, Outputs& out) {
  auto slot = impl_->RemoveSeat(now, name, out);
  impl_->FinishStep(now, out);
  return slot;
}
absl::StatusOr<Slot> Replica::ReplaceSeat(Time now, const std::string& name, const Seat& seat,
                                          Outputs& out) {
  auto slot = impl_->ReplaceSeat(now, name, seat, out);
  impl_->FinishStep(now, out);
  return slot;
}
absl::Status Replica::StepDown(Time now, Outputs& out) {
  absl::Status status = impl_->StepDown(now, out);
  impl_->FinishStep(now, out);
  return status;
}
void Replica::RefuseToLead(Time now, Outputs& out) {
  impl_->refuses_to_lead = true;
  // If there is no successor, it stops leading anyway. An election then finds the next leader.
  if (impl_->IsLeader() && !impl_->StepDown(now, out).ok()) {
    impl_->Become(Role::kFollower, now, out);
  } else if (role() == Role::kCandidate) {
    impl_->Become(Role::kFollower, now, out);
  }
  impl_->FinishStep(now, out);
}
void Replica::TakeSnapshot(Slot index, std::shared_ptr<const std::string> state, Outputs& out) {
  if (index > impl_->handed) return;
  impl_->acceptor.TakeSnapshot(index, std::move(state), impl_->options.keep_slots, out);
}

bool Replica::LeaseCovers(Time now) const { return impl_->LeaseCovers(now); }
bool Replica::AskReadIndex(std::uint64_t request, Outputs& out) {
  const ReplicaId leader = impl_->leader;
  if (impl_->IsLeader() || leader == ReplicaId{} || leader == id()) return false;
  out.early.push_back({id(), leader, ReadIndexRequest{request}});
  return true;
}
ReplicaId Replica::id() const { return impl_->id(); }
Role Replica::role() const { return impl_->role; }
bool Replica::IsReady() const { return impl_->IsReady(); }
ReplicaId Replica::leader() const { return impl_->leader; }
Ballot Replica::promised() const { return impl_->acceptor.promised(); }
Slot Replica::chosen() const { return impl_->acceptor.chosen(); }
Slot Replica::last_slot() const { return impl_->acceptor.log().last(); }
Slot Replica::first_slot() const { return impl_->acceptor.log().first(); }
const std::shared_ptr<const Snapshot>& Replica::snapshot() const {
  return impl_->acceptor.snapshot();
}
const Members& Replica::members() const { return impl_->members(); }
std::uint32_t Replica::common_version() const { return impl_->common_version(); }
std::vector<Progress> Replica::progress() const { return impl_->progress(); }

}  // namespace onepiece::paxos
