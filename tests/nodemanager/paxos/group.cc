#include "tests/nodemanager/paxos/group.h"

#include <algorithm>

#include "cluster/base/check.h"

namespace onepiece::paxos {

void ApplyWrites(const Writes& writes, DurableState& disk) {
  if (writes.promise) disk.promised = writes.promised;
  if (writes.install) disk.snapshot = *writes.install;
  std::map<Slot, AcceptedEntry> log;
  for (const AcceptedEntry& entry : disk.log) log[entry.slot] = entry;
  for (const AcceptedEntry& entry : writes.accepted) log[entry.slot] = entry;
  log.erase(log.begin(), log.upper_bound(writes.drop_through));
  disk.log.clear();
  for (auto& [slot, entry] : log) disk.log.push_back(entry);
  disk.chosen = std::max(disk.chosen, writes.chosen);
}

std::shared_ptr<const std::string> Command(const std::string& text) {
  return std::make_shared<const std::string>(text);
}

Group::Group(std::size_t count, const std::function<void(ReplicaOptions&)>& given) : adjust(given) {
  Members seats;
  for (std::size_t i = 1; i <= count; ++i) {
    seats.seats.push_back({"n" + std::to_string(i), "host" + std::to_string(i), ReplicaId{i}});
  }
  for (std::size_t i = 1; i <= count; ++i) {
    DurableState disk = Replica::Bootstrap(ReplicaId{i}, seats, "n" + std::to_string(i));
    // The group begins as if all seats had been filled. members_test.cc tests the filling itself.
    disk.snapshot.members = disk.log[0].entry.members = seats;
    AddNode("n" + std::to_string(i), disk);
  }
}

Group::Node& Group::AddNode(const std::string& name, DurableState disk) {
  const ReplicaId id = disk.replica;
  Node& added = nodes_[id];
  added.options.name = name;
  added.options.address = "host" + std::to_string(id.value);
  added.options.seed = id.value;
  if (adjust) adjust(added.options);
  added.disk = std::move(disk);
  added.rate_since = now;
  added.local_then = now + std::chrono::seconds(id.value);
  Start(id);
  return added;
}

void Group::Start(ReplicaId id) {
  Node& started = node(id);
  started.applied = started.disk.snapshot.index;
  started.state.clear();
  started.replica.emplace(started.options, started.disk, LocalTime(id));
}

Time Group::LocalTime(ReplicaId id) const {
  const Node& n = nodes_.at(id);
  const double since = static_cast<double>((now - n.rate_since).count()) * n.rate;
  return n.local_then + Duration(static_cast<std::int64_t>(since));
}

void Group::SetRate(ReplicaId id, double rate) {
  node(id).local_then = LocalTime(id);
  node(id).rate_since = now;
  node(id).rate = rate;
}

void Group::Process(ReplicaId id, Outputs& out) {
  Node& n = node(id);
  Outputs done = out;
  if (out.lost_leadership) ++n.losses;
  for (const Message& message : out.early) wire_.push_back({now + latency, message});
  ApplyWrites(out.writes, n.disk);
  if (out.restore) {
    n.applied = out.restore->index;
    n.state.clear();
    ++n.restores;
  }
  for (const ChosenEntry& chosen : out.chosen) {
    ONEPIECE_CHECK(chosen.slot == n.applied + 1);
    n.applied = chosen.slot;
    n.state[chosen.slot] = chosen.entry;
    const auto [known, first] = chosen_.try_emplace(chosen.slot, chosen.entry);
    ONEPIECE_CHECK(first || known->second == chosen.entry);
  }
  const std::vector<Message> late = std::move(out.late);
  for (const Message& message : late) {
    if (message.to == id) {
      Receive(id, message);
    } else {
      wire_.push_back({now + latency, message});
    }
  }
  n.last = std::move(done);
}

void Group::Receive(ReplicaId id, const Message& message) {
  if (!nodes_.contains(id) || !node(id).replica) return;
  ++messages;
  Outputs out;
  replica(id).Receive(LocalTime(id), message, out);
  Process(id, out);
}

bool Group::Run(Duration duration, const std::function<bool()>& until) {
  const Time end = now + duration;
  while (!until || !until()) {
    Time next = wire_.empty() ? end : std::min(end, wire_.front().at);
    ReplicaId tick;
    for (auto& [id, n] : nodes_) {
      if (!n.replica) continue;
      const double wait =
          static_cast<double>((n.replica->next_deadline() - LocalTime(id)).count()) / n.rate;
      const Time due =
          now + Duration(std::max<std::int64_t>(0, static_cast<std::int64_t>(wait) + 1));
      if (due < next) {
        next = due;
        tick = id;
      }
    }
    now = std::max(now, next);
    if (now >= end) return !until;
    if (tick != ReplicaId{}) {
      Step(tick, [](Replica& r, Time t, Outputs& out) {
        r.Tick(t, out);
        return 0;
      });
      continue;
    }
    const Message message = std::move(wire_.front().message);
    wire_.pop_front();
    for (auto& [id, n] : nodes_) {
      const bool meant = message.to == id || (message.to == ReplicaId{} && message.from != id);
      Message one = message;
      one.to = id;
      if (meant && (!passes || passes(one))) Receive(id, message);
    }
  }
  return true;
}

ReplicaId Group::Leader() const {
  ReplicaId best;
  for (const auto& [id, n] : nodes_) {
    if (!n.replica || !n.replica->IsReady()) continue;
    if (best == ReplicaId{} || n.replica->promised() > nodes_.at(best).replica->promised())
      best = id;
  }
  return best;
}

ReplicaId Group::AwaitLeader(Duration duration) {
  Run(duration, [&] { return Leader() != ReplicaId{}; });
  return Leader();
}

Slot Group::Commit(const std::string& text) {
  const ReplicaId leader = AwaitLeader();
  if (leader == ReplicaId{}) return {};
  const auto slot = Step(leader, [&](Replica& r, Time t, Outputs& out) {
    return r.Propose(t, Command(text), 1, out);
  });
  if (!slot.ok()) return {};
  return Run(std::chrono::seconds(5), [&] { return node(leader).applied >= *slot; }) ? *slot
                                                                                     : Slot{};
}

}  // namespace onepiece::paxos
