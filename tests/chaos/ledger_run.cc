#include "tests/chaos/ledger_run.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "tests/chaos/ledger_audit.h"
#include "tests/chaos/ledger_databases.h"
#include "tests/chaos/ledger_faults.h"
#include "tests/chaos/ledger_load.h"
#include "tests/chaos/ledger_nemesis.h"

namespace onepiece::ledger {
namespace {

using std::chrono::seconds;

constexpr auto kPlantedAudit = seconds(5);  // What was planted does not come back.
constexpr std::size_t kMaxShown = 50;       // Violations in a report.

class ClusterPatient final : public Patient {
 public:
  ClusterPatient(Cluster& cluster, const Ledger& ledger) : cluster_(cluster), ledger_(ledger) {}

  absl::StatusOr<Cure> Strike(const Injury& injury) override {
    const std::shared_ptr<Fault> fault = MakeFault(injury.kind);
    ONEPIECE_RETURN_IF_ERROR(fault->Strike(cluster_, injury));
    return [this, fault, injury] { return fault->Heal(cluster_, injury); };
  }
  bool IsWhole(Role role) override { return cluster_.IsWhole(role); }
  bool HasCopies(const std::vector<std::string>& uids) override {
    const Databases databases = DatabasesOf(cluster_);
    return std::ranges::all_of(uids, [&](const std::string& uid) {
      return std::ranges::all_of(databases, [&](const auto& database) {
        const auto record = ReadRecord(*database, uid);
        return (record.ok() && record->has_bytes()) || !ledger_.MustBeThere(uid);
      });
    });
  }

 private:
  Cluster& cluster_;
  const Ledger& ledger_;
};

/// Reads the record of every job that a database still has.
std::int64_t CountGivenAgain(const Cluster& cluster, const Ledger& ledger) {
  const Databases databases = DatabasesOf(cluster);
  std::int64_t again = 0;
  for (const std::string& uid : ledger.Uids()) {
    for (const auto& database : databases) {
      const auto record = ReadRecord(*database, uid);
      if (!record.ok()) continue;
      again += record->attempt() > 0 || std::ranges::any_of(record->holders(), [](const auto& one) {
                 return one.attempt() > 0;
               });
      break;
    }
  }
  return again;
}

/// Hurts the cluster by the schedule, while an outsider attacks it if there shall be one.
absl::Status HurtWithOutsider(const RunOptions& options, const Cluster& cluster, Patient& patient,
                              const Ledger& ledger, RunReport& report) {
  Outsider outsider(cluster, options.seed);
  const local::ClusterState began = cluster.State();
  const auto before = ResidentBytesOf(cluster);
  if (options.outsider) ONEPIECE_RETURN_IF_ERROR(outsider.Start());
  Hurt(options, patient, ledger, report);
  outsider.Stop();
  if (!options.outsider) return absl::OkStatus();
  report.attacks = outsider.attacks();
  const local::ClusterState ended = cluster.State();
  for (const auto& [node, bytes] : ResidentBytesOf(cluster)) {
    const auto same = [node = node](const local::ProcessRecord& one) {
      return one.node_id == node;
    };
    const auto then = std::ranges::find_if(began.processes, same);
    const auto now = std::ranges::find_if(ended.processes, same);
    if (then == began.processes.end() || then->process.pid != now->process.pid) continue;
    report.resident_bytes[node] = {before.at(node), bytes};
  }
  return absl::OkStatus();
}

nlohmann::json ToJson(const Latency& latency) {
  return {{"jobs", latency.jobs}, {"p50_s", latency.p50}, {"p99_s", latency.p99}};
}

std::string ToText(const Latency& latency) {
  return absl::StrCat(latency.jobs, " jobs, p50 ", latency.p50, " s, p99 ", latency.p99, " s");
}

}  // namespace

bool RunReport::Blind() const {
  const auto announced = verdict.counts.find("announced");
  if (announced == verdict.counts.end() || announced->second < kMinUnfetched) return true;
  return std::ranges::any_of(unfetched, [](std::int64_t count) { return count < kMinUnfetched; });
}

bool RunReport::Healed() const {
  return std::ranges::all_of(faults, [](const auto& fault) { return fault.second.skipped == 0; });
}

std::vector<std::string> RunReport::Swollen() const {
  std::vector<std::string> swollen;
  for (const auto& [node, bytes] : resident_bytes) {
    if (!node.starts_with("database") && bytes.second - bytes.first > kMaxGrowthBytes)
      swollen.push_back(node);
  }
  return swollen;
}

bool RunReport::Held() const {
  return verdict.violations.empty() && trouble.empty() && Swollen().empty() && !Blind() && Healed();
}

nlohmann::json ToJson(const RunReport& report, const RunOptions& options) {
  nlohmann::json json = {{"seed", options.seed},
                         {"seconds", static_cast<double>(options.length.count()) / 1000},
                         {"held", report.Held()},
                         {"blind", report.Blind()},
                         {"healed", report.Healed()},
                         {"violations", report.verdict.ByKind()},
                         {"counts", report.verdict.counts},
                         {"refused", report.refused},
                         {"unfetched", report.unfetched},
                         {"trouble", report.trouble},
                         {"latency",
                          {{"before", ToJson(report.before)},
                           {"during", ToJson(report.during)},
                           {"unwatched", report.unwatched}}},
                         {"given_again", report.given_again},
                         {"failovers", report.failovers},
                         {"attacks", report.attacks},
                         {"resident_mib", nlohmann::json::object()},
                         {"faults", nlohmann::json::object()},
                         {"shown", nlohmann::json::array()}};
  for (const auto& [fault, struck] : report.faults) {
    json["faults"][fault] = {
        {"done", struck.done}, {"skipped", struck.skipped}, {"not_running", struck.not_running}};
  }
  for (const auto& [node, bytes] : report.resident_bytes)
    json["resident_mib"][node] = {{"before", bytes.first >> 20}, {"after", bytes.second >> 20}};
  for (const Violation& violation : report.verdict.violations) {
    if (json["shown"].size() == kMaxShown) break;
    json["shown"].push_back(
        {{"kind", violation.kind}, {"uid", violation.uid}, {"what", violation.what}});
  }
  return json;
}

std::string ToText(const RunReport& report) {
  std::string text;
  for (const auto& [fault, struck] : report.faults) {
    absl::StrAppend(&text, fault, ": ", struck.done, " done, ", struck.skipped, " skipped, ",
                    struck.not_running, " without a victim\n");
  }
  for (const auto& [name, count] : report.verdict.counts)
    absl::StrAppend(&text, count, " ", name, "\n");
  for (const auto& [reason, count] : report.refused)
    absl::StrAppend(&text, count, " not accepted: ", reason, "\n");
  absl::StrAppend(&text, "latency before the faults: ", ToText(report.before),
                  "\n        and during them: ", ToText(report.during), "\n", report.given_again,
                  " jobs given again to an instance\n");
  for (const auto& [attack, outcomes] : report.attacks) {
    absl::StrAppend(&text, "attack ", attack, ":");
    for (const auto& [outcome, count] : outcomes)
      absl::StrAppend(&text, " ", count, " ", outcome, ";");
    absl::StrAppend(&text, "\n");
  }
  for (const auto& [node, bytes] : report.resident_bytes) {
    absl::StrAppend(&text, node, ": ", bytes.first >> 20, " MiB before, ", bytes.second >> 20,
                    " MiB after\n");
  }
  for (const std::string& node : report.Swollen()) absl::StrAppend(&text, "SWOLLEN ", node, "\n");
  for (const std::string& trouble : report.trouble)
    absl::StrAppend(&text, "TROUBLE ", trouble, "\n");
  for (const auto& [kind, count] : report.verdict.ByKind())
    absl::StrAppend(&text, "VIOLATED ", kind, ": ", count, "\n");
  for (std::size_t i = 0; i < std::min(kMaxShown, report.verdict.violations.size()); ++i) {
    const Violation& violation = report.verdict.violations[i];
    absl::StrAppend(&text, "  ", violation.kind, " ", violation.uid, ": ", violation.what, "\n");
  }
  if (report.Blind()) absl::StrAppend(&text, "BLIND: a fault of a database had nothing to take\n");
  if (!report.Healed()) absl::StrAppend(&text, "NOT HEALED: faults had to be skipped\n");
  return text + (report.Held() ? "every entry of the ledger holds\n" : "");
}

absl::StatusOr<RunReport> Run(const RunOptions& options) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto cluster, Cluster::Start({.folder = options.folder,
                                                                .bin_dir = options.bin_dir,
                                                                .plugin_dir = options.plugin_dir,
                                                                .needs = NeedsOf(options.faults)}));
  options.say("the cluster is up");
  RunReport report;
  Ledger ledger;
  Proxies proxies(*cluster);
  Stopwatch stopwatch;
  std::optional<EndWatch> watch(std::in_place, ledger, proxies, stopwatch);
  LoadOptions load_options{.seed = options.seed,
                           .largest_bytes = options.largest_bytes,
                           .cancel_percent = options.cancel_percent,
                           .fetch_all = options.plants.fetch_all};
  // A watch would announce results before the load can fetch them.
  if (!options.plants.fetch_all) {
    load_options.accepted = [&watch](const std::string& uid, base::MonotonicTime sent) {
      watch->Watch(uid, sent);
    };
  }
  LedgerLoad load(load_options, ledger, proxies);
  load.Start();
  WarmUp(options, ledger);
  const auto hurt_from = Now();
  ClusterPatient patient(*cluster, ledger);
  ONEPIECE_RETURN_IF_ERROR(HurtWithOutsider(options, *cluster, patient, ledger, report));
  load.Stop();
  report.refused = load.Refused();
  report.unwatched = watch->unwatched();
  watch.reset();
  report.before = stopwatch.Of(base::MonotonicTime::min(), hurt_from);
  report.during = stopwatch.Of(hurt_from, base::MonotonicTime::max());
  base::Duration audit_limit = AuditLimit(options);
  if (options.plants.loss || options.plants.second_end) {
    ONEPIECE_RETURN_IF_ERROR(Plant(options.plants, *cluster, ledger));
    audit_limit = kPlantedAudit;
  }
  options.say("the audit begins");
  ProxySource source(proxies, Now() + base::Scaled(audit_limit));
  Audit(ledger, source);
  report.verdict = ledger.Judge();
  report.given_again = CountGivenAgain(*cluster, ledger);
  if (!report.verdict.violations.empty()) report.logs = cluster->Logs();
  return report;
}

}  // namespace onepiece::ledger
