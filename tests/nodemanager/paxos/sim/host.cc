#include "tests/nodemanager/paxos/sim/host.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace onepiece::paxos::sim {
namespace {

constexpr std::size_t kMaxInbox = 4096;
/// At most this many steps share one write.
constexpr int kMaxBatch = 64;
constexpr Nanos kRestart = 100 * kMillisecond;
/// Older reads at a follower are given up. Their clients ask somebody else by then.
constexpr std::size_t kMaxFollowerReads = 64;

}  // namespace

Host::Host(Context& context, Network& network, std::size_t index)
    : c_(context),
      network_(network),
      index_(index),
      name_(absl::StrCat("n", index)),
      version_(context.plan.rolling_upgrade ? 1 : 2) {}

void Host::Say(std::string_view what) {
  if (c_.trace.on()) c_.trace.Line(c_.now, name_, what);
}

void Host::Format(const Members* group) {
  DurableState state;
  state.replica = ReplicaId{c_.random.Next() | 1};
  if (c_.mutant == WorldMutant::kKeepIdAfterWipe && id() != ReplicaId{}) state.replica = id();
  if (group != nullptr) {
    state = Replica::Bootstrap(state.replica, *group, name_);
    c_.invariants.Bootstrapped(state);
  }
  group_ = group != nullptr ? c_.group : 0;
  network_.Registered(state.replica, index_);
  if (c_.trace.on())
    Say(absl::StrCat("has an empty disk, id ", absl::Hex(state.replica.value >> 48)));
  disk_.Format(std::move(state));
  state_ = State::kDown;
}

void Host::Regroup(DurableState state, std::uint64_t group) {
  network_.Registered(state.replica, index_);
  if (c_.trace.on())
    Say(absl::StrCat("begins group ", group, " after slot ", state.snapshot.index.value, ", id ",
                     absl::Hex(state.replica.value >> 48)));
  disk_.Format(std::move(state));
  group_ = group;
  state_ = State::kDown;
}

void Host::Start() {
  if (state_ != State::kDown) return;
  state_ = State::kRunning;
  ++life_;
  if (c_.mutant == WorldMutant::kForgetPromise) disk_.ForgetPromise();
  // A machine that boots has another clock. A process that only starts again meets the same clock.
  if (c_.random.Chance(0.5)) clock_.Boot(c_.now, c_.random.Between(0, 1000 * kSecond));
  ReplicaOptions options;
  options.name = name_;
  options.address = name_;
  options.seed = c_.random.Next();
  options.version = version_;
  options.lease = Duration(c_.plan.lease);
  options.keep_slots = c_.plan.keep_slots;
  options.window_slots = c_.plan.window_slots;
  replica_.emplace(std::move(options), disk_.state(), local());
  machine_ = Machine::Load(c_.plan.real_state, disk_.state().snapshot.state.get());
  applied_ = saved_ = disk_.state().snapshot.index;
  waiting_.assign(c_.plan.clients, 0);
  if (c_.trace.on())
    Say(absl::StrCat("starts, version ", version_, ", after slot ", applied_.value));
  Pump();
}

void Host::Crash(Unsynced unsynced) {
  if (state_ != State::kRunning) return;
  if (disk_.busy()) {
    if (unsynced == Unsynced::kKept) {
      if (!lost()) c_.invariants.BecomesDurable(id(), disk_.state(), disk_.under_way());
      const std::string wrong = disk_.End();
      if (!wrong.empty()) c_.invariants.Fail(Invariants::kDisk, wrong);
    } else {
      disk_.Drop();
    }
    c_.tally.Count(unsynced == Unsynced::kKept ? Fault::kUnsyncedKept : Fault::kUnsyncedLost);
  }
  Say(unsynced == Unsynced::kKept ? "crashes, its write was done" : "crashes");
  state_ = State::kDown;
  replica_.reset();
  inbox_.clear();
  commands_ = 0;
  change_ = {};
  carried_ = {};
  in_flight_ = {};
  reads_.clear();
  follower_reads_.clear();
  stopped_read_.reset();
  heard_.reset();
  lease_before_ = false;
  writing_ = written_ = paused_ = outdated_ = false;
  armed_for_ = -1;
  ++generation_;
}

void Host::StartAfter(Nanos delay) {
  c_.events.Push(c_.now + delay, Event::Kind::kWake, index_, ++wake_);
}

void Host::Pause(Nanos length) {
  if (state_ != State::kRunning) return;
  Say("is paused");
  paused_ = true;
  lease_before_ = c_.mutant == WorldMutant::kStaleLease && replica_->LeaseCovers(local());
  StartAfter(length);
}

void Host::Wake(std::uint32_t generation) {
  if (generation != wake_) return;
  if (state_ == State::kDown) return Start();
  if (outdated_) {
    Crash(Unsynced::kLost);
    return Start();
  }
  if (!paused_) return;
  Say("goes on");
  paused_ = false;
  if (written_) {
    written_ = false;
    writing_ = false;
    Outputs done = std::move(in_flight_);
    Finish(done);
  }
  if (stopped_read_) {
    const StoppedRead read = *stopped_read_;
    stopped_read_.reset();
    FinishRead(read.request, read.result, replica_->LeaseCovers(local()), carried_);
  }
  Pump();
  lease_before_ = false;
}

void Host::Repair() {
  stalled_until_ = full_until_ = 0;
  if (disk_.busy()) c_.events.Push(c_.now + c_.plan.fsync, Event::Kind::kDisk, index_, generation_);
  if (state_ == State::kDown) Start();
  if (paused_) Wake(wake_);
}

void Host::Send(Message message) {
  if (!lost()) c_.invariants.Says(message, disk_.state());
  network_.Send(index_, {group_, std::move(message)});
}

// What the hello of a stream says in the product. Replicas of two groups do not talk. One that
// belongs to none may only ask to join, and joins the group of the first that answers it.
bool Host::Admits(const Sent& sent) {
  if (c_.mutant == WorldMutant::kNoGroupFence) {
    if (sent.group == c_.group) group_ = c_.group;
    return true;
  }
  if (sent.group == group_) return group_ != 0;
  if (sent.group == 0) return std::holds_alternative<Join>(sent.message.body);
  if (group_ != 0 || sent.message.to != id()) return false;
  group_ = sent.group;
  Say("joins its group");
  return false;
}

void Host::Receive(Sent sent) {
  if (state_ != State::kRunning || !Admits(sent)) return;
  Message& message = sent.message;
  ++c_.tally.delivered;
  if (c_.trace.on()) {
    const auto from = network_.HostOf(message.from);
    Say(absl::StrCat("<- n", from ? *from : 99, "  ", Describe(message)));
  }
  Take(std::move(message));
}

void Host::Receive(const Request& request) {
  if (state_ == State::kRunning && request.group == c_.group) Take(request);
}

void Host::Do(Command command) {
  if (state_ != State::kRunning) return;
  ++commands_;
  Take(std::move(command));
}

void Host::Take(Input input) {
  if (inbox_.size() >= kMaxInbox && !std::holds_alternative<Command>(input)) return;
  inbox_.push_back(std::move(input));
  Pump();
}

void Host::TimerFired(std::uint32_t generation) {
  if (generation != generation_) return;
  armed_for_ = -1;
  Pump();
}

bool Host::overlaps() const {
  return state_ == State::kRunning && !paused_ && writing_ && replica_->role() == Role::kLeader &&
         c_.now - write_begun_ < ReplicaOptions().election_min.count();
}

void Host::Pump() {
  while (idle() || overlaps()) {
    const bool due = local() >= replica_->next_deadline();
    const bool waits = writing_ || (!carried_.writes.urgent() && carried_.late.empty());
    if (inbox_.empty() && !due && waits && carried_.early.empty()) break;
    Outputs out = std::move(carried_);
    carried_ = {};
    for (int steps = 0; steps < kMaxBatch && !inbox_.empty() && !paused_; ++steps) {
      Input input = std::move(inbox_.front());
      inbox_.pop_front();
      Step(input, out);
    }
    if (local() >= replica_->next_deadline()) replica_->Tick(local(), out);
    Commit(std::move(out));
  }
  ArmTimer();
}

void Host::ArmTimer() {
  if (!idle() && !overlaps()) return;
  const Nanos at = std::max(clock_.When(replica_->next_deadline()), c_.now + kMicrosecond);
  if (armed_for_ >= c_.now && armed_for_ <= at) return;
  armed_for_ = at;
  c_.events.Push(at, Event::Kind::kTimer, index_, generation_);
}

void Host::Step(Input& input, Outputs& out) {
  if (const auto* message = std::get_if<Message>(&input)) {
    replica_->Receive(local(), *message, out);
  } else if (const auto* request = std::get_if<Request>(&input)) {
    Serve(*request, out);
  } else {
    Operate(std::get<Command>(input), out);
  }
}

void Host::Serve(const Request& request, Outputs& out) {
  if (outdated_) return Refuse(request, Reply::Kind::kNotLeader);
  const bool reads = request.kind == Operation::Kind::kRead;
  if (!replica_->IsReady()) {
    return reads ? ReadAtFollower(request, out) : Refuse(request, Reply::Kind::kNotLeader);
  }
  if (reads) return Read(request, out);
  const auto slot =
      replica_->Propose(local(), machine_.Encode(request, replica_->common_version(), c_.random),
                        replica_->common_version(), out);
  if (!slot.ok()) return Refuse(request, Reply::Kind::kLater);
  waiting_[request.client] = request.number;
}

void Host::Read(const Request& request, Outputs& out) {
  const Result result = toy().Read(request.key);
  if (!stopped_read_ && c_.random.Chance(c_.plan.pause_in_read)) {
    c_.tally.Count(Fault::kPauseInRead);
    stopped_read_ = {request, result};
    Pause(c_.random.Exponential(500 * kMillisecond));
    return;
  }
  FinishRead(request, result, lease_before_ || replica_->LeaseCovers(local()), out);
}

void Host::FinishRead(const Request& request, const Result& result, bool covered, Outputs& out) {
  if (covered || c_.mutant == WorldMutant::kReadWithoutLease) {
    ++c_.tally.lease_reads;
    return Answer(request, result);
  }
  const auto slot = replica_->Propose(local(), nullptr, 1, out);
  if (!slot.ok()) return Refuse(request, Reply::Kind::kNotLeader);
  reads_.push_back({*slot, request});
}

void Host::ReadAtFollower(const Request& request, Outputs& out) {
  if (!replica_->AskReadIndex(++read_number_, out)) return Refuse(request, Reply::Kind::kNotLeader);
  if (follower_reads_.size() >= kMaxFollowerReads) follower_reads_.pop_front();
  follower_reads_.push_back({read_number_, request, std::nullopt});
}

void Host::TakeReadIndex(const ReadIndex& answer) {
  const auto read = std::ranges::find_if(
      follower_reads_, [&](const FollowerRead& waits) { return waits.number == answer.request; });
  if (read == follower_reads_.end()) return;
  if (answer.granted) {
    read->index = answer.index;
    return;
  }
  Refuse(read->request, Reply::Kind::kNotLeader);
  follower_reads_.erase(read);
}

void Host::AnswerFollowerReads() {
  std::erase_if(follower_reads_, [&](const FollowerRead& read) {
    if (!read.index || *read.index > applied_) return false;
    Answer(read.request, toy().Read(read.request.key));
    return true;
  });
}

void Host::Operate(const Command& command, Outputs& out) {
  --commands_;
  absl::StatusOr<Slot> slot = Slot{};
  switch (command.kind) {
    case Fault::kAddSeat:
      slot = replica_->AddSeat(local(), command.seat, out);
      break;
    case Fault::kRemoveSeat:
      slot = replica_->RemoveSeat(local(), command.name, out);
      break;
    case Fault::kReplaceSeat:
      slot = replica_->ReplaceSeat(local(), command.name, command.seat, out);
      break;
    default:
      if (const absl::Status status = replica_->StepDown(local(), out); !status.ok()) slot = status;
  }
  if (slot.ok()) {
    c_.tally.Count(command.kind);
    change_ = std::max(change_, *slot);
  }
  if (c_.trace.on()) {
    Say(absl::StrCat(NameOf(command.kind), " ", command.name, " ", command.seat.name, ": ",
                     slot.status().ToString()));
  }
}

void Host::Commit(Outputs out) {
  for (Message& message : out.early) Send(std::move(message));
  out.early.clear();
  // A majority's disks hold what is chosen, so it need not wait for this one.
  Outputs chosen;
  chosen.restore = std::exchange(out.restore, nullptr);
  chosen.chosen = std::exchange(out.chosen, {});
  chosen.lost_leadership = std::exchange(out.lost_leadership, false);
  chosen.read_indexes = std::exchange(out.read_indexes, {});
  if (writing_) {
    carried_ = std::move(out);
  } else if (out.writes.urgent()) {
    Write(std::move(out));
  } else {
    carried_.writes = std::exchange(out.writes, {});
    Finish(out);
  }
  Finish(chosen);
}

void Host::Write(Outputs out) {
  disk_.Begin(out.writes);
  write_begun_ = c_.now;
  Nanos done = c_.now + c_.plan.fsync + c_.random.Exponential(c_.plan.fsync_jitter);
  if (stalled_until_ > done) done = stalled_until_;
  c_.events.Push(done, Event::Kind::kDisk, index_, generation_);
  writing_ = true;
  in_flight_ = std::move(out);
  in_flight_.writes = {};
  if (c_.mutant == WorldMutant::kSkipFsync) {
    Outputs soon = std::move(in_flight_);
    in_flight_ = {};
    Finish(soon);
  }
}

void Host::DiskDone(std::uint32_t generation) {
  if (generation != generation_ || !disk_.busy()) return;
  if (full_until_ > c_.now) {
    // A replica must not go on after a write that failed.
    c_.tally.Count(Fault::kDiskFull);
    Say("cannot write: the disk is full");
    disk_.Drop();
    Crash(Unsynced::kLost);
    return StartAfter(kRestart);
  }
  if (!lost()) c_.invariants.BecomesDurable(id(), disk_.state(), disk_.under_way());
  const bool installs = disk_.under_way().install != nullptr;
  const std::string wrong = disk_.End();
  if (!wrong.empty())
    return c_.invariants.Fail(Invariants::kDisk, absl::StrCat(name_, ": ", wrong));
  if (installs) saved_ = disk_.state().snapshot.index;
  if (paused_) {
    written_ = true;
    return;
  }
  writing_ = false;
  Outputs done = std::move(in_flight_);
  in_flight_ = {};
  Finish(done);
  Pump();
}

void Host::ForgeClock(Message& message) const {
  auto* accepted = std::get_if<Accepted>(&message.body);
  if (accepted != nullptr) accepted->local = Time(Duration(c_.now));
}

// Checks what pre-votes are for: a process that answered a leader a moment ago helps nobody else to
// lead. No lease need forbid that, and no state would be wrong; only the service would suffer. If
// the leader itself asks for a vote, it no longer leads.
void Host::Vouch(const Message& message) {
  if (const auto* accepted = std::get_if<Accepted>(&message.body)) {
    if (accepted->granted && message.to != id()) heard_ = {accepted->ballot, accepted->local};
  } else if (const auto* promise = std::get_if<Promise>(&message.body)) {
    if (promise->granted) heard_.reset();
  } else if (std::holds_alternative<PreVote>(message.body)) {
    heard_.reset();
  } else if (const auto* takes_over = std::get_if<TakeOver>(&message.body)) {
    c_.invariants.GivesUp(takes_over->released);
  } else if (const auto* vote = std::get_if<PreVoteReply>(&message.body)) {
    // The leader itself asked, whatever the answer is. From then on nobody needs to wait for it.
    if (heard_ && vote->ballot.replica == heard_->ballot.replica) heard_.reset();
    if (!vote->granted || !heard_) return;
    const Duration since = local() - heard_->at;
    if (since >= ReplicaOptions().election_min || c_.invariants.IsGivenUp(heard_->ballot)) return;
    c_.invariants.Fail(Invariants::kHeard,
                       absl::StrCat(name_, " answered the leader of round ", heard_->ballot.round,
                                    " ", since.count() / kMillisecond, " ms before"));
  }
}

void Host::Finish(Outputs& out) {
  for (Message& message : out.late) {
    if (!lost()) Vouch(message);
    if (c_.mutant == WorldMutant::kDriftUnchecked) ForgeClock(message);
    if (message.to != id()) {
      Send(std::move(message));
      continue;
    }
    if (!lost()) c_.invariants.Says(message, disk_.state());
    inbox_.push_back(std::move(message));
  }
  // The slot of a read's no-op may by now hold another leader's entry, which was chosen before the
  // read came.
  if (out.lost_leadership && c_.mutant != WorldMutant::kReadAfterLoss) {
    for (const WaitingRead& read : reads_) Refuse(read.request, Reply::Kind::kNotLeader);
    reads_.clear();
  }
  if (out.restore != nullptr) Restore(*out.restore);
  if (c_.mutant == WorldMutant::kApplyOutOfOrder && out.chosen.size() > 1) {
    std::swap(out.chosen[0].entry, out.chosen[1].entry);
  }
  for (const ChosenEntry& chosen : out.chosen) {
    if (outdated_) break;
    Apply(chosen);
  }
  if (out.lost_leadership) {
    waiting_.assign(waiting_.size(), 0);
    change_ = {};
  }
  for (const ReadIndex& answer : out.read_indexes) TakeReadIndex(answer);
  AnswerFollowerReads();
  if (!outdated_ && applied_ >= saved_ + c_.plan.snapshot_every) Save();
}

void Host::Save() {
  ++c_.tally.snapshots_taken;
  saved_ = applied_;
  replica_->TakeSnapshot(applied_, machine_.Save(), carried_);
}

void Host::Restore(const Snapshot& snapshot) {
  if (snapshot.index <= applied_) {
    return c_.invariants.Fail(Invariants::kContiguous,
                              absl::StrCat(name_, " goes back from slot ", applied_.value,
                                           " to a snapshot of ", snapshot.index.value));
  }
  ++c_.tally.snapshots_installed;
  machine_ = Machine::Load(c_.plan.real_state, snapshot.state.get());
  applied_ = snapshot.index;
  if (!lost()) c_.invariants.HasState(id(), applied_, machine_.HashAt(applied_));
}

void Host::Apply(const ChosenEntry& chosen) {
  if (chosen.slot != applied_ + 1) {
    return c_.invariants.Fail(
        Invariants::kContiguous,
        absl::StrCat(name_, " is given slot ", chosen.slot.value, " after slot ", applied_.value));
  }
  if (chosen.entry.version > version_) {
    if (replica_->members().Votes(id())) {
      c_.invariants.Fail(Invariants::kVersion,
                         absl::StrCat(name_, ", which votes, is given slot ", chosen.slot.value,
                                      " of a newer version"));
    }
    outdated_ = true;
    version_ = 2;
    replica_->RefuseToLead(local(), carried_);
    return StartAfter(kRestart);
  }
  if (!lost()) c_.invariants.Applies(id(), chosen.slot, chosen.entry);
  if (c_.invariants.violation().found()) return;
  applied_ = chosen.slot;
  if (chosen.entry.kind == LogEntry::Kind::kCommand) {
    ApplyCommand(*chosen.entry.payload);
  }
  if (!lost()) c_.invariants.HasState(id(), applied_, machine_.HashAt(applied_));
  while (!reads_.empty() && reads_.front().slot <= applied_) {
    const Request& request = reads_.front().request;
    if (reads_.front().slot == applied_) {
      ++c_.tally.log_reads;
      Answer(request, toy().Read(request.key));
    }
    reads_.pop_front();
  }
}

void Host::ApplyCommand(const std::string& payload) {
  const std::uint64_t before = toy().epoch();
  const std::optional<Machine::Done> done = machine_.Apply(payload, c_.mutant);
  if (const std::string& wrong = machine_.wrong(); !wrong.empty() && !lost())
    c_.invariants.Fail(Invariants::kSameState, absl::StrCat(name_, ": ", wrong));
  if (!done) return;
  if (toy().epoch() == before) ++c_.tally.retries_remembered;
  if (waiting_[done->request.client] != done->request.number) return;
  waiting_[done->request.client] = 0;
  Answer(done->request, done->result);
}

void Host::Answer(const Request& request, const Result& result) {
  network_.Send(Reply{request.client, request.number, Reply::Kind::kDone, result, std::nullopt});
}

void Host::Refuse(const Request& request, Reply::Kind kind) {
  std::optional<std::size_t> hint;
  if (replica_->leader() != ReplicaId{} && replica_->leader() != id()) {
    hint = network_.HostOf(replica_->leader());
  }
  network_.Send(Reply{request.client, request.number, kind, {}, hint});
}

}  // namespace onepiece::paxos::sim
