#include "tests/database/simulation/nemesis.h"

#include <iterator>
#include <vector>

#include "tests/database/simulation/database.h"
#include "tests/database/simulation/instance.h"
#include "tests/database/simulation/proxy.h"

namespace onepiece::simulation {
namespace {

using namespace std::chrono_literals;

template <typename Nodes>
std::string AnyOf(const Nodes& nodes, World& world) {
  return std::next(nodes.begin(), static_cast<std::ptrdiff_t>(world.Pick(nodes.size())))->first;
}

}  // namespace

std::string Nemesis::AnyDatabase() const { return AnyOf(cluster_.databases, world_); }
std::string Nemesis::AnyInstance() const { return AnyOf(cluster_.instances, world_); }
std::string Nemesis::AnyProxy() const { return AnyOf(cluster_.proxies, world_); }

void Nemesis::Begin(Duration lasts) {
  until_ = lasts;
  Again(world_.Between(1s, 10s), &Nemesis::StrikeDatabase);
  if (world_.Chance(0.7)) Again(world_.Between(1s, 10s), &Nemesis::StrikeInstance);
  if (world_.Chance(0.5)) Again(world_.Between(1s, 10s), &Nemesis::StrikeProxy);
  if (world_.Chance(0.4)) Again(world_.Between(1s, 10s), &Nemesis::StrikeLink);
  // Two databases that are apart may tell two ends, so most histories keep them together.
  splits_ = world_.Chance(0.35);
  if (world_.Chance(0.4)) Again(world_.Between(1s, 10s), &Nemesis::DelayTables);
  if (world_.Chance(0.3)) world_.loss = 0.01;
  if (world_.Chance(0.3)) world_.doubt = 0.01;
  if (world_.loss > 0) ++faults_["lossy histories"];
  if (world_.doubt > 0) ++faults_["histories with lost answers"];
  world_.After(until_, [this] { world_.loss = world_.doubt = 0; });
}

void Nemesis::Again(Duration pause, void (Nemesis::*strike)()) {
  world_.After(pause, [this, strike] {
    if (!IsOver()) (this->*strike)();
  });
}

void Nemesis::Start(const std::string& node) {
  if (world_.At(node).alive) return;
  if (cluster_.databases.contains(node)) cluster_.databases.at(node)->Start();
  if (cluster_.instances.contains(node)) cluster_.instances.at(node)->Start();
  if (cluster_.proxies.contains(node)) cluster_.proxies.at(node)->Start();
}

void Nemesis::KillFor(const std::string& node, Duration lasts) {
  if (!world_.At(node).alive) return;
  ++faults_["kills"];
  cluster_.ledger.Killed(node);
  world_.Kill(node);
  world_.After(lasts, [this, node] { Start(node); });
}

void Nemesis::PauseFor(const std::string& node, Duration lasts) {
  if (!world_.At(node).alive) return;
  ++faults_["pauses"];
  world_.Pause(node);
  world_.After(lasts, [this, node] { world_.Continue(node); });
}

// One database is struck at a time, and the next one only when the last one has caught up.
void Nemesis::StrikeDatabase() {
  const std::string id = AnyDatabase();
  const std::string other = AnyDatabase();
  const Duration lasts = world_.Between(500ms, world_.Chance(0.1) ? 30s : 8s);
  const auto kind = world_.Pick(5);
  if (splits_ && world_.Chance(0.5)) {
    PartFor(lasts);
  } else if (kind < 2) {
    KillFor(id, lasts);
  } else if (kind < 4 || other == id || !splits_) {
    PauseFor(id, lasts);
  } else {
    // Both are alive and each may tell an end of its own.
    cluster_.ledger.split = true;
    ++faults_["databases cut off from each other"];
    world_.Cut(id, other);
    world_.After(lasts, [this, id, other] { world_.Join(id, other); });
  }
  Again(lasts + world_.Between(8s, 15s), &Nemesis::StrikeDatabase);
}

void Nemesis::StrikeInstance() {
  const Duration lasts = world_.Between(500ms, 8s);
  if (world_.Chance(0.5)) {
    KillFor(AnyInstance(), lasts);
  } else {
    PauseFor(AnyInstance(), lasts);
  }
  Again(world_.Between(1s, 10s), &Nemesis::StrikeInstance);
}

void Nemesis::StrikeProxy() {
  const Duration lasts = world_.Between(500ms, 8s);
  if (world_.Chance(0.5)) {
    KillFor(AnyProxy(), lasts);
  } else {
    PauseFor(AnyProxy(), lasts);
  }
  Again(world_.Between(2s, 15s), &Nemesis::StrikeProxy);
}

void Nemesis::StrikeLink() {
  const std::string a = world_.Chance(0.7) ? AnyInstance() : AnyProxy();
  const std::string b = world_.Chance(0.5)   ? AnyInstance()
                        : world_.Chance(0.5) ? AnyDatabase()
                        : world_.Chance(0.5) ? AnyProxy()
                                             : std::string(kNodeManager);
  const Duration lasts = world_.Between(500ms, 8s);
  if (a != b) {
    ++faults_["links cut"];
    world_.Cut(a, b);
    world_.After(lasts, [this, a, b] { world_.Join(a, b); });
  }
  Again(lasts + world_.Between(1s, 10s), &Nemesis::StrikeLink);
}

// The cluster falls into two parts. Clients and the NodeManager reach both.
void Nemesis::PartFor(Duration lasts) {
  std::vector<std::string> left, right;
  const auto deal = [&](const auto& nodes) {
    for (const auto& [id, node] : nodes) (world_.Chance(0.5) ? left : right).push_back(id);
  };
  deal(cluster_.databases);
  deal(cluster_.instances);
  deal(cluster_.proxies);
  cluster_.ledger.split = true;
  ++faults_["partitions"];
  for (const std::string& a : left) {
    for (const std::string& b : right) {
      if (world_.IsCut(a, b)) continue;
      world_.Cut(a, b);
      world_.After(lasts, [this, a, b] { world_.Join(a, b); });
    }
  }
}

void Nemesis::DelayTables() {
  const std::string node = world_.Chance(0.4)   ? AnyInstance()
                           : world_.Chance(0.5) ? AnyProxy()
                                                : AnyDatabase();
  ++faults_["late tables"];
  world_.Tell(node + " hears tables late");
  cluster_.manager.Delay(node, world_.Between(500ms, 6s));
  world_.After(world_.Between(5s, 15s),
               [this, node] { cluster_.manager.Delay(node, Duration::zero()); });
  Again(world_.Between(2s, 15s), &Nemesis::DelayTables);
}

}  // namespace onepiece::simulation
