#include "nodemanager/simulator/simulate_output.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cluster/base/status.h"

namespace onepiece::simulator {
namespace {

terminal::Json ToJson(const Percentiles& values) {
  return {{"mean", values.mean},
          {"p50", values.p50},
          {"p95", values.p95},
          {"p99", values.p99},
          {"max", values.max}};
}

terminal::Json ToJson(const Outcome& outcome) {
  const SimulationResult& r = outcome.result;
  terminal::Json pools = terminal::Json::array();
  for (const PoolResult& pool : r.pools) {
    pools.push_back({{"pool", pool.id},
                     {"devices_per_instance", pool.devices},
                     {"mean_instances", pool.mean_instances},
                     {"utilization", pool.utilization},
                     {"reserved_gpu_s", pool.device_s},
                     {"jobs", pool.jobs}});
  }
  return {{"policy", outcome.policy},
          {"placement", outcome.placement_text},
          {"offered", r.offered},
          {"accepted", r.accepted},
          {"rejected", r.rejected},
          {"refusals", r.refusals},
          {"done", r.done},
          {"failed", r.failed},
          {"in_flight", r.in_flight},
          {"throughput", r.throughput},
          {"latency_s", ToJson(r.latency)},
          {"queued_inside_s", ToJson(r.queued)},
          {"slo_attainment", r.attainment},
          {"reserved_gpu_s", r.reserved_device_s},
          {"reserved_gpu_s_per_job", r.reserved_per_job},
          {"busy_gpu_s", r.busy_device_s},
          {"moves", r.moves},
          {"reverted_moves", r.reverts},
          {"deaths", r.deaths},
          {"jobs_given_again", r.given_again},
          {"failed_loads", r.failed_loads},
          {"parked_loads", r.parked_loads},
          {"weights_bytes_mean", r.resident_bytes_mean},
          {"weights_bytes_peak", r.resident_bytes_peak},
          {"policy_detail", r.policy_detail},
          {"pools", std::move(pools)}};
}

constexpr double kGiB = 1024.0 * 1024 * 1024;

std::string Row(const Outcome& outcome) {
  const SimulationResult& r = outcome.result;
  const double busy = r.reserved_device_s > 0 ? r.busy_device_s / r.reserved_device_s : 0;
  return absl::StrFormat(
      "%-12s %9.4f %8.1f %8.1f %8.1f %7.1f %% %9.1f %7.1f %% %8u %6u %9.0f  %s\n", outcome.policy,
      r.throughput, r.latency.p50, r.latency.p95, r.latency.p99, 100 * r.attainment,
      r.reserved_per_job, 100 * busy, r.rejected, r.moves, r.resident_bytes_mean / kGiB,
      outcome.placement_text);
}

// What went wrong, as far as anything did.
std::string Troubles(const Outcome& outcome) {
  const SimulationResult& r = outcome.result;
  if (r.deaths + r.failed_loads + r.reverts + r.parked_loads == 0) return "";
  return absl::StrFormat(
      "  %u deaths (%u jobs given again), %u loads failed, %u found their weights, %u of %u moves "
      "came back\n",
      r.deaths, r.given_again, r.failed_loads, r.parked_loads, r.reverts, r.moves);
}

std::string PoolRows(const Outcome& outcome) {
  std::string text = absl::StrFormat("\n%-16s %5s %15s %12s\n", outcome.policy + ": pool", "GPUs",
                                     "instances, mean", "utilisation");
  for (const PoolResult& pool : outcome.result.pools) {
    absl::StrAppendFormat(&text, "  %-14s %5d %15.2f %10.1f %%\n", pool.id, pool.devices,
                          pool.mean_instances, 100 * pool.utilization);
  }
  text += Troubles(outcome);
  if (!outcome.result.policy_detail.empty())
    absl::StrAppend(&text, "  at the end: ", outcome.result.policy_detail, "\n");
  return text;
}

std::string RecordedText(const SimulatedCase& what, const std::vector<Outcome>& outcomes) {
  if (what.recorded == nullptr) return "";
  std::string text = "From the recording:\n";
  for (const std::string& line : what.recorded->taken) absl::StrAppend(&text, "  ", line, "\n");
  text += "Not in it, or not replayed:\n";
  for (const std::string& line : what.recorded->missing) absl::StrAppend(&text, "  ", line, "\n");
  absl::StrAppendFormat(&text, "In reality %u jobs succeeded, %.2f s each on average",
                        what.recorded->done, what.recorded->mean_latency_s);
  for (const Outcome& outcome : outcomes) {
    absl::StrAppendFormat(&text, "; %s: %u, %.2f s", outcome.policy, outcome.result.done,
                          outcome.result.latency.mean);
  }
  return text + "\n\n";
}

std::string Assumptions(const SimulatedCase& what) {
  return absl::StrFormat(
      "%d GPUs, P = %d with ideal sequence parallelism, weights whole on every GPU of an instance",
      what.settings.devices(), what.settings.degree());
}

std::string OracleLine(const OracleAnswer& oracle, const std::vector<Outcome>& outcomes) {
  if (!oracle.has_value()) return "";
  if (!oracle->ok()) return "oracle       none: " + base::Message(oracle->status()) + "\n";
  const OracleResult& best = **oracle;
  std::string text = absl::StrFormat(
      "%-12s %9.4f  no policy ends more: the best of all placements for each %.0f s, moves for "
      "nothing\n",
      "oracle", best.throughput, best.interval_s);
  for (const Outcome& outcome : outcomes) {
    if (outcome.policy == "monolithic" || best.throughput <= 0) continue;
    absl::StrAppendFormat(&text, "  gap of %s: %.1f %%\n", outcome.policy,
                          100 * (1 - outcome.result.throughput / best.throughput));
  }
  return text;
}

}  // namespace

terminal::Json SimulationJson(const SimulatedCase& what, const std::vector<Outcome>& outcomes,
                              const OracleAnswer& oracle) {
  terminal::Json slo;
  for (const auto& app : what.system.apps) slo[app.id] = app.slo_s;
  terminal::Json document = {{"profile", what.profile.name()},
                             {"source", what.profile.source()},
                             {"workload", what.workload},
                             {"jobs", what.jobs},
                             {"seed", what.settings.seed()},
                             {"duration_s", what.settings.duration_s()},
                             {"devices", what.settings.devices()},
                             {"degree", what.settings.degree()},
                             {"slo_s", slo},
                             {"assumptions", Assumptions(what)},
                             {"ideal_gpu_s_per_job", IdealDeviceSeconds(what.system)},
                             {"results", terminal::Json::array()}};
  for (const Outcome& outcome : outcomes) document["results"].push_back(ToJson(outcome));
  if (what.recorded != nullptr) {
    document["recording"] = {{"taken", what.recorded->taken},
                             {"missing", what.recorded->missing},
                             {"done", what.recorded->done},
                             {"mean_latency_s", what.recorded->mean_latency_s}};
  }
  if (oracle.has_value() && oracle->ok()) {
    document["oracle"] = {{"throughput", (*oracle)->throughput},
                          {"done", (*oracle)->done},
                          {"interval_s", (*oracle)->interval_s}};
  } else if (oracle.has_value()) {
    document["oracle"] = {{"none", base::Message(oracle->status())}};
  }
  return document;
}

std::string SimulationText(const SimulatedCase& what, const std::vector<Outcome>& outcomes,
                           const OracleAnswer& oracle) {
  std::string text = absl::StrFormat(
      "%s, %s: %u jobs in %.0f s, seed %u\n%s\nin time:", what.profile.name(), what.workload,
      what.jobs, what.settings.duration_s(), what.settings.seed(), Assumptions(what));
  for (const auto& app : what.system.apps)
    absl::StrAppendFormat(&text, " %s within %.1f s;", app.id, app.slo_s);
  absl::StrAppendFormat(&text, " a job needs %.1f GPU s if no GPU ever waits\n\n",
                        IdealDeviceSeconds(what.system));
  absl::StrAppendFormat(&text, "%-12s %9s %8s %8s %8s %9s %9s %9s %8s %6s %9s  %s\n", "policy",
                        "jobs/s", "p50 s", "p95 s", "p99 s", "in time", "GPU s/job", "busy",
                        "rejected", "moves", "GiB", "placement");
  for (const Outcome& outcome : outcomes) text += Row(outcome);
  text += OracleLine(oracle, outcomes);
  const auto whole = std::ranges::find(outcomes, "monolithic", &Outcome::policy);
  for (const Outcome& outcome : outcomes) {
    if (whole == outcomes.end() || &outcome == &*whole) continue;
    absl::StrAppendFormat(
        &text, "%s against monolithic: GPU s per job %.3f times less, weights %.0f GiB less\n",
        outcome.policy, whole->result.reserved_per_job / outcome.result.reserved_per_job,
        (whole->result.resident_bytes_mean - outcome.result.resident_bytes_mean) / kGiB);
  }
  for (const Outcome& outcome : outcomes) text += PoolRows(outcome);
  text = RecordedText(what, outcomes) + text;
  return text +
         "\nGPU s/job counts GPUs that are in a pool, busy or not; idle ones are free for "
         "other work.\n";
}

terminal::Json PartitionJson(const SimulatedCase& what, const std::string& app,
                             const Partition& partition) {
  terminal::Json cuts = terminal::Json::array();
  for (const Cut& cut : partition.cuts) {
    terminal::Json groups = terminal::Json::array();
    for (const Group& group : cut.groups) {
      groups.push_back({{"stages", group.stages},
                        {"devices_per_instance", group.devices},
                        {"instances", group.instances},
                        {"seconds", group.seconds},
                        {"wasted_gpu_s", group.waste_s},
                        {"utilization", group.utilization},
                        {"weights_bytes", group.bytes}});
    }
    cuts.push_back({{"cut", CutText(cut)},
                    {"devices", cut.devices},
                    {"rate", cut.rate},
                    {"balance", cut.balance},
                    {"latency_s", cut.latency_s},
                    {"groups", std::move(groups)}});
  }
  return {{"profile", what.profile.name()},   {"app", app},
          {"degree", what.settings.degree()}, {"asked_rate", what.settings.rate()},
          {"cuts", std::move(cuts)},          {"too_large", partition.too_large}};
}

std::string PartitionText(const SimulatedCase& what, const std::string& app,
                          const Partition& partition) {
  const Cut& best = partition.cuts.front();
  const bool by_devices = what.settings.rate() > 0;
  std::string text = absl::StrFormat(
      "%s, %s, P = %d: %s\n\n%-40s %6s %9s %8s %10s\n", what.profile.name(), app,
      what.settings.degree(),
      by_devices ? absl::StrFormat("the fewest GPUs for %.4g jobs/s, none busier than %.0f %%",
                                   what.settings.rate(), 100 * kPartitionUtilization)
                 : absl::StrFormat("the most that %d GPUs can take", what.settings.devices()),
      "cut", "GPUs", "jobs/s", "balance", "unloaded");
  constexpr std::size_t kShown = 10;
  for (std::size_t i = 0; i < std::min(kShown, partition.cuts.size()); ++i) {
    const Cut& cut = partition.cuts[i];
    absl::StrAppendFormat(&text, "%-40s %6d %9.4f %6.0f %% %8.1f s\n", CutText(cut), cut.devices,
                          cut.rate, 100 * cut.balance, cut.latency_s);
  }
  if (partition.cuts.size() > kShown)
    absl::StrAppend(&text, "… and ", partition.cuts.size() - kShown, " more\n");
  if (partition.too_large > 0)
    absl::StrAppend(&text, partition.too_large, " cuts have weights beyond device_bytes\n");
  text += "\nThe best one:\n";
  for (const Group& group : best.groups) {
    absl::StrAppendFormat(&text,
                          "  %-24s %d × %d GPUs, %.2f s a job, %.0f %% busy, %.1f GPU s a job in "
                          "which GPUs wait for another\n",
                          absl::StrJoin(group.stages, "+"), group.instances, group.devices,
                          group.seconds, 100 * group.utilization, group.waste_s);
  }
  return text +
         "A stage that is not parallel costs every GPU of an instance that it shares with one that "
         "is;\non its own it costs whole instances. Balance is the mean utilisation over the "
         "greatest.\n";
}

}  // namespace onepiece::simulator
