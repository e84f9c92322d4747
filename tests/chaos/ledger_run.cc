#include "tests/chaos/ledger_run.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "onepiece/v1/database.grpc.pb.h"
#include "tests/chaos/ledger_faults.h"
#include "tests/chaos/ledger_load.h"
#include "tests/eventually.h"

namespace onepiece::ledger {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kGate = seconds(60);
constexpr auto kWarmUp = seconds(30);
constexpr auto kAudit = seconds(120);
constexpr auto kAnswer = seconds(2);
constexpr std::size_t kMaxShown = 50;  // Violations in a report.

bool TouchesDatabases(const Injury& injury) {
  return injury.role == Role::kDatabase || injury.role == Role::kMachine;
}

/// Carries out a schedule. Thread-confined.
class LedgerNemesis {
 public:
  LedgerNemesis(const RunOptions& options, Cluster& cluster, const Ledger& ledger,
                RunReport& report)
      : options_(options), cluster_(cluster), ledger_(ledger), report_(report) {}

  void Run() {
    const auto schedule =
        MakeSchedule(options_.seed, options_.length, options_.faults, Cluster::population());
    const auto begun = Now();
    for (const Injury& injury : schedule) {
      // What waited is late; the order stays.
      PauseUntil(begun + injury.at);
      if (!WaitForGate(injury)) {
        ++report_.faults[std::string(injury.fault)].skipped;
        options_.say("skipped: " + ToText(injury));
        continue;
      }
      Strike(injury);
    }
    PauseUntil(begun + options_.length);
    while (!active_.empty()) HealUntil(active_.front().heal_at);
  }

 private:
  struct Active {
    Injury injury;
    std::unique_ptr<Fault> fault;
    base::MonotonicTime heal_at;
  };

  void Strike(const Injury& injury) {
    Struck& struck = report_.faults[std::string(injury.fault)];
    const auto unfetched = static_cast<std::int64_t>(ledger_.Unfetched(Now()).size());
    Active active{injury, MakeFault(injury.kind), Now() + injury.lasts};
    const absl::Status status = active.fault->Strike(cluster_, injury);
    if (!status.ok()) {
      options_.say(ToText(injury) + ": " + status.ToString());
      if (absl::IsUnavailable(status)) {
        ++struck.not_running;
      } else {
        report_.trouble.push_back(ToText(injury) + ": " + status.ToString());
      }
      return;
    }
    ++struck.done;
    options_.say(absl::StrCat(ToText(injury), ", ", unfetched, " unfetched"));
    if (TouchesDatabases(injury)) {
      report_.unfetched.push_back(unfetched);
      suffered_until_ = active.heal_at + RecoveryOf(injury.role);
    }
    active_.push_back(std::move(active));
    std::ranges::sort(active_, {}, &Active::heal_at);
  }

  /// Waits, and heals what is due.
  void HealUntil(base::MonotonicTime until) {
    while (!active_.empty() && active_.front().heal_at <= until) {
      Active active = std::move(active_.front());
      active_.erase(active_.begin());
      Wait(active.heal_at);
      const absl::Status status = active.fault->Heal(cluster_, active.injury);
      if (!status.ok())
        report_.trouble.push_back("heal " + ToText(active.injury) + ": " + status.ToString());
    }
  }
  void PauseUntil(base::MonotonicTime until) {
    HealUntil(until);
    Wait(until);
  }
  static void Wait(base::MonotonicTime until) {
    if (until > Now()) testing::Pause(until - Now());
  }

  bool WaitForGate(const Injury& injury) {
    const auto until = Now() + base::Scaled(kGate);
    for (;;) {
      HealUntil(Now());
      if (IsAllowed(injury)) return true;
      if (Now() >= until) return false;
      Wait(Now() + milliseconds(200));
    }
  }

  bool IsAllowed(const Injury& injury) {
    if (injury.role == Role::kNodeManager) return cluster_.IsWhole(Role::kNodeManager);
    if (!TouchesDatabases(injury)) return true;
    return Now() >= suffered_until_ && cluster_.IsWhole(Role::kDatabase) &&
           static_cast<std::int64_t>(ledger_.Unfetched(Now()).size()) >= kMinUnfetched &&
           HaveTheirCopies();
  }

  /// Whether all databases have the results that were announced while one of them suffered.
  bool HaveTheirCopies() {
    std::vector<std::unique_ptr<v1::DatabaseService::Stub>> databases;
    for (const local::ProcessRecord& record : cluster_.Ready(Role::kDatabase))
      databases.push_back(v1::DatabaseService::NewStub(rpc::MakeChannel(record.address)));
    for (const std::string& uid : ledger_.Unfetched(suffered_until_)) {
      v1::GetJobRecordRequest request;
      request.set_uid(uid);
      for (const auto& database : databases) {
        const auto record =
            rpc::Call(*database, &v1::DatabaseService::Stub::GetJob, request, kAnswer);
        if (!(record.ok() && record->has_bytes()) && ledger_.MustBeThere(uid)) return false;
      }
    }
    return true;
  }

  const RunOptions& options_;
  Cluster& cluster_;
  const Ledger& ledger_;
  RunReport& report_;
  std::vector<Active> active_;  // By heal_at.
  base::MonotonicTime suffered_until_ = base::MonotonicTime::min();
};

}  // namespace

bool RunReport::Blind() const {
  const auto announced = verdict.counts.find("announced");
  if (announced == verdict.counts.end() || announced->second < kMinUnfetched) return true;
  return std::ranges::any_of(unfetched, [](std::int64_t count) { return count < kMinUnfetched; });
}

bool RunReport::Healed() const {
  return std::ranges::all_of(faults, [](const auto& fault) { return fault.second.skipped == 0; });
}

bool RunReport::Held() const {
  return verdict.violations.empty() && trouble.empty() && !Blind() && Healed();
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
                         {"faults", nlohmann::json::object()},
                         {"shown", nlohmann::json::array()}};
  for (const auto& [fault, struck] : report.faults) {
    json["faults"][fault] = {
        {"done", struck.done}, {"skipped", struck.skipped}, {"not_running", struck.not_running}};
  }
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
  LedgerLoad load({.seed = options.seed,
                   .largest_bytes = options.largest_bytes,
                   .cancel_percent = options.cancel_percent},
                  ledger, proxies);
  load.Start();
  testing::Eventually(base::Scaled(kWarmUp), [&] {
    return static_cast<std::int64_t>(ledger.Unfetched(Now()).size()) >= kMinUnfetched;
  });
  LedgerNemesis(options, *cluster, ledger, report).Run();
  load.Stop();
  report.refused = load.Refused();
  options.say("the audit begins");
  ProxySource source(proxies, Now() + base::Scaled(kAudit + options.length / 4));
  Audit(ledger, source);
  report.verdict = ledger.Judge();
  if (!report.verdict.violations.empty()) report.logs = cluster->Logs();
  return report;
}

}  // namespace onepiece::ledger
