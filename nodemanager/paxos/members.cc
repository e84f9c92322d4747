// Seats: who votes, who receives the log, and how both change.
#include <algorithm>
#include <utility>

#include "cluster/base/status.h"
#include "nodemanager/paxos/mutant.h"
#include "nodemanager/paxos/replica_impl.h"

namespace onepiece::paxos {
namespace {

// How many learners a leader feeds at a time. Others ask again later.
constexpr std::size_t kMaxLearners = Members::kMaxSeats;
// The leader forgets a learner that is silent for this many times election_max.
constexpr int kForgetLearnerAfter = 10;

absl::Status Refused(const char* reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, reason, message);
}

Seat* FindName(Members& members, const std::string& name) {
  for (Seat& seat : members.seats) {
    if (seat.name == name) return &seat;
  }
  return nullptr;
}

}  // namespace

// Makes the leader's peers follow the members. A replica that lost its seat stays a peer, as a
// learner, so that it hears of the loss.
void Replica::Impl::SyncPeers(Time now) {
  std::vector<Peer> peers;
  const auto keep = [&](ReplicaId replica) {
    if (Peer* known = FindPeer(replica)) {
      peers.push_back(std::move(*known));
      known->id = {};  // Marks it as taken, for the loop over the rest.
    } else {
      peers.emplace_back();
      peers.back().id = replica;
      peers.back().next = lead.proposed + 1;
      peers.back().heard = now;
    }
  };
  for (const Seat& seat : members().seats) {
    if (seat.replica == ReplicaId{} || seat.replica == id()) continue;
    keep(seat.replica);
    peers.back().votes = true;
    peers.back().name = seat.name;
    peers.back().address = seat.address;
  }
  for (Peer& peer : lead.peers) {
    if (peer.id == ReplicaId{}) continue;
    peer.votes = false;
    peers.push_back(std::move(peer));
  }
  lead.peers = std::move(peers);
}

void Replica::Impl::On(Time now, ReplicaId from, const Join& m, Outputs& out) {
  if (!IsLeader() || from == id() || members().FindName(m.name) == nullptr) return;
  Peer* peer = FindPeer(from);
  if (peer == nullptr) {
    const auto learners =
        std::count_if(lead.peers.begin(), lead.peers.end(), [](const Peer& p) { return !p.votes; });
    if (static_cast<std::size_t>(learners) >= kMaxLearners) return;
    Peer learner;
    learner.id = from;
    learner.next = std::min(m.match, lead.proposed) + 1;
    learner.heard = now;
    lead.peers.push_back(std::move(learner));
    peer = &lead.peers.back();
  }
  peer->name = m.name;
  peer->address = m.address;
  peer->version = m.version;
  SendTo(*peer, now, !peer->answered, out);
}

// Tells the leader this replica's address when its seat has another one, from an earlier start. The
// leader writes the address into the seat (FillSeats).
void Replica::Impl::TellAddress(Time now, ReplicaId to, Outputs& out) {
  const Seat* seat = members().Find(id());
  if (seat == nullptr || options.address.empty() || seat->address == options.address ||
      now < tell_address_at)
    return;
  tell_address_at = now + options.election_min;
  Send(to, Join{options.name, options.address, acceptor.match(), options.version}, out);
}

// Makes at most one change of members: corrects the leader's own address or a voter's, gives a
// vacant seat to a learner of its name, or vacates the seat of a silent replica when a learner of
// its name waits.
void Replica::Impl::FillSeats(Time now, Outputs& out) {
  auto& peers = lead.peers;
  std::erase_if(peers, [&](const Peer& peer) {
    return !peer.votes && now - peer.heard > kForgetLearnerAfter * options.election_max;
  });
  if (!IsReady() || lead.change_slot != Slot{}) return;
  const Seat* own = members().Find(id());
  if (own != nullptr && !options.address.empty() && own->address != options.address) {
    Members after = members();
    FindName(after, own->name)->address = options.address;
    Change(now, std::move(after), out).IgnoreError();
    return;
  }
  // Every voter can apply what the log holds. A new voter must not know less than they do.
  std::uint32_t version = options.version;
  for (const Peer& peer : peers) {
    if (peer.votes && peer.version != 0) version = std::min(version, peer.version);
  }
  for (const Peer& peer : peers) {
    if (!peer.votes && peer.version < version) continue;
    const Seat* seat = members().FindName(peer.name);
    const bool close = peer.answered && now - peer.heard < options.election_min &&
                       peer.match + options.keep_slots >= lead.proposed;
    if (seat == nullptr || !close || (*seat == Seat{peer.name, peer.address, peer.id})) continue;
    if (!CanApplyRest(peer)) continue;
    Members after = members();
    Seat& changed = *FindName(after, peer.name);
    if (seat->replica == ReplicaId{} || seat->replica == peer.id) {
      changed.replica = peer.id;
      changed.address = peer.address;
    } else {
      const Peer* holder = FindPeer(seat->replica);
      if (holder == nullptr || now - holder->heard < options.election_max) continue;
      // The seat is only vacated now. A later call gives it to the learner, because each change may
      // change one vote at most.
      changed.replica = {};
      if (!QuorumAnswers(now, after)) continue;
    }
    Change(now, std::move(after), out).IgnoreError();
    return;
  }
}

// True when the peer can apply every entry that it has yet to receive. A learner of an older
// version gets no vote while a newer entry lies before it.
bool Replica::Impl::CanApplyRest(const Peer& peer) const {
  const EntryLog& log = acceptor.log();
  for (Slot slot = std::max(peer.match + 1, log.first()); slot <= log.last(); ++slot) {
    if (log.At(slot).entry.version > peer.version) return false;
  }
  return true;
}

// True when the voters of `after` that have answered this leader lately are a majority of them.
// Without this check a change can leave a group that nobody can lead.
bool Replica::Impl::QuorumAnswers(Time now, const Members& after) const {
  std::size_t answer = after.Votes(id()) ? 1 : 0;
  for (const Peer& peer : lead.peers) {
    const bool answers = peer.answered && now - peer.heard < options.election_max;
    if (after.Votes(peer.id) && answers) ++answer;
  }
  return answer >= after.quorum();
}

absl::StatusOr<Slot> Replica::Impl::Change(Time now, Members after, Outputs& out) {
  if (!IsReady()) {
    if (IsLeader()) {
      return Refused("MEMBERS_CHANGING", "the leader is still recovering: try again in a second");
    }
    return base::MakeError(absl::StatusCode::kUnavailable, "NOT_LEADER",
                           "this replica does not lead: ask the leader");
  }
  if (lead.change_slot != Slot{} && !Is(Mutant::kMembersOverlap)) {
    return Refused("MEMBERS_CHANGING", "another change of members is under way: try again");
  }
  // From here Propose() refuses, so change_slot stays free until all slots before it are chosen.
  // AfterChosen() then proposes the change.
  lead.change_slot = lead.proposed + 1;
  lead.change = std::move(after);
  const Slot slot = lead.change_slot;
  if (acceptor.chosen() == lead.proposed) {
    AfterChosen(now, out);
  } else if (Is(Mutant::kMembersOverlap)) {
    AppendChange(now, out);
  }
  return slot;
}

void Replica::Impl::AppendChange(Time now, Outputs& out) {
  LogEntry entry;
  entry.kind = LogEntry::Kind::kMembers;
  entry.members = std::move(*lead.change);
  lead.change.reset();
  Append(now, std::move(entry), out);
  Broadcast(now, false, out);
}

absl::StatusOr<Slot> Replica::Impl::AddSeat(Time now, const Seat& seat, Outputs& out) {
  if (IsLeader()) {
    if (seat.name.empty() || seat.replica != ReplicaId{}) {
      return absl::InvalidArgumentError("a new seat has a name and is vacant");
    }
    if (members().FindName(seat.name) != nullptr) {
      return Refused("SEAT_EXISTS", "there is a seat named " + seat.name);
    }
    if (members().seats.size() >= Members::kMaxSeats) {
      return Refused("TOO_MANY_SEATS", "a group has at most 7 seats: remove one first");
    }
  }
  Members after = members();
  after.seats.push_back(seat);
  return Change(now, std::move(after), out);
}

// Says whether the seat `name` may be given up, which makes the members `after`.
absl::Status Replica::Impl::CheckVacates(Time now, const std::string& name,
                                         const Members& after) const {
  const Seat* seat = members().FindName(name);
  if (seat->replica == ReplicaId{}) return absl::OkStatus();
  if (members().voters() == 1) {
    return Refused("LAST_VOTER", name + " holds the only copy: add another replica first");
  }
  if (seat->replica == id()) {
    return Refused("LEADERS_SEAT", name + " leads: let it step down first");
  }
  if (!QuorumAnswers(now, after)) {
    return Refused("NO_QUORUM_LEFT",
                   "the replicas that answer would not be a majority without " + name);
  }
  return absl::OkStatus();
}

absl::StatusOr<Slot> Replica::Impl::RemoveSeat(Time now, const std::string& name, Outputs& out) {
  Members after = members();
  if (IsLeader()) {
    if (members().FindName(name) == nullptr) {
      return Refused("NO_SEAT", "there is no seat named " + name);
    }
    std::erase_if(after.seats, [&](const Seat& seat) { return seat.name == name; });
    ONEPIECE_RETURN_IF_ERROR(CheckVacates(now, name, after));
  }
  return Change(now, std::move(after), out);
}

absl::StatusOr<Slot> Replica::Impl::ReplaceSeat(Time now, const std::string& name, const Seat& seat,
                                                Outputs& out) {
  Members after = members();
  if (IsLeader()) {
    Seat* old = FindName(after, name);
    if (old == nullptr) return Refused("NO_SEAT", "there is no seat named " + name);
    if (seat.name.empty() || seat.replica != ReplicaId{}) {
      return absl::InvalidArgumentError("a new seat has a name and is vacant");
    }
    if (seat.name != name && members().FindName(seat.name) != nullptr) {
      return Refused("SEAT_EXISTS", "there is a seat named " + seat.name);
    }
    *old = seat;
    ONEPIECE_RETURN_IF_ERROR(CheckVacates(now, name, after));
  }
  return Change(now, std::move(after), out);
}

std::vector<Progress> Replica::Impl::progress() const {
  std::vector<Progress> all;
  if (!IsLeader()) return all;
  all.push_back({id(), options.name, options.address, members().Votes(id()), lead.own_match,
                 options.version, lead.own_lease_sent, false});
  for (const Peer& peer : lead.peers) {
    all.push_back({peer.id, peer.name, peer.address, peer.votes, peer.match, peer.version,
                   peer.answered ? std::optional(peer.heard) : std::nullopt, peer.drift.drifts()});
  }
  return all;
}

}  // namespace onepiece::paxos
