// What replicas say to each other. Any message may be lost, repeated, late or out of order.
#pragma once

#include <variant>
#include <vector>

#include "nodemanager/paxos/types.h"

namespace onepiece::paxos {

/// "Would you promise?" Changes nothing at the receiver, so a replica that comes back from a
/// partition does not depose a healthy leader (Ongaro's thesis, 9.6).
struct PreVote {
  Ballot ballot;    ///< That the sender would use.
  Slot chosen = 0;  ///< The sender's.
  Ballot released;  ///< See Prepare.
};

struct PreVoteReply {
  Ballot ballot;  ///< Of the PreVote.
  bool granted = false;
  Ballot promised;  ///< The sender's.
  Slot chosen = 0;
};

/// Phase 1a over all slots after `chosen` (Lamport, Paxos Made Simple, 2.2 and 3).
struct Prepare {
  Ballot ballot;
  Slot chosen = 0;
  /// Of a leader that gave up its lease and asked the sender to lead: a lease granted to this
  /// ballot no longer binds.
  Ballot released;
};

/// Phase 1b. Granted: `accepted` is everything that the sender has accepted after Prepare::chosen;
/// never more than a leader's window. Refused: the lease of another, a higher promise, or the
/// sender knows more chosen slots.
struct Promise {
  Ballot ballot;  ///< Of the Prepare.
  bool granted = false;
  Ballot promised;
  Slot chosen = 0;
  std::vector<AcceptedEntry> accepted;
};

/// Phase 2a for slots first, first + 1, …; also the heartbeat (`entries` empty) and the news of
/// what is chosen.
struct Accept {
  Ballot ballot;
  Slot first = 1;
  std::vector<Entry> entries;
  Slot chosen = 0;
  Time sent{};  ///< The leader's clock, echoed.
};

/// Phase 2b. Granted: every slot up to `match` is, at the sender, accepted at `ballot` or known to
/// be chosen; and the sender has granted the lease that began, for the leader, at `sent`. Refused:
/// `promised` is higher.
struct Accepted {
  Ballot ballot;  ///< Of the Accept.
  bool granted = false;
  Ballot promised;
  Slot match = 0;
  Time sent{};                ///< Of the Accept.
  Time local{};               ///< The sender's clock, to measure its drift.
  std::uint32_t version = 0;  ///< Highest Entry::version that the sender can apply.
};

/// Replaces the state of a replica whose next slot has left the leader's log. Answered by Accepted.
struct InstallSnapshot {
  Ballot ballot;
  std::shared_ptr<const Snapshot> snapshot;
  Time sent{};
};

/// From a replica that has no seat: "my name is this, send me the log". To every address it knows,
/// until it has the seat.
struct Join {
  std::string name, address;
  Slot match = 0;
  std::uint32_t version = 0;
};

/// From a leader that steps down: lead, now. Its lease has ended.
struct TakeOver {
  Ballot released;
};

struct Message {
  ReplicaId from = 0, to = 0;
  std::variant<PreVote, PreVoteReply, Prepare, Promise, Accept, Accepted, InstallSnapshot, Join,
               TakeOver>
      body;
};

}  // namespace onepiece::paxos
