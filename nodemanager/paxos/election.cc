// Pre-votes and phase 1.
#include <algorithm>
#include <utility>

#include "nodemanager/paxos/mutant.h"
#include "nodemanager/paxos/replica_impl.h"

namespace onepiece::paxos {

void Replica::Impl::ArmElection(Time now) {
  const auto spread =
      static_cast<std::uint64_t>((options.election_max - options.election_min).count());
  deadline = now + options.election_min + Duration(random.Below(spread + 1));
}

void Replica::Impl::NoteRound(Ballot ballot) { max_round = std::max(max_round, ballot.round); }

bool Replica::Impl::CanLead() const {
  return members().Votes(id()) && !refuses_to_lead && max_round + 1 < kMaxCount;
}

bool Replica::Impl::HearsLeader(Time now, ReplicaId candidate, Ballot given_up) const {
  if (IsLeader()) return true;
  return leader != 0 && leader != candidate && leader_ballot != given_up &&
         now - heard < options.election_min;
}

// A candidate that has no seat, as far as we know, and knows no more than we do has no seat.
bool Replica::Impl::IsStranger(ReplicaId candidate, Slot chosen) const {
  return chosen <= acceptor.chosen() && !members().Votes(candidate);
}

void Replica::Impl::Campaign(Time now, Outputs& out) {
  leader = 0;
  Become(Role::kFollower, now, out);
  if (failed_campaigns > 0) {
    // It may have lost its seat and not know.
    Send(0, Join{options.name, options.address, acceptor.match(), options.version}, out);
  }
  if (!CanLead()) return;
  const Ballot ballot{max_round + 1, id()};
  if (acceptor.IsBound(now, ballot, released)) {
    deadline = acceptor.bound_until();
    return;
  }
  ++failed_campaigns;
  role = Role::kCandidate;
  candidacy.ballot = ballot;
  candidacy.votes.push_back({id(), acceptor.chosen()});
  if (candidacy.votes.size() >= members().quorum()) return StartPrepare(now, out);
  for (const Seat& seat : members().seats) {
    if (seat.replica == 0 || seat.replica == id()) continue;
    Send(seat.replica, PreVote{ballot, acceptor.chosen(), released}, out);
  }
}

void Replica::Impl::On(Time now, ReplicaId from, const PreVote& m, Outputs& out) {
  if (from == id()) return;
  NoteRound(m.ballot);
  const bool hears = HearsLeader(now, from, m.released) && !Is(Mutant::kNoPreVoteCheck);
  const bool free = !hears && !acceptor.IsBound(now, m.ballot, m.released);
  const bool granted =
      free && acceptor.KnowsEnough(m.chosen, !CanLead()) && !IsStranger(from, m.chosen);
  if (free && acceptor.chosen() > m.chosen && role == Role::kFollower && CanLead()) {
    // The candidate cannot win, and we can: no need to wait for our own time.
    deadline = std::min(deadline, now + Duration(random.Below(options.heartbeat.count())));
  }
  Send(from, PreVoteReply{m.ballot, granted, acceptor.promised(), acceptor.chosen()}, out);
}

// A leader that lost its seat by a change that it recovered may be the only one that knows the
// change to be chosen: it cannot lead any more, and those who can need its vote until they know.
void Replica::Impl::LearnFromRefusal(Time now, Ballot promised, Slot chosen, Outputs& out) {
  if (IsLeader() || !acceptor.LearnFrom(promised, chosen, out)) return;
  if (role == Role::kCandidate) Become(Role::kFollower, now, out);
}

void Replica::Impl::On(Time now, ReplicaId from, const PreVoteReply& m, Outputs& out) {
  NoteRound(m.promised);
  if (!m.granted) return LearnFromRefusal(now, m.promised, m.chosen, out);
  if (role != Role::kCandidate || candidacy.prepared || m.ballot != candidacy.ballot) return;
  auto& votes = candidacy.votes;
  if (!members().Votes(from) || std::any_of(votes.begin(), votes.end(),
                                            [&](const auto& vote) { return vote.replica == from; }))
    return;
  votes.push_back({from, m.chosen});
  if (votes.size() >= members().quorum()) StartPrepare(now, out);
}

void Replica::Impl::StartPrepare(Time now, Outputs& out) {
  const Ballot ballot{max_round + 1, id()};
  if (!CanLead() || !acceptor.MayPromise(now, ballot, acceptor.chosen(), released)) {
    return Become(Role::kFollower, now, out);
  }
  NoteRound(ballot);
  acceptor.Promise(ballot, out);
  role = Role::kCandidate;
  leader = 0;
  candidacy = {};
  candidacy.ballot = ballot;
  candidacy.prepared = true;
  ArmElection(now);
  for (const Seat& seat : members().seats) {
    if (seat.replica == 0 || seat.replica == id()) continue;
    Send(seat.replica, Prepare{ballot, acceptor.chosen(), released}, out);
  }
  // Its own promise counts when it is on the disk; what it accepted, it has here.
  candidacy.found = acceptor.log().After(acceptor.chosen());
  Send(id(), paxos::Promise{ballot, true, ballot, acceptor.chosen(), {}}, out);
}

void Replica::Impl::On(Time now, ReplicaId from, const Prepare& m, Outputs& out) {
  if (from == id()) return;
  NoteRound(m.ballot);
  paxos::Promise promise{m.ballot, false, acceptor.promised(), acceptor.chosen(), {}};
  if (!IsStranger(from, m.chosen) &&
      acceptor.MayPromise(now, m.ballot, m.chosen, m.released, !CanLead())) {
    Become(Role::kFollower, now, out);
    leader = 0;
    acceptor.Promise(m.ballot, out);
    promise.granted = true;
    promise.promised = m.ballot;
    promise.accepted = acceptor.log().After(m.chosen);
  }
  Send(from, std::move(promise), out);
}

void Replica::Impl::On(Time now, ReplicaId from, const paxos::Promise& m, Outputs& out) {
  NoteRound(m.promised);
  if (!m.granted) return LearnFromRefusal(now, m.promised, m.chosen, out);
  if (role != Role::kCandidate || !candidacy.prepared || m.ballot != candidacy.ballot) return;
  auto& votes = candidacy.votes;
  if (!members().Votes(from) || std::any_of(votes.begin(), votes.end(),
                                            [&](const auto& vote) { return vote.replica == from; }))
    return;
  // A log has no gaps, and begins at or before the slot after what its replica knows to be chosen.
  for (std::size_t i = 0; i < m.accepted.size(); ++i) {
    if (m.accepted[i].slot != acceptor.chosen() + 1 + i || m.accepted[i].ballot >= m.ballot) return;
  }
  auto& found = candidacy.found;
  for (std::size_t i = 0; i < m.accepted.size(); ++i) {
    const AcceptedEntry& reported = m.accepted[i];
    if (i == found.size()) {
      found.push_back(reported);
    } else if (Is(Mutant::kRecoverLowestBallot) ? reported.ballot < found[i].ballot
                                                : reported.ballot > found[i].ballot) {
      found[i] = reported;
    }
  }
  votes.push_back({from, m.chosen});
  if (votes.size() >= members().quorum()) BecomeLeader(now, out);
}

void Replica::Impl::BecomeLeader(Time now, Outputs& out) {
  Candidacy won = std::move(candidacy);
  candidacy = {};
  role = Role::kLeader;
  leader = id();
  leader_ballot = won.ballot;
  failed_campaigns = 0;
  lead = {};
  lead.ballot = won.ballot;
  lead.since = now;
  lead.proposed = lead.own_match = acceptor.chosen();
  lead.own_lease_sent = now;
  SyncPeers(now);
  for (const Candidacy::Vote& vote : won.votes) {
    if (Peer* peer = FindPeer(vote.replica)) {
      peer->probing = false;
      peer->match = peer->at = std::min(vote.chosen, acceptor.chosen());
      peer->next = peer->at + 1;
    }
  }
  if (Is(Mutant::kSkipRecovery)) won.found.clear();
  for (AcceptedEntry& found : won.found) {
    const bool change = found.entry.kind == Entry::Kind::kMembers;
    const Slot slot = Append(now, std::move(found.entry), out);
    if (change && !Is(Mutant::kNoNewPhaseOne)) {
      // Who votes on what follows is not known before this is chosen.
      lead.change_slot = slot;
      lead.recovers_change = true;
      break;
    }
  }
  if (!lead.recovers_change) lead.ready_slot = Append(now, Entry{}, out);
  Broadcast(now, true, out);
}

void Replica::Impl::On(Time now, ReplicaId from, const TakeOver& m, Outputs& out) {
  if (from == id() || m.released != acceptor.promised() || IsLeader() || !CanLead()) return;
  released = m.released;
  StartPrepare(now, out);
}

}  // namespace onepiece::paxos
