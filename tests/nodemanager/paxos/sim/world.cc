#include "tests/nodemanager/paxos/sim/world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace onepiece::paxos::sim {
namespace {

/// The time from the healing to the first new command that is acknowledged.
constexpr Nanos kProgressBound = 10 * kSecond;
/// The time from the end of all faults to equal states everywhere.
constexpr Nanos kConvergeBound = 20 * kSecond;
constexpr Nanos kLook = 200 * kMillisecond;
constexpr std::uint64_t kMaxEvents = 2'000'000;

}  // namespace

World::World(std::uint64_t seed, WorldMutant mutant, std::ostream* story)
    : c_(Plan::Draw(seed), mutant, story),
      network_(c_, c_.plan.seats + c_.plan.spares),
      clients_(c_, network_, c_.plan.seats + c_.plan.spares),
      nemesis_(c_, network_, hosts_),
      led_(c_.plan.seats + c_.plan.spares) {
  for (std::size_t i = 0; i < c_.plan.seats + c_.plan.spares; ++i) {
    hosts_.emplace_back(c_, network_, i);
  }
}

void World::Found() {
  Members seats;
  for (std::size_t i = 0; i < c_.plan.seats; ++i) {
    seats.seats.push_back({.name = hosts_[i].name(), .address = hosts_[i].name(), .replica = {}});
  }
  for (Host& host : hosts_) {
    host.clock().Boot(0, c_.random.Between(0, 1000 * kSecond));
    if (c_.plan.drift_limit != 0) {
      host.clock().SetRate(0, c_.random.Between(-c_.plan.drift_limit, c_.plan.drift_limit));
    }
  }
  if (c_.plan.bad_clock != 0) {
    c_.tally.Count(Fault::kBadClock);
    hosts_[1].clock().SetRate(0, c_.plan.bad_clock);
  }
  hosts_[0].Format(&seats);
  hosts_[0].Start();
  for (std::size_t i = 1; i < c_.plan.seats; ++i) {
    hosts_[i].Format(nullptr);
    hosts_[i].StartAfter(c_.random.Exponential(200 * kMillisecond));
  }
  clients_.Start();
  nemesis_.Start();
  c_.events.Push(c_.plan.safety_phase, Event::Kind::kPhase);
  for (std::size_t i = 0; i < c_.plan.disasters.size(); ++i) {
    c_.events.Push(c_.plan.disasters[i].at, Event::Kind::kDisaster, 0,
                   static_cast<std::uint32_t>(i));
  }
}

void World::Handle(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kMessage:
      return hosts_[event.node].Receive(network_.TakeMessage(event.argument));
    case Event::Kind::kRequest:
      return hosts_[event.node].Receive(network_.TakeRequest(event.argument));
    case Event::Kind::kReply:
      return clients_.Receive(network_.TakeReply(event.argument));
    case Event::Kind::kTimer:
      return hosts_[event.node].TimerFired(event.argument);
    case Event::Kind::kDisk:
      return hosts_[event.node].DiskDone(event.argument);
    case Event::Kind::kWake:
      return hosts_[event.node].Wake(event.argument);
    case Event::Kind::kClient:
      return clients_.TimerFired(event.node, event.argument);
    case Event::Kind::kFault:
      return nemesis_.Strike();
    case Event::Kind::kDisaster:
      return Strike(c_.plan.disasters[event.argument].kind);
    case Event::Kind::kAttack:
      return nemesis_.FinishAttack(event.node);
    case Event::Kind::kPhase:
      return NextPhase();
  }
}

void World::CheckLeaders() {
  const Host* holder = nullptr;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    Host& host = hosts_[i];
    const Replica* replica = host.replica();
    if (replica == nullptr || host.lost() || replica->role() != Role::kLeader) continue;
    if (replica->IsReady() && led_[i] != replica->promised()) {
      led_[i] = replica->promised();
      ++c_.tally.leader_changes;
      c_.invariants.Leads(host.id(), host.life(), replica->promised());
      if (c_.trace.on()) c_.trace.Line(c_.now, host.name(), "is ready to lead");
    }
    CheckBelief(host);
    if (!replica->LeaseCovers(host.local())) continue;
    if (holder != nullptr) {
      c_.invariants.Fail(Invariants::kOneLease,
                         absl::StrCat(holder->name(), " and ", host.name(), " hold it"));
    }
    holder = &host;
    CheckPromises(host);
    if (replica->chosen() < c_.invariants.chosen()) {
      c_.invariants.Fail(Invariants::kFreshLease,
                         absl::StrCat(host.name(), " knows slot ", replica->chosen().value, " of ",
                                      c_.invariants.chosen().value));
    }
  }
}

// Checks slots that nobody has applied yet. A voter that the leader counts has accepted them under
// the leader's ballot, or knows them to be chosen.
void World::CheckBelief(const Host& leader) {
  const Ballot ballot = leader.replica()->promised();
  for (const Progress& voter : leader.replica()->progress()) {
    if (!voter.votes || voter.match <= c_.invariants.chosen()) continue;
    const auto host = std::find_if(hosts_.begin(), hosts_.end(),
                                   [&](const Host& each) { return each.id() == voter.replica; });
    if (host == hosts_.end()) continue;
    const Slot known = std::max(c_.invariants.chosen(), host->disk().state().chosen);
    for (Slot slot = known + 1; slot <= voter.match; ++slot) {
      if (c_.invariants.HasVoted(voter.replica, slot, ballot)) continue;
      return c_.invariants.Fail(Invariants::kBelief,
                                absl::StrCat(leader.name(), " counts slot ", slot.value, " of ",
                                             host->name(), ", which did not accept it"));
    }
  }
}

// A majority that grants a lease and a majority that promises another ballot have a replica in
// common. It must not do both.
void World::CheckPromises(const Host& holder) {
  const Members& members = holder.replica()->members();
  const Ballot ballot = holder.replica()->promised();
  const auto gone = std::count_if(hosts_.begin(), hosts_.end(), [&](const Host& host) {
    return host.disk().state().promised > ballot && members.Votes(host.id());
  });
  if (static_cast<std::size_t>(gone) < members.quorum()) return;
  c_.invariants.Fail(Invariants::kOneLease, absl::StrCat(holder.name(), " holds it, and ", gone,
                                                         " voters have promised a higher ballot"));
}

void World::NextPhase() {
  switch (phase_) {
    case Phase::kFaults:
      HealMajority();
      phase_ = Phase::kMajority;
      phase_since_ = c_.now;
      break;
    case Phase::kMajority:
      if (clients_.newest_acknowledged_call() > phase_since_) {
        HealAll();
        phase_ = Phase::kAll;
        phase_since_ = c_.now;
      } else if (c_.now > phase_since_ + kProgressBound) {
        c_.invariants.Fail(
            Invariants::kProgress,
            absl::StrCat("no new command was acknowledged for ", kProgressBound / kSecond, " s"));
      }
      break;
    case Phase::kAll:
      if (Together()) {
        phase_ = Phase::kOver;
      } else if (c_.now > phase_since_ + kConvergeBound) {
        c_.invariants.Fail(Invariants::kConverge,
                           absl::StrCat("not together after ", kConvergeBound / kSecond, " s"));
      }
      break;
    case Phase::kOver:
      return;
  }
  c_.events.Push(c_.now + kLook, Event::Kind::kPhase);
}

void World::HealMajority() {
  nemesis_.Stop();
  network_.Heal();
  network_.Calm();
  c_.plan.pause_in_read = 0;
  // A client that gives up too early would never see that the group works again.
  c_.plan.give_up = std::max(c_.plan.give_up, 2 * kSecond);
  const std::vector<std::size_t> core = nemesis_.ChooseCore();
  nemesis_.Isolate(core);
  clients_.AskOnly(core);
  std::string text = "heals";
  for (const std::size_t index : core) {
    hosts_[index].Repair();
    absl::StrAppend(&text, " ", hosts_[index].name());
  }
  if (c_.trace.on()) c_.trace.Line(c_.now, "world", text);
}

void World::HealAll() {
  network_.Heal();
  clients_.Stop();
  for (const Seat& seat : c_.invariants.members().seats) {
    for (Host& host : hosts_) {
      if (host.name() == seat.name && host.state() == Host::State::kOff) host.Format(nullptr);
    }
  }
  for (Host& host : hosts_) {
    if (host.lost() && host.state() != Host::State::kOff) {
      // An operator moves the old disk away.
      host.Crash(Unsynced::kLost);
      host.Format(nullptr);
    }
    if (host.version() == 1) {
      host.Crash(Unsynced::kKept);
      host.Upgrade(2);
    }
    if (host.state() != Host::State::kOff) host.Repair();
  }
  if (c_.trace.on()) c_.trace.Line(c_.now, "world", "heals all");
}

bool World::Together() const {
  const Members& members = c_.invariants.members();
  std::size_t seated = 0;
  for (const Host& host : hosts_) {
    if (!members.Votes(host.id()) || host.replica() == nullptr) continue;
    if (host.applied() != c_.invariants.chosen()) return false;
    ++seated;
  }
  return seated == members.seats.size();
}

void World::Judge() {
  clients_.Close();
  const std::vector<std::uint32_t> acknowledged = clients_.acknowledged();
  for (const Host& host : hosts_) {
    if (!c_.invariants.members().Votes(host.id())) continue;
    for (std::uint32_t client = 0; client < acknowledged.size(); ++client) {
      if (host.toy().last_number(client) >= acknowledged[client]) continue;
      c_.invariants.Fail(Invariants::kAcknowledged,
                         absl::StrCat(host.name(), " lacks command ", acknowledged[client],
                                      " of client ", client));
    }
  }
  for (const std::vector<Operation>& history : clients_.histories()) {
    if (const auto impossible = FindNonLinearisable(history)) {
      c_.invariants.Fail(Invariants::kLinearisable, *impossible);
    }
  }
}

void World::TellStates() {
  static constexpr const char* kRoles[] = {"learner", "follower", "candidate", "leader"};
  for (const Host& host : hosts_) {
    const Replica* replica = host.replica();
    const DurableState& disk = host.disk().state();
    std::string text =
        absl::StrCat("id ", absl::Hex(host.id().value >> 48), " promised ", disk.promised.round,
                     " snapshot ", disk.snapshot.index.value, " chosen ", disk.chosen.value,
                     " last ", disk.log.empty() ? 0 : disk.log.back().slot.value);
    if (replica == nullptr) {
      absl::StrAppend(&text, host.state() == Host::State::kOff ? ", in stock" : ", down");
    } else {
      absl::StrAppend(&text, ", ", kRoles[static_cast<int>(replica->role())], " applied ",
                      host.applied().value, host.paused() ? ", paused" : "", ", seats");
      for (const Seat& seat : replica->members().seats) {
        absl::StrAppend(&text, " ", seat.name, "=", absl::Hex(seat.replica.value >> 48));
      }
    }
    c_.trace.Line(c_.now, host.name(), text);
  }
}

Outcome World::Run() {
  Found();
  std::uint64_t events = 0;
  while (phase_ != Phase::kOver && !c_.invariants.violation().found()) {
    const Event event = c_.events.Pop();
    c_.now = event.at;
    Handle(event);
    CheckLeaders();
    if (++events > kMaxEvents) {
      c_.invariants.Fail(Invariants::kProgress, absl::StrCat("more than ", kMaxEvents, " events"));
    }
  }
  if (!c_.invariants.violation().found()) Judge();
  if (c_.trace.on()) TellStates();
  const bool hopeless = !nemesis_.MajorityIsLeft();
  c_.tally.slots = c_.invariants.chosen().value;
  c_.tally.membership_changes = c_.invariants.membership_changes();
  return {c_.invariants.violation(), hopeless, c_.now, c_.tally};
}

Outcome RunHistory(std::uint64_t seed, WorldMutant mutant, std::ostream* story) {
  return World(seed, mutant, story).Run();
}

}  // namespace onepiece::paxos::sim
