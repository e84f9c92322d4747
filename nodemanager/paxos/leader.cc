// The leader's part of phase 2, and the lease.
#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "cluster/base/status.h"
#include "nodemanager/paxos/mutant.h"
#include "nodemanager/paxos/replica_impl.h"

namespace onepiece::paxos {
namespace {

absl::Status NotLeader() {
  return base::MakeError(absl::StatusCode::kUnavailable, "NOT_LEADER",
                         "this replica does not lead, or not yet: ask the leader");
}

// Returns the highest value that at least `quorum` of the first `count` values reach.
// REQUIRES: 1 <= quorum <= count.
template <typename T, std::size_t N>
T Reached(std::array<T, N>& values, std::size_t count, std::size_t quorum) {
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(quorum - 1);
  std::nth_element(values.begin(), nth, values.begin() + static_cast<std::ptrdiff_t>(count),
                   std::greater<>());
  return *nth;
}

}  // namespace

// `handed` counts too: a leader that is ready answers reads from its state machine, which must have
// been given all that earlier leaders may have chosen.
bool Replica::Impl::IsReady() const {
  return IsLeader() && lead.ready_slot != Slot{} && acceptor.chosen() >= lead.ready_slot &&
         handed >= lead.ready_slot;
}

absl::StatusOr<Slot> Replica::Impl::Propose(Time now, LogEntry entry, Outputs& out) {
  if (!IsReady()) return NotLeader();
  // Nothing is proposed after a change of members until the change is chosen, because it decides
  // who votes on what follows.
  const bool changing = lead.change_slot != Slot{} && !Is(Mutant::kMembersOverlap);
  if (changing || lead.proposed - acceptor.chosen() >= options.window_slots ||
      lead.open_bytes >= options.window_bytes) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "LOG_BUSY",
                           changing ? "a change of members is under way: try again at once"
                                    : "too many commands wait to be chosen: try again later");
  }
  const Slot slot = Append(now, std::move(entry), out);
  Broadcast(now, false, out);
  return slot;
}

// Puts the entry into the next slot of this replica's own acceptor. The leader answers itself like
// any other acceptor. The answer is in `late`, so it counts only after the entry is durable here.
// One answer with the highest slot is enough for a batch of steps.
Slot Replica::Impl::Append(Time now, LogEntry entry, Outputs& out) {
  const Slot slot = ++lead.proposed;
  lead.open_bytes += entry.bytes();
  acceptor.AcceptOwn(lead.ballot, slot, std::move(entry), out);
  if (lead.own_open < out.late.size() && out.late[lead.own_open].to == id()) {
    auto* open = std::get_if<Accepted>(&out.late[lead.own_open].body);
    if (open && open->ballot == lead.ballot) {
      open->match = slot;
      return slot;
    }
  }
  lead.own_open = out.late.size();
  Send(id(), Accepted{lead.ballot, true, lead.ballot, slot, now, now, options.version}, out);
  return slot;
}

void Replica::Impl::On(Time now, ReplicaId from, const Accepted& m, Outputs& out) {
  NoteRound(m.promised);
  if (!IsLeader() || (m.ballot != lead.ballot && !Is(Mutant::kCountOtherBallot))) return;
  if (!m.granted) {
    if (m.promised > lead.ballot && m.ballot == lead.ballot) Become(Role::kFollower, now, out);
    return;
  }
  if (m.sent > now) return;  // An echo from the future would stretch the lease.
  if (from == id()) {
    lead.own_match = std::max(lead.own_match, std::min(m.match, lead.proposed));
    return TryChoose(now, out);
  }
  Peer* peer = FindPeer(from);
  if (peer == nullptr) return;
  // This leader holds all that may be chosen, unless it recovers a change of members. A replica
  // that claims more belongs to another group and holds other entries.
  if (m.match > lead.proposed && !lead.recovers_change) return;
  // `sent` counts, not `now`: an answer that was delayed does not show that the peer still hears.
  peer->heard = std::max(peer->heard, m.sent);
  peer->answered = true;
  peer->version = m.version;
  peer->drift.Observe(m.sent, now, m.local, options.max_drift);
  const Time granted_at = Is(Mutant::kLeaseFromReceipt) ? now : m.sent;
  if (!peer->lease_sent || granted_at > *peer->lease_sent) peer->lease_sent = granted_at;
  Progressed(*peer, m.match, m.sent);
  SendTo(*peer, now, false, out);
  TryChoose(now, out);
}

// Every match that is counted here was reached at this leader's ballot, so copies of an earlier
// leader's ballot never choose a slot (docs/consensus.md, "The log", 4).
void Replica::Impl::TryChoose(Time now, Outputs& out) {
  std::array<Slot, Members::kMaxSeats + 1> matches{};
  std::size_t count = 0;
  if (members().Votes(id())) matches[count++] = lead.own_match;
  for (const Peer& peer : lead.peers) {
    if (peer.votes) matches[count++] = peer.match;
  }
  std::size_t quorum = members().quorum();
  if (Is(Mutant::kChooseWithMinority)) quorum = std::max<std::size_t>(1, quorum - 1);
  if (count < quorum) return;
  const Slot chosen = Reached(matches, count, quorum);
  if (chosen <= acceptor.chosen()) return;
  for (Slot slot = acceptor.chosen() + 1; slot <= chosen; ++slot) {
    lead.open_bytes -= acceptor.log().At(slot).entry.bytes();
  }
  acceptor.Choose(chosen, out);
  AnswerReads(out);
  AfterChosen(now, out);
}

// The lease and the no-op count from this message on. What proved this leadership before it came
// says nothing about what another leader has chosen since (docs/consensus.md, "Reads at
// followers").
void Replica::Impl::On(Time now, ReplicaId from, const ReadIndexRequest& m, Outputs& out) {
  if (from == id()) return;
  const bool covered = IsReady() && (LeaseCovers(now) || Is(Mutant::kReadIndexUnconfirmed));
  if (covered) {
    out.early.push_back({id(), from, ReadIndex{m.request, true, acceptor.chosen()}});
    return;
  }
  absl::StatusOr<Slot> slot = NotLeader();
  if (lead.reads.size() < kMaxFollowerReads) slot = Propose(now, LogEntry{}, out);
  if (slot.ok()) {
    lead.reads.push_back({from, m.request, *slot});
  } else {
    out.early.push_back({id(), from, ReadIndex{m.request, false, {}}});
  }
}

void Replica::Impl::On(Time /*now*/, ReplicaId from, const ReadIndex& m, Outputs& out) {
  if (from != id()) out.read_indexes.push_back(m);
}

void Replica::Impl::AnswerReads(Outputs& out) {
  for (; !lead.reads.empty() && lead.reads.front().slot <= acceptor.chosen();
       lead.reads.pop_front()) {
    const FollowerRead& read = lead.reads.front();
    out.early.push_back({id(), read.from, ReadIndex{read.request, true, read.slot}});
  }
}

// Their no-ops may still be chosen, but by another leader, whose entries before them they would
// not count.
void Replica::Impl::RefuseReads(Outputs& out) {
  for (const FollowerRead& read : lead.reads)
    out.early.push_back({id(), read.from, ReadIndex{read.request, false, {}}});
  lead.reads.clear();
}

// Goes on with a change of members: proposes a change that waited for all slots before it, or acts
// on a change that is now chosen.
void Replica::Impl::AfterChosen(Time now, Outputs& out) {
  if (lead.change && acceptor.chosen() == lead.proposed) return AppendChange(now, out);
  if (lead.change_slot == Slot{} || acceptor.chosen() < lead.change_slot) return;
  const bool recovered = lead.recovers_change;
  lead.change_slot = {};
  lead.recovers_change = false;
  // This leader may be the only one that knows a recovered change to be chosen. It tells the others
  // before it stops leading, because those that can lead may need its vote until they know.
  if (recovered) Broadcast(now, true, out);
  if (!members().Votes(id())) return Become(Role::kFollower, now, out);
  // The new voters may have chosen slots after the change, under the earlier leader. Only a new
  // phase 1, which asks them, can find out.
  if (recovered) {
    Become(Role::kFollower, now, out);
    return StartPrepare(now, out);
  }
  SyncPeers(now);
  Broadcast(now, true, out);
}

// A peer that has not answered yet counts as heard when this leader began to send to it, so a new
// leader has election_max to gather answers.
bool Replica::Impl::HearsMajority(Time now) const {
  std::size_t heard_now = members().Votes(id()) ? 1 : 0;
  for (const Peer& peer : lead.peers) {
    if (peer.votes && now - peer.heard < options.election_max) ++heard_now;
  }
  return heard_now >= members().quorum();
}

void Replica::Impl::LeadTick(Time now, Outputs& out) {
  if (!HearsMajority(now)) return Become(Role::kFollower, now, out);
  if (now < lead.heartbeat_at) return;
  FillSeats(now, out);
  if (IsLeader()) Broadcast(now, true, out);
}

bool Replica::Impl::LeaseCovers(Time now) const {
  if (!IsReady()) return false;
  if (Is(Mutant::kReadWithoutLease)) return true;
  // The lease begins when a majority had been asked, not when its answers came: each acceptor bound
  // itself at or after `sent`.
  std::array<Time, Members::kMaxSeats + 1> granted{};
  std::size_t count = 0;
  granted[count++] = lead.own_lease_sent;
  for (const Peer& peer : lead.peers) {
    if (peer.votes && peer.lease_sent && peer.drift.trusted()) granted[count++] = *peer.lease_sent;
  }
  const std::size_t quorum = Is(Mutant::kLeaseWithoutMajority) ? 1 : members().quorum();
  if (count < quorum) return false;
  const Time since = Reached(granted, count, quorum);
  // A follower's clock may run faster than this one, and then its binding ends earlier by this
  // clock.
  const auto length = static_cast<Duration::rep>(static_cast<double>(options.lease.count()) *
                                                 (1 - 2 * options.max_drift));
  return now < since + Duration(length);
}

absl::Status Replica::Impl::StepDown(Time now, Outputs& out) {
  if (!IsLeader()) return NotLeader();
  const Peer* best = nullptr;
  for (const Peer& peer : lead.peers) {
    const bool close = peer.votes && peer.answered && peer.match >= acceptor.chosen() &&
                       now - peer.heard < options.election_min;
    if (close && (best == nullptr || peer.match > best->match)) best = &peer;
  }
  if (best == nullptr) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "NO_SUCCESSOR",
                           "no other voter answers and has all that is chosen: look at `onepiece "
                           "cluster status` and try again");
  }
  const ReplicaId successor = best->id;
  // This tells every peer what is chosen. A successor that knew less than the others would not get
  // their votes.
  Broadcast(now, true, out);
  const Ballot ended = lead.ballot;
  Become(Role::kFollower, now, out);
  Send(successor, TakeOver{ended}, out);
  return absl::OkStatus();
}

std::uint32_t Replica::Impl::common_version() const {
  std::uint32_t version = options.version;
  if (!IsLeader()) return 1;
  // A voter that has not answered yet has version 0 here, so the result is then 1.
  for (const Peer& peer : lead.peers) {
    if (peer.votes) version = std::min(version, peer.version);
  }
  return std::max<std::uint32_t>(version, 1);
}

}  // namespace onepiece::paxos
