#include "tests/nodemanager/paxos/sim/plan.h"

#include <algorithm>

namespace onepiece::paxos::sim {
namespace {

/// A fault is on in a share `on` of the seeds, and there its chance is drawn too. So a seed without
/// one fault shows what that fault would hide (as FoundationDB's "buggify").
double Swarm(Random& random, double on, double low, double high) {
  const double drawn = random.LogBetween(low, high);
  return random.Chance(on) ? drawn : 0;
}

void DrawSize(Random& random, Plan& plan) {
  const std::uint64_t size = random.Below(20);
  plan.seats = size == 0 ? 1 : size < 13 ? 3 : 5;
  plan.spares = 1 + random.Below(2);
  plan.clients = random.Chance(0.03) ? 100 + random.Below(200) : 1 + random.Below(8);
  plan.safety_phase = random.Between(14, 22) * kSecond;
  const double operations_a_second = random.LogBetween(8, 60);
  plan.think = static_cast<Nanos>(static_cast<double>(plan.clients) / operations_a_second *
                                  static_cast<double>(kSecond));
  plan.patience = random.Between(150, 800) * kMillisecond;
  plan.give_up = random.Between(400, 4000) * kMillisecond;
  plan.hedge = Swarm(random, 0.3, 0.02, 0.5);
  plan.reads = 0.2 + 0.6 * random.Unit();
  plan.snapshot_every = static_cast<std::uint64_t>(random.Between(8, 80));
  plan.keep_slots = static_cast<std::size_t>(random.Between(2, 40));
  plan.window_slots = static_cast<std::size_t>(random.Between(4, 128));
  plan.rolling_upgrade = random.Chance(0.3);
}

void DrawTiming(Random& random, Plan& plan) {
  plan.latency = static_cast<Nanos>(random.LogBetween(0.05, 8) * kMillisecond);
  plan.jitter = static_cast<Nanos>(random.LogBetween(0.02, 6) * kMillisecond);
  plan.fsync = static_cast<Nanos>(random.LogBetween(0.05, 6) * kMillisecond);
  plan.fsync_jitter = static_cast<Nanos>(random.LogBetween(0.02, 6) * kMillisecond);
  // The lease may be shorter than election_min, so that hearing a leader does not hide what only
  // the lease forbids.
  plan.lease =
      static_cast<Nanos>((random.Chance(0.5) ? random.LogBetween(20, 400) : 400) * kMillisecond);
  plan.drift_limit = random.Chance(0.5) ? random.Between(1, 5'000) : 0;
  if (random.Chance(0.1)) {
    plan.bad_clock =
        random.Chance(0.5) ? random.Between(100'000, 3'000'000) : -random.Between(100'000, 700'000);
  }
}

/// An attack on leases needs leaders that lead for long, because clocks must be watched before they
/// count, and elections that are much shorter than a lease.
void DrawLeaseAttack(Random& random, Plan& plan) {
  std::erase_if(plan.faults, [&random](Fault) { return !random.Chance(0.2); });
  plan.faults.push_back(Fault::kLeaseAttack);
  plan.fault_gap = static_cast<Nanos>(random.LogBetween(1200, 3000) * kMillisecond);
  for (Nanos* delay : {&plan.latency, &plan.jitter, &plan.fsync, &plan.fsync_jitter}) {
    *delay = std::min(*delay, kMillisecond);
  }
  if (random.Chance(0.3)) plan.bad_clock = random.Between(500'000, 3'000'000);
}

/// These are drawn from a stream of their own, so that all else in a seed stays as it was without
/// them.
void DrawDisasters(std::uint64_t seed, Plan& plan) {
  Random random(seed * 2 + 2);
  if (random.Chance(0.2)) plan.faults.push_back(Fault::kTwinLoss);
  plan.real_state = random.Chance(0.05);
  if (!random.Chance(0.15)) return;
  const std::uint64_t count = 1 + random.Below(2);
  const Nanos part = plan.safety_phase / static_cast<Nanos>(count + 1);
  for (std::uint64_t i = 1; i <= count; ++i) {
    const Nanos at = static_cast<Nanos>(i) * part + random.Between(-part / 4, part / 4);
    const bool restore = random.Chance(0.5);
    if (restore)
      plan.disasters.push_back({at - random.Between(kMillisecond, part / 2), Fault::kBackup});
    plan.disasters.push_back({at, restore ? Fault::kRestore : Fault::kRecover});
  }
}

}  // namespace

const char* NameOf(Fault fault) {
  static constexpr std::array<const char*, kFaultCount> names = {"loss",
                                                                 "duplicate",
                                                                 "reorder",
                                                                 "partition",
                                                                 "one-way partition",
                                                                 "slow link",
                                                                 "clog",
                                                                 "late answers",
                                                                 "crash",
                                                                 "pause",
                                                                 "pause in a read",
                                                                 "upgrade",
                                                                 "unsynced lost",
                                                                 "unsynced kept",
                                                                 "corrupt disk",
                                                                 "wiped disk",
                                                                 "disk stall",
                                                                 "disk full",
                                                                 "drift",
                                                                 "bad clock",
                                                                 "lease attack",
                                                                 "step down",
                                                                 "add seat",
                                                                 "remove seat",
                                                                 "replace seat",
                                                                 "twin loss",
                                                                 "backup",
                                                                 "restore",
                                                                 "recover"};
  return names[static_cast<std::size_t>(fault)];
}

const char* NameOf(WorldMutant mutant) {
  static constexpr std::array<const char*, static_cast<std::size_t>(WorldMutant::kCount)> names = {
      "none",
      "skip-fsync",
      "forget-promise",
      "keep-id-after-wipe",
      "read-without-lease",
      "stale-lease",
      "read-after-loss",
      "apply-out-of-order",
      "forget-retries",
      "drift-unchecked",
      "no-group-fence",
      "same-generation"};
  return names[static_cast<std::size_t>(mutant)];
}

Plan Plan::Draw(std::uint64_t seed) {
  Random random(seed * 2 + 1);
  Plan plan;
  plan.seed = seed;
  DrawSize(random, plan);
  DrawTiming(random, plan);
  plan.loss = Swarm(random, 0.5, 0.001, 0.15);
  plan.duplicate = Swarm(random, 0.5, 0.001, 0.2);
  plan.reorder = Swarm(random, 0.5, 0.001, 0.1);
  plan.reorder_delay = static_cast<Nanos>(random.LogBetween(5, 1500) * kMillisecond);
  plan.corrupt = Swarm(random, 0.3, 0.05, 0.5);
  plan.pause_in_read = Swarm(random, 0.3, 0.002, 0.05);
  plan.fault_gap = static_cast<Nanos>(random.LogBetween(150, 1500) * kMillisecond);
  plan.fault_length = static_cast<Nanos>(random.LogBetween(50, 2500) * kMillisecond);
  plan.aim_at_leader = random.Unit();
  for (const Fault fault : {Fault::kPartition, Fault::kOneWayPartition, Fault::kSlowLink,
                            Fault::kClog, Fault::kLateAnswers, Fault::kCrash, Fault::kPause,
                            Fault::kWipe, Fault::kStall, Fault::kDiskFull, Fault::kStepDown,
                            Fault::kAddSeat, Fault::kRemoveSeat, Fault::kReplaceSeat}) {
    if (random.Chance(0.4)) plan.faults.push_back(fault);
  }
  if (random.Chance(0.2)) DrawLeaseAttack(random, plan);
  if (plan.drift_limit != 0) plan.faults.push_back(Fault::kDrift);
  if (plan.rolling_upgrade) plan.faults.push_back(Fault::kUpgrade);
  DrawDisasters(seed, plan);
  return plan;
}

void Tally::Add(const Tally& other) {
  delivered += other.delivered;
  leader_changes += other.leader_changes;
  commands += other.commands;
  reads += other.reads;
  unknown += other.unknown;
  lease_reads += other.lease_reads;
  log_reads += other.log_reads;
  retries_remembered += other.retries_remembered;
  snapshots_taken += other.snapshots_taken;
  snapshots_installed += other.snapshots_installed;
  membership_changes += other.membership_changes;
  slots += other.slots;
  for (std::size_t i = 0; i < kFaultCount; ++i) fired[i] += other.fired[i];
}

}  // namespace onepiece::paxos::sim
