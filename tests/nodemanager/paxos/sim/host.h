// One host: a replica with its disk, clock and state machine. It does what replica.h asks of the
// caller.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "nodemanager/paxos/replica.h"
#include "tests/nodemanager/paxos/sim/clock.h"
#include "tests/nodemanager/paxos/sim/disk.h"
#include "tests/nodemanager/paxos/sim/machine.h"
#include "tests/nodemanager/paxos/sim/network.h"

namespace onepiece::paxos::sim {

/// What an operator asks of the leader.
struct Command {
  Fault kind = Fault::kStepDown;  ///< One of the operator's kinds.
  std::string name;               ///< The name of the seat to remove or replace.
  Seat seat;                      ///< The new seat.
};

/// What happens to a write that is under way when the host crashes.
enum class Unsynced : std::uint8_t { kLost, kKept };

/// The loop of one process. It takes what has come in, makes one Outputs of it, writes, and goes on
/// when the write is durable. What comes meanwhile waits, and shares the next write.
class Host {
 public:
  enum class State : std::uint8_t {
    kOff,      // A machine in stock, without disk and seat.
    kDown,     // It has a disk and no process.
    kRunning,  // It has a process, which may be paused.
  };

  Host(Context& context, Network& network, std::size_t index);

  /// Gives the host an empty disk under a new id. If `group` is given, the disk begins a new group
  /// with this host in it.
  void Format(const Members* group);
  /// Gives the host the disk with which an operator begins a new group.
  void Regroup(DurableState state, std::uint64_t group);
  /// Starts a process.
  /// REQUIRES: a disk and no process.
  void Start();
  /// Ends the process and loses what it had in memory.
  void Crash(Unsynced unsynced);
  /// Puts the host back into the stock.
  /// REQUIRES: no process.
  void TurnOff() { state_ = State::kOff; }
  void Pause(Nanos length);
  void StartAfter(Nanos delay);
  void StallDisk(Nanos until) { stalled_until_ = until; }
  void FillDisk(Nanos until) { full_until_ = until; }
  /// The next process of this host has this version.
  void Upgrade(std::uint32_t version) { version_ = version; }
  /// Ends all faults of this host, and starts its process if it has none.
  /// REQUIRES: a disk.
  void Repair();

  void Receive(Sent sent);
  void Receive(const Request& request);
  void Do(Command command);
  void TimerFired(std::uint32_t generation);
  void DiskDone(std::uint32_t generation);
  void Wake(std::uint32_t generation);

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool paused() const { return paused_; }
  [[nodiscard]] std::size_t index() const { return index_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Disk& disk() const { return disk_; }
  [[nodiscard]] ReplicaId id() const { return disk_.state().replica; }
  [[nodiscard]] std::uint32_t version() const { return version_; }
  [[nodiscard]] std::uint64_t life() const { return life_; }
  [[nodiscard]] DriftClock& clock() { return clock_; }
  [[nodiscard]] Time local() const { return clock_.Local(c_.now); }
  /// The replica, or null when no process runs.
  [[nodiscard]] const Replica* replica() const { return replica_ ? &*replica_ : nullptr; }
  /// The group that its disk belongs to, or 0 when it has heard of none.
  [[nodiscard]] std::uint64_t group() const { return group_; }
  /// True while its disk is that of a lost group. What it does then binds nobody.
  [[nodiscard]] bool lost() const { return group_ != 0 && group_ != c_.group; }
  [[nodiscard]] const Machine& machine() const { return machine_; }
  [[nodiscard]] const ToyState& toy() const { return machine_.toy(); }
  [[nodiscard]] Slot applied() const { return applied_; }
  /// True while an operator's command may still change the members.
  [[nodiscard]] bool changing() const { return commands_ > 0 || change_ > applied_; }
  /// True while an operator's command waits that no message has told of yet.
  [[nodiscard]] bool asked() const {
    return commands_ > 0 || (change_ > applied_ && !c_.invariants.HasProposed(change_));
  }

 private:
  using Input = std::variant<Message, Request, Command>;
  /// A read that waits for a slot of its own to be chosen.
  struct WaitingRead {
    Slot slot;
    Request request;
  };
  /// A read at a follower, which waits for the leader's read index and then for that slot.
  struct FollowerRead {
    std::uint64_t number = 0;
    Request request;
    std::optional<Slot> index;
  };
  /// A read that has looked at the state, and whose process was stopped before it asked for the
  /// lease.
  struct StoppedRead {
    Request request;
    Result result;
  };

  /// The last answer that this process gave to a leader.
  struct Heard {
    Ballot ballot;
    Time at{};
  };

  [[nodiscard]] bool idle() const { return state_ == State::kRunning && !paused_ && !writing_; }
  /// True while a leader goes on although its disk writes. When the disk takes too long, it waits
  /// as any other does, and its group finds another leader.
  [[nodiscard]] bool overlaps() const;
  [[nodiscard]] bool Admits(const Sent& sent);
  void Send(Message message);
  void Take(Input input);
  void Pump();
  void ArmTimer();
  void Step(Input& input, Outputs& out);
  void Serve(const Request& request, Outputs& out);
  void Read(const Request& request, Outputs& out);
  void FinishRead(const Request& request, const Result& result, bool covered, Outputs& out);
  void ReadAtFollower(const Request& request, Outputs& out);
  void TakeReadIndex(const ReadIndex& answer);
  void AnswerFollowerReads();
  void Operate(const Command& command, Outputs& out);
  void Commit(Outputs out);
  void Write(Outputs out);
  void Finish(Outputs& out);
  void Restore(const Snapshot& snapshot);
  void Apply(const ChosenEntry& chosen);
  void ApplyCommand(const std::string& payload);
  void Answer(const Request& request, const Result& result);
  void Refuse(const Request& request, Reply::Kind kind);
  void Save();
  void Say(std::string_view what);
  void ForgeClock(Message& message) const;
  void Vouch(const Message& message);

  Context& c_;
  Network& network_;
  const std::size_t index_;
  const std::string name_;
  State state_ = State::kOff;
  Disk disk_;
  std::uint64_t group_ = 0;  // On the disk too.
  DriftClock clock_;
  std::uint32_t version_ = 1;
  std::uint64_t life_ = 0;

  // The state of a process:
  std::optional<Replica> replica_;
  Machine machine_;
  Slot applied_, saved_;
  std::deque<Input> inbox_;
  int commands_ = 0;   // How many Commands are in inbox_.
  Slot change_;        // The slot of the newest change of members that this leader was asked for.
  Outputs carried_;    // Writes that wait for the next urgent ones.
  Outputs in_flight_;  // What follows the write under way.
  bool writing_ = false, written_ = false;
  Nanos write_begun_ = 0;
  bool paused_ = false;
  bool outdated_ = false;               // It met an entry that this version cannot apply.
  std::vector<std::uint32_t> waiting_;  // By client: the number of the command to answer.
  std::deque<WaitingRead> reads_;       // By slot.
  std::deque<FollowerRead> follower_reads_;
  std::optional<StoppedRead> stopped_read_;
  std::optional<Heard> heard_;
  bool lease_before_ = false;  // For WorldMutant::kStaleLease.

  std::uint64_t read_number_ = 0;  // Of the last read at this follower, in all its lives.
  Nanos stalled_until_ = 0, full_until_ = 0;
  std::uint32_t generation_ = 0;  // Events of an older generation are void.
  std::uint32_t wake_ = 0;
  Nanos armed_for_ = -1;
};

}  // namespace onepiece::paxos::sim
