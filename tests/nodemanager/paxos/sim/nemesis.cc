#include "tests/nodemanager/paxos/sim/nemesis.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace onepiece::paxos::sim {
namespace {

constexpr Nanos kForEver = 1'000'000 * kSecond;
/// For less than this time a leader may believe in a replica that is gone, and give it a seat, or
/// count on it when an operator takes away another one. It believes for 700 ms, from when the last
/// answer came, which a clogged link may hold back for nearly two seconds.
constexpr Nanos kBelief = 2'700 * kMillisecond;

}  // namespace

bool Nemesis::Suffice(const std::vector<std::size_t>& hosts, const std::vector<ReplicaId>& gone,
                      const std::string& leaves) const {
  Slot known;
  for (const std::size_t index : hosts) {
    // Nobody asks a learner what it knows.
    if (!c_.invariants.members().Votes(hosts_[index].id())) continue;
    known = std::max(known, hosts_[index].disk().state().chosen);
  }
  for (Members& members : c_.invariants.PossibleMembers(known)) {
    // Whoever is named last may lose the seat, and so may whoever holds it by then.
    std::erase_if(members.seats, [&](const Seat& seat) { return seat.name == leaves; });
    const auto voters = std::count_if(hosts.begin(), hosts.end(), [&](std::size_t index) {
      return members.Votes(hosts_[index].id());
    });
    const auto more = static_cast<std::size_t>(
        std::count_if(gone.begin(), gone.end(), [&](ReplicaId id) { return !members.Votes(id); }));
    if (static_cast<std::size_t>(voters) < (members.voters() + more) / 2 + 1) return false;
  }
  return true;
}

std::vector<ReplicaId> Nemesis::JustLost() const {
  std::vector<ReplicaId> lost;
  for (const auto& [at, id] : losses_) {
    if (c_.now < at + kBelief) lost.push_back(id);
  }
  return lost;
}

std::vector<std::size_t> Nemesis::WithDisk() const {
  std::vector<std::size_t> found;
  for (const Host& host : hosts_) {
    if (host.state() != Host::State::kOff) found.push_back(host.index());
  }
  return found;
}

bool Nemesis::MajorityIsLeft() const { return Suffice(WithDisk(), {}, ""); }

bool Nemesis::MayWipe(const Host& host) const {
  // What an operator has asked for, and no message has told of, may take any seat.
  if (std::any_of(hosts_.begin(), hosts_.end(), [](const Host& other) { return other.asked(); }))
    return false;
  std::vector<std::size_t> others = WithDisk();
  std::erase(others, host.index());
  std::vector<ReplicaId> gone = JustLost();
  gone.push_back(host.id());
  return Suffice(others, gone, "");
}

bool Nemesis::MayTakeSeat(const std::string& name) const {
  std::vector<std::size_t> others = WithDisk();
  std::erase_if(others, [&](std::size_t index) { return hosts_[index].name() == name; });
  return Suffice(others, JustLost(), name);
}

Host* Nemesis::Leader() {
  for (Host& host : hosts_) {
    if (host.replica() != nullptr && host.replica()->IsReady()) return &host;
  }
  return nullptr;
}

Host* Nemesis::Victim() {
  if (c_.random.Chance(c_.plan.aim_at_leader)) {
    if (Host* leader = Leader()) return leader;
  }
  std::vector<Host*> running;
  for (Host& host : hosts_) {
    if (host.state() == Host::State::kRunning) running.push_back(&host);
  }
  return running.empty() ? nullptr : c_.random.Pick(running);
}

Host* Nemesis::FromStock() {
  for (Host& host : hosts_) {
    if (host.state() == Host::State::kOff) return &host;
  }
  return nullptr;
}

void Nemesis::Strike() {
  if (stopped_) return;
  if (!c_.plan.faults.empty()) Do(c_.random.Pick(c_.plan.faults));
  if (c_.random.Chance(0.2)) ReturnToStock();
  Next();
}

void Nemesis::Do(Fault fault) {
  const Nanos length = c_.random.Exponential(c_.plan.fault_length) + kMillisecond;
  Host* host = Victim();
  switch (fault) {
    case Fault::kPartition:
    case Fault::kOneWayPartition:
      c_.tally.Count(fault);
      return CutGroups(fault, c_.now + length);
    case Fault::kSlowLink:
    case Fault::kClog: {
      const auto from = static_cast<std::size_t>(c_.random.Below(hosts_.size()));
      const auto to = static_cast<std::size_t>(c_.random.Below(hosts_.size()));
      c_.tally.Count(fault);
      if (fault == Fault::kClog) return network_.Clog(from, to, c_.now + length);
      return network_.Slow(from, to, c_.now + length, c_.random.Exponential(150 * kMillisecond));
    }
    case Fault::kLateAnswers:
      return DelayAnswers();
    case Fault::kLeaseAttack:
      return BeginAttack();
    case Fault::kTwinLoss:
      return TwinLoss();
    case Fault::kStepDown:
    case Fault::kAddSeat:
    case Fault::kRemoveSeat:
    case Fault::kReplaceSeat:
      return Operate(fault);
    default:
      break;
  }
  if (host == nullptr) return;
  switch (fault) {
    case Fault::kCrash:
      Crash(*host);
      return host->StartAfter(length);
    case Fault::kWipe:
      Wipe(*host);
      return host->StartAfter(length);
    case Fault::kPause:
      if (host->paused()) return;
      host->Pause(length);
      break;
    case Fault::kStall:
      host->StallDisk(c_.now + length);
      break;
    case Fault::kDiskFull:
      // The host counts this fault when a write fails.
      return host->FillDisk(c_.now + length);
    case Fault::kDrift:
      if (c_.plan.bad_clock != 0 && host->index() == 1) return;
      host->clock().SetRate(c_.now, c_.random.Between(-c_.plan.drift_limit, c_.plan.drift_limit));
      break;
    case Fault::kUpgrade:
      if (host->version() != 1) return;
      host->Crash(Unsynced::kLost);
      host->Upgrade(2);
      host->StartAfter(length);
      break;
    default:
      return;
  }
  c_.tally.Count(fault);
}

void Nemesis::CutGroups(Fault fault, Nanos until) {
  std::vector<bool> side(hosts_.size());
  for (std::size_t i = 0; i < hosts_.size(); ++i) side[i] = c_.random.Chance(0.5);
  if (c_.random.Chance(c_.plan.aim_at_leader)) {
    // One side is the leader alone, or with one other host.
    Host* leader = Leader();
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      side[i] = leader != nullptr && i == leader->index();
    }
    if (c_.random.Chance(0.3)) side[c_.random.Below(hosts_.size())] = true;
  }
  if (c_.trace.on()) {
    std::string text(NameOf(fault));
    for (std::size_t i = 0; i < hosts_.size(); ++i) absl::StrAppend(&text, side[i] ? " A" : " B");
    c_.trace.Line(c_.now, "net", text);
  }
  for (std::size_t from = 0; from < hosts_.size(); ++from) {
    for (std::size_t to = 0; to < hosts_.size(); ++to) {
      if (side[from] == side[to]) continue;
      if (fault == Fault::kPartition || side[from]) network_.Cut(from, to, until);
    }
  }
}

void Nemesis::DelayAnswers() {
  const Host* leader = Leader();
  if (leader == nullptr) return;
  c_.tally.Count(Fault::kLateAnswers);
  for (const Host& host : hosts_) {
    network_.Clog(host.index(), leader->index(),
                  c_.now + c_.random.Between(700, 1800) * kMillisecond);
  }
}

void Nemesis::BeginAttack() {
  const Host* leader = Leader();
  if (leader == nullptr) return;
  const auto candidate = static_cast<std::size_t>(c_.random.Below(hosts_.size()));
  if (candidate == leader->index() || !leader->replica()->members().Votes(hosts_[candidate].id()))
    return;
  network_.Cut(leader->index(), candidate, c_.now + 1500 * kMillisecond);
  // Elections begin 400 to 700 ms after a leader was heard last.
  c_.events.Push(c_.now + c_.random.Between(250, 680) * kMillisecond, Event::Kind::kAttack,
                 candidate);
}

void Nemesis::FinishAttack(std::size_t candidate) {
  Host* leader = Leader();
  if (stopped_ || leader == nullptr || leader->index() == candidate) return;
  c_.tally.Count(Fault::kLeaseAttack);
  if (!leader->paused() && c_.random.Chance(0.3)) {
    // The leader wakes up after its lease has ended, and hears its clients before it hears of
    // another leader.
    const Nanos length = c_.random.Between(600, 2000) * kMillisecond;
    leader->Pause(length);
    for (const Host& host : hosts_) network_.Cut(host.index(), leader->index(), c_.now + length);
    return;
  }
  const bool restart = c_.random.Chance(0.7);
  for (Host& host : hosts_) {
    if (host.index() == leader->index() || host.index() == candidate) continue;
    network_.Cut(leader->index(), host.index(), c_.now + 600 * kMillisecond);
    if (!restart || host.state() != Host::State::kRunning) continue;
    host.Crash(c_.random.Chance(0.5) ? Unsynced::kKept : Unsynced::kLost);
    host.StartAfter(c_.random.Between(1, 50) * kMillisecond);
  }
}

void Nemesis::Crash(Host& host) {
  const bool corrupt = host.disk().busy() && c_.random.Chance(c_.plan.corrupt) && MayWipe(host);
  c_.tally.Count(Fault::kCrash);
  host.Crash(c_.random.Chance(0.5) ? Unsynced::kKept : Unsynced::kLost);
  if (!corrupt) return;
  Lose(host, Fault::kCorrupt);
}

void Nemesis::Wipe(Host& host) {
  if (!MayWipe(host)) return;
  host.Crash(Unsynced::kLost);
  Lose(host, Fault::kWipe);
}

// Two disks within a moment, and sometimes a third one while the first two come back.
void Nemesis::TwinLoss() {
  std::vector<std::size_t> order = WithDisk();
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[c_.random.Below(i)]);
  std::size_t lost = 0;
  for (const std::size_t index : order) {
    Host& host = hosts_[index];
    if (lost == 2 || !c_.invariants.members().Votes(host.id()) || !MayWipe(host)) continue;
    host.Crash(Unsynced::kLost);
    Lose(host, Fault::kWipe);
    host.StartAfter(c_.random.Exponential(300 * kMillisecond));
    ++lost;
  }
  if (lost == 2) c_.tally.Count(Fault::kTwinLoss);
}

void Nemesis::Lose(Host& host, Fault fault) {
  c_.tally.Count(fault);
  losses_.emplace_back(c_.now, host.id());
  host.Format(nullptr);
}

void Nemesis::Operate(Fault fault) {
  Host* leader = Leader();
  if (leader == nullptr) return;
  Command command;
  command.kind = fault;
  const std::vector<Seat>& seats = c_.invariants.members().seats;
  if (fault == Fault::kRemoveSeat || fault == Fault::kReplaceSeat) {
    if (fault == Fault::kRemoveSeat && seats.size() < c_.plan.seats) return;
    command.name = c_.random.Pick(seats).name;
    if (!MayTakeSeat(command.name)) return;
  }
  if (fault == Fault::kAddSeat || fault == Fault::kReplaceSeat) {
    Host* fresh = FromStock();
    if (fresh == nullptr) return;
    command.seat = {.name = fresh->name(), .address = fresh->name(), .replica = {}};
    fresh->Format(nullptr);
    fresh->StartAfter(c_.random.Exponential(300 * kMillisecond));
  }
  leader->Do(std::move(command));
}

void Nemesis::ReturnToStock() {
  const std::vector<Members> possible = c_.invariants.PossibleMembers(c_.invariants.chosen());
  for (Host& host : hosts_) {
    const bool seated = std::any_of(
        possible.begin(), possible.end(),
        [&host](const Members& members) { return members.FindName(host.name()) != nullptr; });
    if (seated || host.state() == Host::State::kOff || !MayWipe(host)) continue;
    host.Crash(Unsynced::kLost);
    host.TurnOff();
    losses_.emplace_back(c_.now, host.id());
  }
}

std::vector<std::size_t> Nemesis::ChooseCore() {
  std::vector<std::size_t> core = WithDisk();
  // A change that an operator asked for may still come, and may take the seat of any of them.
  if (std::any_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.changing(); })) {
    return core;
  }
  std::vector<std::size_t> order = core;
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[c_.random.Below(i)]);
  }
  for (const std::size_t leave : order) {
    std::vector<std::size_t> smaller = core;
    std::erase(smaller, leave);
    // A leader may just now give seats to hosts that stay away, because it still believes in them.
    // It may do so to all of them, one after the other: a change that it holds back until the slots
    // before it are chosen may be the first of several.
    std::vector<ReplicaId> gone = JustLost();
    for (const std::size_t index : WithDisk()) {
      const bool stays = std::find(smaller.begin(), smaller.end(), index) != smaller.end();
      if (!stays) gone.push_back(hosts_[index].id());
    }
    if (Suffice(smaller, gone, "")) core = std::move(smaller);
  }
  return core;
}

void Nemesis::Isolate(const std::vector<std::size_t>& core) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (std::find(core.begin(), core.end(), i) != core.end()) continue;
    const std::uint64_t how = c_.random.Below(3);
    if (how == 0) hosts_[i].Crash(Unsynced::kKept);
    for (const std::size_t j : core) {
      if (how != 1) network_.Cut(i, j, kForEver);
      network_.Cut(j, i, kForEver);
    }
  }
}

}  // namespace onepiece::paxos::sim
