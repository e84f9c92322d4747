// Pre-votes and phase 1.
#include <algorithm>
#include <utility>

#include "nodemanager/paxos/mutant.h"
#include "nodemanager/paxos/replica_impl.h"

namespace onepiece::paxos {

// The random part keeps followers that lost the same leader from campaigning at the same time.
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
  return leader != ReplicaId{} && leader != candidate && leader_ballot != given_up &&
         now - heard < options.election_min;
}

// True when the candidate certainly has no seat. This replica knows at least as many chosen slots,
// so its members are at least as new as those that the candidate knows.
bool Replica::Impl::IsStranger(ReplicaId candidate, Slot chosen) const {
  return chosen <= acceptor.chosen() && !members().Votes(candidate);
}

void Replica::Impl::Campaign(Time now, Outputs& out) {
  leader = {};
  Become(Role::kFollower, now, out);
  if (failed_campaigns > 0) {
    // This replica may have lost its seat without knowing. The leader, if there is one, then feeds
    // it as a learner.
    Send(ReplicaId{}, Join{options.name, options.address, acceptor.match(), options.version}, out);
  }
  if (!CanLead()) return;
  const Ballot ballot{max_round + 1, id()};
  // Its own acceptor is bound by the lease too, and would not promise the ballot.
  if (acceptor.IsBound(now, ballot, released)) {
    deadline = acceptor.bound_until();
    return;
  }
  ++failed_campaigns;
  role = Role::kCandidate;
  candidacy.ballot = ballot;
  candidacy.votes.push_back({id(), acceptor.chosen()});
  // A lone voter goes straight to phase 1.
  if (candidacy.votes.size() >= members().quorum()) return StartPrepare(now, out);
  for (const Seat& seat : members().seats) {
    if (seat.replica == ReplicaId{} || seat.replica == id()) continue;
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
    // The candidate cannot win, because it knows less. This replica can, so it campaigns soon and
    // does not wait for its own election time.
    deadline = std::min(deadline, now + Duration(random.Below(options.heartbeat.count())));
  }
  Send(from, PreVoteReply{m.ballot, granted, acceptor.promised(), acceptor.chosen()}, out);
}

// A refusal teaches what is chosen. A leader that recovers the change which takes its own seat may
// be the only one that knows the change to be chosen. It cannot lead afterwards, and those who can
// lead need its vote until they know of the change.
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
  leader = {};
  candidacy = {};
  candidacy.ballot = ballot;
  candidacy.prepared = true;
  ArmElection(now);
  for (const Seat& seat : members().seats) {
    if (seat.replica == ReplicaId{} || seat.replica == id()) continue;
    Send(seat.replica, Prepare{ballot, acceptor.chosen(), released}, out);
  }
  // Its own promise counts like any other's, after it is durable. It need not report what this
  // replica accepted, because `found` holds that already.
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
    leader = {};
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
  // An honest promise reports consecutive slots, because a log has no gaps and begins at or before
  // the slot after what its replica knows to be chosen. It reports only ballots below the one that
  // it promises. Any other promise is ignored.
  for (std::size_t i = 0; i < m.accepted.size(); ++i) {
    if (m.accepted[i].slot != acceptor.chosen() + 1 + i || m.accepted[i].ballot >= m.ballot) return;
  }
  // For each slot the entry of the highest ballot counts: an entry that may already be chosen is
  // among those of any majority, under the highest ballot (Paxos Made Simple, 2.2).
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
  // A vote says how far its sender knows the log to be chosen, so there is no need to probe.
  for (const Candidacy::Vote& vote : won.votes) {
    if (Peer* peer = FindPeer(vote.replica)) {
      peer->probing = false;
      peer->match = peer->at = std::min(vote.chosen, acceptor.chosen());
      peer->next = peer->at + 1;
    }
  }
  if (Is(Mutant::kSkipRecovery)) won.found.clear();
  for (AcceptedEntry& found : won.found) {
    const bool change = found.entry.kind == LogEntry::Kind::kMembers;
    const Slot slot = Append(now, std::move(found.entry), out);
    if (change && !Is(Mutant::kNoNewPhaseOne)) {
      // Recovery stops here: nobody knows who votes on later slots before this change is chosen.
      // AfterChosen() then begins phase 1 anew.
      lead.change_slot = slot;
      lead.recovers_change = true;
      break;
    }
  }
  if (!lead.recovers_change) lead.ready_slot = Append(now, LogEntry{}, out);
  Broadcast(now, true, out);
}

void Replica::Impl::On(Time now, ReplicaId from, const TakeOver& m, Outputs& out) {
  // `released` differs from the promise when the message is late and another ballot came since.
  if (from == id() || m.released != acceptor.promised() || IsLeader() || !CanLead()) return;
  released = m.released;
  StartPrepare(now, out);
}

}  // namespace onepiece::paxos
