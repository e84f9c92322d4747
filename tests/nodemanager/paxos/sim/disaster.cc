// Disasters, and what an operator does about them (world.h).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cluster/base/generation.h"
#include "tests/nodemanager/paxos/sim/world.h"

namespace onepiece::paxos::sim {

void World::Strike(Fault disaster) {
  if (phase_ != Phase::kFaults) return;
  switch (disaster) {
    case Fault::kBackup:
      return MakeBackup();
    case Fault::kRestore:
      return Restore();
    default:
      return Recover();
  }
}

void World::MakeBackup() {
  std::vector<const Host*> may;
  for (const Host& host : hosts_) {
    // A state that is older than its group would begin the same generation once more.
    if (host.replica() != nullptr && !host.lost() && host.applied() != Slot{} &&
        base::GenerationOf(host.toy().epoch()) + 1 == c_.group &&
        host.replica()->members().Votes(host.id()))
      may.push_back(&host);
  }
  if (may.empty()) return;
  const Host& host = *c_.random.Pick(may);
  c_.tally.Count(Fault::kBackup);
  backup_ = {{.index = host.applied(), .members = {}, .state = host.machine().Save()},
             host.machine().HashAt(host.applied())};
  if (c_.trace.on())
    c_.trace.Line(c_.now, host.name(), absl::StrCat("backup of slot ", host.applied().value));
  // All that was acknowledged is in the backup of a replica whose lease covers it.
  if (!host.replica()->IsReady() || !host.replica()->LeaseCovers(host.local())) return;
  const std::vector<std::uint32_t> acknowledged = clients_.acknowledged();
  for (std::uint32_t client = 0; client < acknowledged.size(); ++client) {
    if (host.toy().last_number(client) >= acknowledged[client]) continue;
    c_.invariants.Fail(
        Invariants::kAcknowledged,
        absl::StrCat("the backup lacks command ", acknowledged[client], " of client ", client));
  }
}

std::vector<std::size_t> World::DrawStrays(const Host& first) {
  std::vector<std::size_t> strays;
  const std::vector<Members> ever = c_.invariants.PossibleMembers(Slot{});
  for (const Host& host : hosts_) {
    if (host.index() == first.index() || host.state() == Host::State::kOff || host.group() == 0 ||
        !c_.random.Chance(0.4))
      continue;
    strays.push_back(host.index());
    const bool can_lead = std::any_of(ever.begin(), ever.end(), [&](const Members& members) {
      const auto votes = std::count_if(strays.begin(), strays.end(), [&](std::size_t index) {
        return members.Votes(hosts_[index].id());
      });
      return static_cast<std::size_t>(votes) >= members.quorum();
    });
    if (can_lead) strays.pop_back();
  }
  return strays;
}

void World::Restore() {
  if (!backup_) return;
  c_.tally.Count(Fault::kRestore);
  Host& first = hosts_[static_cast<std::size_t>(c_.random.Below(c_.plan.seats))];
  Snapshot beginning = backup_->snapshot;
  for (std::size_t i = 0; i < c_.plan.seats; ++i) {
    beginning.members.seats.push_back(
        {.name = hosts_[i].name(), .address = hosts_[i].name(), .replica = {}});
  }
  const std::uint64_t known = c_.invariants.StateAfter(beginning.index);
  if (known != 0 && known != backup_->hash)
    c_.invariants.Fail(Invariants::kSameState, "a backup holds another state than its slot");
  BeginGroup(first, std::move(beginning), DrawStrays(first));
}

void World::Recover() {
  std::vector<Host*> may;
  for (Host& host : hosts_) {
    // The disk says whether it votes, as in ReadSurvivor().
    Members members = host.disk().state().snapshot.members;
    for (const AcceptedEntry& accepted : host.disk().state().log) {
      if (accepted.entry.kind == LogEntry::Kind::kMembers &&
          accepted.slot > host.disk().state().snapshot.index &&
          accepted.slot <= host.disk().state().chosen)
        members = accepted.entry.members;
    }
    if (host.state() != Host::State::kOff && !host.lost() && members.Votes(host.id()))
      may.push_back(&host);
  }
  if (may.empty()) return;
  c_.tally.Count(Fault::kRecover);
  Host& survivor = *c_.random.Pick(may);
  survivor.Crash(c_.random.Chance(0.5) ? Unsynced::kKept : Unsynced::kLost);
  const DurableState& disk = survivor.disk().state();
  Machine machine = Machine::Load(c_.plan.real_state, disk.snapshot.state.get());
  Snapshot beginning{
      .index = std::max(disk.snapshot.index, disk.chosen), .members = {}, .state = {}};
  for (const AcceptedEntry& accepted : disk.log) {
    if (accepted.slot <= disk.snapshot.index) continue;
    if (accepted.entry.kind == LogEntry::Kind::kCommand)
      machine.Apply(*accepted.entry.payload, c_.mutant);
    beginning.index = std::max(beginning.index, accepted.slot);
    if (accepted.slot != disk.chosen) continue;
    const std::uint64_t known = c_.invariants.StateAfter(disk.chosen);
    if (known != 0 && known != machine.HashAt(disk.chosen))
      c_.invariants.Fail(Invariants::kSameState, "a survivor lacks what it knew to be chosen");
  }
  beginning.state = machine.Save();
  beginning.members.seats.push_back(
      {.name = survivor.name(), .address = survivor.name(), .replica = {}});
  BeginGroup(survivor, std::move(beginning), DrawStrays(survivor));
}

void World::BeginGroup(Host& first, Snapshot beginning, const std::vector<std::size_t>& strays) {
  for (Host& host : hosts_) {
    host.Crash(c_.random.Chance(0.5) ? Unsynced::kKept : Unsynced::kLost);
    if (std::find(strays.begin(), strays.end(), host.index()) != strays.end()) {
      host.StartAfter(c_.random.Exponential(2 * kSecond));
    } else if (beginning.members.FindName(host.name()) == nullptr) {
      host.TurnOff();
    } else if (host.index() != first.index()) {
      host.Format(nullptr);
      host.StartAfter(c_.random.Exponential(500 * kMillisecond));
    }
  }
  const Machine machine = Machine::Load(c_.plan.real_state, beginning.state.get());
  DurableState state;
  state.replica = ReplicaId{c_.random.Next() | 1};
  for (Seat& seat : beginning.members.seats) {
    if (seat.name == first.name()) seat.replica = state.replica;
  }
  state.snapshot = std::move(beginning);
  state.chosen = state.snapshot.index + 1;
  LogEntry entry;
  entry.kind = LogEntry::Kind::kCommand;
  entry.version = 1;
  entry.payload = machine.EncodeGeneration();
  state.log.push_back({state.chosen, Ballot{}, std::move(entry)});
  ++c_.group;
  c_.invariants.BeginGeneration(state, machine.HashAt(state.snapshot.index));
  nemesis_.BeginGeneration();
  // A group of one grows again.
  if (std::find(c_.plan.faults.begin(), c_.plan.faults.end(), Fault::kAddSeat) ==
      c_.plan.faults.end())
    c_.plan.faults.push_back(Fault::kAddSeat);
  clients_.BeginGeneration(machine.toy());
  backup_.reset();  // It is of the lost group's time.
  first.Regroup(std::move(state), c_.group);
  first.StartAfter(c_.random.Exponential(300 * kMillisecond));
}

}  // namespace onepiece::paxos::sim
