// The roles of a replica around its acceptor. Private to this folder.
//
//   replica.cc    the interface, incoming messages, timers, the follower's part of phase 2
//   election.cc   pre-votes and phase 1
//   leader.cc     the leader's part of phase 2, and the lease
//   flow.cc       what a leader sends to whom
//   members.cc    seats
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/split_mix64.h"
#include "nodemanager/paxos/acceptor.h"
#include "nodemanager/paxos/drift.h"
#include "nodemanager/paxos/replica.h"

namespace onepiece::paxos {

/// Slots and rounds of this size or more are ignored, so that none overflows. No honest replica
/// comes near.
inline constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 62;
inline constexpr Slot kSlotLimit{kMaxCount};
/// An Accept that holds this much takes no more entries. The first entry always fits.
inline constexpr std::size_t kAcceptBytes = 1 << 20, kAcceptEntries = 1024;
/// How many Accepts may be on their way to one peer. What is proposed meanwhile waits for an
/// answer, and then goes out as one. A peer that syncs one Accept needs only the next one at hand,
/// and larger batches cost everybody less.
inline constexpr std::size_t kMaxInFlight = 4;

/// What a leader knows of another replica.
struct Peer {
  /// An Accept that has not been answered.
  struct InFlight {
    Slot last;  ///< Its last slot.
    Time sent;
  };
  ReplicaId id;
  std::string name, address;
  bool votes = false;
  /// The highest `match` that it answered. The leader counts it, because a peer keeps what it has.
  Slot match;
  /// The newest `match` that it answered. The leader goes on sending from there. A peer that starts
  /// anew may name a lower one than before.
  Slot at;
  std::optional<Time> newest;  ///< When the leader asked for `at`.
  Slot next = kFirstSlot;      ///< The next slot to send.
  bool probing = true;         ///< `at` is a guess until it answers: one Accept at a time.
  std::deque<InFlight> in_flight;
  /// Index in Outputs::early of its last Accept, if that is still there, and the bytes in it.
  std::size_t open = 0, open_bytes = 0;
  Slot snapshot;  ///< Index of the snapshot that is on its way, or 0.
  Time snapshot_sent;
  bool snapshot_missed = false;  ///< It answered something later and did not have the snapshot.
  /// When the leader sent what the peer answered last; before the first answer, when the leader
  /// began to send.
  Time heard;
  bool answered = false;           ///< It has answered this leader at this ballot.
  std::optional<Time> lease_sent;  ///< Its newest grant, by the leader's clock when it asked.
  std::uint32_t version = 0;
  DriftMeter drift;
};

/// A candidate's state, in the pre-vote and in phase 1.
struct Candidacy {
  struct Vote {
    ReplicaId replica;
    Slot chosen;
  };
  Ballot ballot;
  bool prepared = false;  ///< True in phase 1, false in the pre-vote.
  std::vector<Vote> votes;
  /// The entries of slots chosen + 1, chosen + 2, …: for each slot the reported one of the highest
  /// ballot.
  std::vector<AcceptedEntry> found;
};

/// A follower's read that waits for a no-op of the leader's own to be chosen.
struct FollowerRead {
  ReplicaId from;
  std::uint64_t request = 0;
  Slot slot;  ///< That of the no-op.
};
/// How many of them may wait. More are refused.
inline constexpr std::size_t kMaxFollowerReads = 64;

/// A leader's state.
struct Leadership {
  Ballot ballot;
  std::vector<Peer> peers;  ///< All but itself: voters in the order of seats, then learners.
  Time since;
  Time heartbeat_at;
  Slot own_match;  ///< Slots up to it are durable on its own disk.
  Time own_lease_sent;
  Slot proposed;                 ///< Last slot that was proposed at `ballot`.
  std::size_t open_bytes = 0;    ///< Bytes proposed and not yet chosen.
  Slot ready_slot;               ///< The slot of its first no-op, or 0 before it is proposed.
  Slot change_slot;              ///< The slot of an unchosen change of members, or 0.
  bool recovers_change = false;  ///< An earlier leader proposed the change at change_slot.
  /// A change that is not proposed yet, because not all slots before change_slot are chosen.
  std::optional<Members> change;
  /// Index in Outputs::late of its last answer to itself, if that is still there.
  std::size_t own_open = 0;
  std::deque<FollowerRead> reads;  ///< In the order of their slots.
};

/// The replica behind the interface. Its members are public because only Replica can name the
/// class.
class Replica::Impl {
 public:
  Impl(ReplicaOptions options, DurableState state, Time now);

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

  // The follower's part of phase 2: replica.cc
  void On(Time now, ReplicaId from, const Accept& m, Outputs& out);
  void On(Time now, ReplicaId from, const InstallSnapshot& m, Outputs& out);
  void HearLeader(Time now, ReplicaId from, Ballot ballot, Outputs& out);
  void Answer(Time now, ReplicaId to, Ballot ballot, Time sent, Outputs& out) const;

  // leader.cc
  void On(Time now, ReplicaId from, const Accepted& m, Outputs& out);
  absl::StatusOr<Slot> Propose(Time now, LogEntry entry, Outputs& out);
  Slot Append(Time now, LogEntry entry, Outputs& out);
  void TryChoose(Time now, Outputs& out);
  void On(Time now, ReplicaId from, const ReadIndexRequest& m, Outputs& out);
  void On(Time now, ReplicaId from, const ReadIndex& m, Outputs& out);
  void AnswerReads(Outputs& out);
  /// A leader that ends answers the reads that still wait.
  void RefuseReads(Outputs& out);
  void AfterChosen(Time now, Outputs& out);
  /// Appends the change of members that waits in `lead.change`.
  void AppendChange(Time now, Outputs& out);
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

  const ReplicaOptions options;
  Acceptor acceptor;
  base::SplitMix64 random;
  Role role = Role::kLearner;
  Slot handed;                  // The last slot that was handed out.
  std::uint64_t max_round = 0;  // The highest round seen anywhere.
  bool refuses_to_lead = false;
  ReplicaId leader;  // 0: none is known.
  Ballot leader_ballot;
  Time heard;                     // When `leader` was heard last.
  Ballot released;                // The ballot of a lease that its leader gave up for us.
  Time deadline;                  // When to campaign; when a learner sends its next Join.
  Time tell_address_at;           // When to say again that the seat's address is wrong.
  unsigned failed_campaigns = 0;  // Since a leader was heard.
  Candidacy candidacy;
  Leadership lead;
};

}  // namespace onepiece::paxos
