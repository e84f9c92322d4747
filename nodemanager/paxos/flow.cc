// What a leader sends to whom: entries, heartbeats, snapshots. All of it goes into Outputs::early,
// so the disks of the leader and of its followers work at the same time.
#include <algorithm>
#include <utility>

#include "nodemanager/paxos/replica_impl.h"

namespace onepiece::paxos {

Peer* Replica::Impl::FindPeer(ReplicaId replica) {
  for (Peer& peer : lead.peers) {
    if (peer.id == replica) return &peer;
  }
  return nullptr;
}

void Replica::Impl::Broadcast(Time now, bool heartbeat, Outputs& out) {
  if (heartbeat) {
    lead.heartbeat_at = now + options.heartbeat;
    // The leader's own acceptor grants the lease too. No message is needed for that.
    acceptor.Bind(now, lead.ballot);
    lead.own_lease_sent = now;
  }
  for (Peer& peer : lead.peers) SendTo(peer, now, heartbeat, out);
}

// Returns the Accept in `out` that the peer's next slot can join, or begins a new one. So a batch
// of steps sends one message.
paxos::Accept& Replica::Impl::OpenAccept(Peer& peer, Time now, Outputs& out) {
  if (peer.open < out.early.size() && out.early[peer.open].to == peer.id &&
      peer.open_bytes < kAcceptBytes) {
    auto* open = std::get_if<paxos::Accept>(&out.early[peer.open].body);
    if (open && open->ballot == lead.ballot && open->entries.size() < kAcceptEntries &&
        open->first + open->entries.size() == peer.next) {
      open->chosen = acceptor.chosen();
      return *open;
    }
  }
  peer.open = out.early.size();
  peer.open_bytes = 0;
  paxos::Message& message = out.early.emplace_back();
  message.from = id();
  message.to = peer.id;
  return message.body.emplace<paxos::Accept>(
      paxos::Accept{lead.ballot, peer.next, {}, acceptor.chosen(), now});
}

void Replica::Impl::SendTo(Peer& peer, Time now, bool heartbeat, Outputs& out) {
  bool sent = false;
  while (peer.next <= lead.proposed && peer.in_flight.size() < (peer.probing ? 1 : kMaxInFlight)) {
    if (peer.next < acceptor.log().first()) {
      sent |= SendSnapshot(peer, now, out);
      break;
    }
    paxos::Accept& accept = OpenAccept(peer, now, out);
    // An Accept that was open before may be missing from in_flight, because an answer in the same
    // batch may have cleared that.
    if (accept.entries.empty() || peer.in_flight.empty()) {
      peer.in_flight.push_back({Slot{}, accept.sent});
    }
    while (peer.next <= lead.proposed && peer.open_bytes < kAcceptBytes &&
           accept.entries.size() < kAcceptEntries) {
      accept.entries.push_back(acceptor.log().At(peer.next).entry);
      ++peer.next;
      peer.open_bytes += accept.entries.back().bytes();
    }
    peer.in_flight.back().last = peer.next - 1;
    sent = true;
  }
  if (heartbeat && !sent) OpenAccept(peer, now, out);  // Without entries.
}

bool Replica::Impl::SendSnapshot(Peer& peer, Time now, Outputs& out) {
  // A large snapshot takes its time. It is sent again only after an answer showed that it did not
  // arrive, and after election_max.
  if (peer.snapshot != Slot{} &&
      !(peer.snapshot_missed && now - peer.snapshot_sent >= options.election_max))
    return false;
  peer.snapshot = acceptor.snapshot()->index;
  peer.snapshot_sent = now;
  peer.snapshot_missed = false;
  paxos::Message& message = out.early.emplace_back();
  message.from = id();
  message.to = peer.id;
  message.body.emplace<InstallSnapshot>(InstallSnapshot{lead.ballot, acceptor.snapshot(), now});
  return true;
}

// Takes the peer's answer to what was sent at `sent`: it has every slot up to `match`.
void Replica::Impl::Progressed(Peer& peer, Slot match, Time sent) {
  match = std::min(match, lead.proposed);
  auto& flight = peer.in_flight;
  if (!peer.newest || sent > *peer.newest) {
    // A lower match than before comes from a peer that started anew and has forgotten which slots
    // are chosen. What is on its way begins too late for it.
    if (match < peer.at) flight.clear();
    peer.newest = sent;
    peer.at = match;
  }
  peer.at = std::max(peer.at, match);
  peer.match = std::max(peer.match, peer.at);
  if (peer.snapshot != Slot{}) {
    if (peer.at >= peer.snapshot) {
      peer.snapshot = {};
    } else if (sent > peer.snapshot_sent) {
      peer.snapshot_missed = true;
    }
  }
  while (!flight.empty() && flight.front().last <= peer.at) flight.pop_front();
  // The peer answered a later message, but the one that brings its next slot has not arrived: that
  // one is lost, and sending begins again at the slot after `at`.
  if (peer.probing || (!flight.empty() && flight.front().sent < sent)) flight.clear();
  peer.probing = false;
  // `next` may also be behind: a peer may have more than this leader has sent to it.
  if (flight.empty() || peer.next <= peer.at) peer.next = peer.at + 1;
}

}  // namespace onepiece::paxos
