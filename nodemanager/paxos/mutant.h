// Broken variants of the protocol. The simulation switches them on one at a time and must find each
// of them (docs/simulation.md, "Mutants").
#pragma once

#include <cstdint>

namespace onepiece::paxos {

enum class Mutant : std::uint8_t {
  kNone,
  kAcceptLowerBallot,       ///< An acceptor takes an Accept below its promise.
  kPromiseLowerBallot,      ///< An acceptor promises a ballot that is not above its promise.
  kCountOtherBallot,        ///< A leader counts answers to another ballot.
  kChooseWithMinority,      ///< A majority less one voter chooses.
  kRecoverLowestBallot,     ///< Recovery proposes the entry of the lowest ballot.
  kSkipRecovery,            ///< Recovery ignores what the promises reported.
  kMatchJumpsGap,           ///< `match` counts slots that were never accepted at the ballot.
  kReadWithoutLease,        ///< A leader that is ready believes in its lease for ever.
  kLeaseFromReceipt,        ///< The lease counts from an answer's arrival.
  kLeaseWithoutMajority,    ///< One answer is enough for the lease.
  kNoLeaseBinding,          ///< An acceptor forgets what it granted.
  kNoBindingAfterRestart,   ///< An acceptor that starts anew forgets what it granted.
  kNoPreVoteCheck,          ///< Pre-votes are granted while a leader is heard.
  kChosenBeyondMatch,       ///< A follower believes `chosen` of entries that it lacks.
  kMembersOverlap,          ///< A change of members begins before the last one is chosen.
  kNoNewPhaseOne,           ///< No new phase 1 follows a recovered change of members.
  kSnapshotKeepsLog,        ///< An installed snapshot leaves the slots below it as they were.
  kSnapshotForgetsMembers,  ///< An installed snapshot does not change the members.
  kHandOutOfOrder,          ///< Two chosen entries change places.
  kReadIndexUnconfirmed,    ///< A leader without a lease names its read index at once.
  kCount,
};

#ifdef ONEPIECE_PAXOS_MUTANTS
/// The variant that this thread's replicas follow.
inline thread_local Mutant active_mutant = Mutant::kNone;
inline bool Is(Mutant mutant) { return active_mutant == mutant; }
#else
constexpr bool Is(Mutant /*mutant*/) { return false; }
#endif

}  // namespace onepiece::paxos
