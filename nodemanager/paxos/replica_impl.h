// The roles of a replica around its acceptor. Private to this folder.
//
// replica.cc: the interface, messages in, timers. election.cc: pre-votes, phase 1. leader.cc: phase
// 2 and the lease. flow.cc: what is sent to whom. members.cc: seats.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nodemanager/paxos/acceptor.h"
#include "nodemanager/paxos/drift.h"
#include "cluster/base/split_mix64.h"
#include "nodemanager/paxos/replica.h"

namespace onepiece::paxos {

/// Nothing honest comes near: slots and rounds above it are ignored, so that none overflows.
inline constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 62;
/// An Accept is closed when it holds so much; the first entry always fits.
inline constexpr std::size_t kAcceptBytes = 1 << 20, kAcceptEntries = 1024;
/// Accepts on their way to one peer. More wait for answers.
inline constexpr std::size_t kMaxInFlight = 64;

/// What a leader knows of another replica.
struct Peer {
  struct InFlight {
    Slot last = 0;
    Time sent;
  };
  ReplicaId id = 0;
  std::string name, address;
  bool votes = false;
  Slot match = 0;  ///< The highest answer, for counting: what a peer has, it keeps.
  Slot at = 0;  ///< The newest answer, for sending: a peer that starts anew may name a lower one.
  std::optional<Time> newest;  ///< When that was asked.
  Slot next = 1;               ///< The slot to send.
  bool probing = true;         ///< `match` is a guess until it answers; one Accept at a time.
  std::deque<InFlight> in_flight;
  std::size_t open = 0, open_bytes = 0;  ///< Where in Outputs::early its last Accept may be.
  Slot snapshot = 0;                     ///< Index of the snapshot that is on its way; 0: none.
  Time snapshot_sent;
  bool snapshot_missed = false;  ///< It answered something later without having it.
  Time heard;  ///< When what it answered last was sent, at first when the leader began to ask.
  bool answered = false;           ///< At this ballot.
  std::optional<Time> lease_sent;  ///< Its newest grant: our clock when we asked.
  std::uint32_t version = 0;
  DriftMeter drift;
};

/// A candidate's state; votes of both phases.
struct Candidacy {
  struct Vote {
    ReplicaId replica = 0;
    Slot chosen = 0;
  };
  Ballot ballot;
  bool prepared = false;  ///< Phase 1; else pre-vote.
  std::vector<Vote> votes;
  std::vector<AcceptedEntry> found;  ///< Of slots chosen + 1 …: the highest ballot reported.
};

/// A leader's state.
struct Leadership {
  Ballot ballot;
  std::vector<Peer> peers;  ///< All but itself; voters in the order of the seats, then learners.
  Time since;
  Time heartbeat_at;
  Slot own_match = 0;  ///< What its own disk has.
  Time own_lease_sent;
  Slot proposed = 0;           ///< Last slot proposed at `ballot`.
  std::size_t open_bytes = 0;  ///< Proposed and not chosen.
  Slot ready_slot = 0;         ///< Its no-op; 0: not proposed yet.
  Slot change_slot = 0;        ///< Of a change of members that is not chosen yet; 0: none.
  bool recovers_change = false;
  std::optional<Members> change;  ///< Waits at change_slot for all before it to be chosen.
  std::size_t own_open = 0;       ///< Where in Outputs::late its last answer to itself may be.
};

class Replica::Impl {
 public:
  Impl(Options options, DurableState state, Time now);

  // replica.cc
  void Tick(Time now, Outputs& out);
  [[nodiscard]] Time next_deadline() const;
  void Receive(Time now, const Message& message, Outputs& out);
  void FinishStep(Time now, Outputs& out);
  void Become(Role role, Time now, Outputs& out);
  void Send(ReplicaId to, decltype(Message::body) body, Outputs& out) const;
  [[nodiscard]] bool IsLeader() const { return role == Role::kLeader; }
  [[nodiscard]] const Members& members() const { return acceptor.members(); }
  [[nodiscard]] ReplicaId id() const { return acceptor.id(); }

  // election.cc
  void ArmElection(Time now);
  void NoteRound(Ballot ballot);
  void Campaign(Time now, Outputs& out);
  void StartPrepare(Time now, Outputs& out);
  void BecomeLeader(Time now, Outputs& out);
  [[nodiscard]] bool CanLead() const;
  [[nodiscard]] bool HearsLeader(Time now, ReplicaId candidate, Ballot released) const;
  [[nodiscard]] bool IsStranger(ReplicaId candidate, Slot chosen) const;
  void LearnFromRefusal(Time now, Ballot promised, Slot chosen, Outputs& out);
  void On(Time now, ReplicaId from, const PreVote& m, Outputs& out);
  void On(Time now, ReplicaId from, const PreVoteReply& m, Outputs& out);
  void On(Time now, ReplicaId from, const Prepare& m, Outputs& out);
  void On(Time now, ReplicaId from, const Promise& m, Outputs& out);
  void On(Time now, ReplicaId from, const TakeOver& m, Outputs& out);

  // acceptance: replica.cc
  void On(Time now, ReplicaId from, const Accept& m, Outputs& out);
  void On(Time now, ReplicaId from, const InstallSnapshot& m, Outputs& out);
  void HearLeader(Time now, ReplicaId from, Ballot ballot, Outputs& out);
  void Answer(Time now, ReplicaId to, Ballot ballot, Time sent, Outputs& out) const;

  // leader.cc
  void On(Time now, ReplicaId from, const Accepted& m, Outputs& out);
  absl::StatusOr<Slot> Propose(Time now, Entry entry, Outputs& out);
  Slot Append(Time now, Entry entry, Outputs& out);
  void TryChoose(Time now, Outputs& out);
  void AfterChosen(Time now, Outputs& out);
  void LeadTick(Time now, Outputs& out);
  [[nodiscard]] bool HearsMajority(Time now) const;
  [[nodiscard]] bool IsReady() const;
  [[nodiscard]] bool LeaseCovers(Time now) const;
  absl::Status StepDown(Time now, Outputs& out);
  [[nodiscard]] std::uint32_t common_version() const;

  // flow.cc
  void Broadcast(Time now, bool heartbeat, Outputs& out);
  void SendTo(Peer& peer, Time now, bool heartbeat, Outputs& out);
  bool SendSnapshot(Peer& peer, Time now, Outputs& out);
  paxos::Accept& OpenAccept(Peer& peer, Time now, Outputs& out);
  void Progressed(Peer& peer, Slot match, Time sent);
  Peer* FindPeer(ReplicaId replica);

  // members.cc
  void On(Time now, ReplicaId from, const Join& m, Outputs& out);
  void SyncPeers(Time now);
  void TellAddress(Time now, ReplicaId to, Outputs& out);
  void FillSeats(Time now, Outputs& out);
  [[nodiscard]] bool CanApplyRest(const Peer& peer) const;
  [[nodiscard]] bool QuorumAnswers(Time now, const Members& after) const;
  absl::StatusOr<Slot> Change(Time now, Members after, Outputs& out);
  absl::StatusOr<Slot> AddSeat(Time now, const Seat& seat, Outputs& out);
  absl::StatusOr<Slot> RemoveSeat(Time now, const std::string& name, Outputs& out);
  absl::StatusOr<Slot> ReplaceSeat(Time now, const std::string& name, const Seat& seat,
                                   Outputs& out);
  [[nodiscard]] absl::Status CheckVacates(Time now, const std::string& name,
                                          const Members& after) const;
  [[nodiscard]] std::vector<Progress> progress() const;

  const Options options;
  Acceptor acceptor;
  Random random;
  Role role = Role::kLearner;
  Slot handed;                  // Last slot handed out.
  std::uint64_t max_round = 0;  // Highest seen anywhere.
  bool refuses_to_lead = false;
  ReplicaId leader = 0;
  Ballot leader_ballot;
  Time heard;                     // From `leader`.
  Ballot released;                // A lease that its leader gave up, and told us.
  Time deadline;                  // Of elections; of a learner's next Join.
  Time tell_address_at;           // Again, while its seat names another one.
  unsigned failed_campaigns = 0;  // Since a leader was heard.
  Candidacy candidacy;
  Leadership lead;
};

}  // namespace onepiece::paxos
