// Broken variants of the protocol, for the simulation alone: it must find every one of them.
#pragma once

#include <cstdint>

namespace onepiece::paxos {

enum class Mutant : std::uint8_t {
  kNone,
  kAcceptLowerBallot,       ///< An acceptor takes an Accept below its promise.
  kPromiseLowerBallot,      ///< It promises a ballot that is not above its promise.
  kCountOtherBallot,        ///< A leader counts answers to another ballot.
  kChooseWithMinority,      ///< One voter too few chooses.
  kRecoverLowestBallot,     ///< Recovery proposes the entry of the lowest ballot.
  kSkipRecovery,            ///< Recovery ignores what the promises reported.
  kMatchJumpsGap,           ///< `match` counts slots that were never accepted at the ballot.
  kReadWithoutLease,        ///< Every leader that was ready believes in its lease for ever.
  kLeaseFromReceipt,        ///< The lease counts from an answer's arrival.
  kLeaseWithoutMajority,    ///< One answer is enough for the lease.
  kNoLeaseBinding,          ///< An acceptor forgets what it granted.
  kNoBindingAfterRestart,   ///< It forgets it when it starts anew.
  kNoPreVoteCheck,          ///< Pre-votes are granted while a leader is heard.
  kChosenBeyondMatch,       ///< A follower believes `chosen` of entries that it lacks.
  kMembersOverlap,          ///< A change of members while the one before is not chosen.
  kNoNewPhaseOne,           ///< No new phase 1 after a recovered change of members.
  kSnapshotKeepsLog,        ///< An installed snapshot leaves the slots below it as they were.
  kSnapshotForgetsMembers,  ///< An installed snapshot does not change the members.
  kHandOutOfOrder,          ///< Two chosen entries change places.
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
