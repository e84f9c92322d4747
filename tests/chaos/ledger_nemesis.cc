#include "tests/chaos/ledger_nemesis.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "tests/chaos/ledger_load.h"
#include "tests/eventually.h"

namespace onepiece::ledger {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kGate = seconds(60), kWarmUp = seconds(60);
// About two thirds of the announced results stay unfetched.
constexpr std::int64_t kWarm = 3 * kMinUnfetched;
constexpr auto kLook = milliseconds(500);
constexpr std::size_t kLookAtOnce = 50;
constexpr auto kLongestCalm = seconds(60), kProgress = seconds(30);

std::int64_t CountOf(const Verdict& verdict, const std::string& name) {
  const auto found = verdict.counts.find(name);
  return found == verdict.counts.end() ? 0 : found->second;
}

bool TouchesDatabases(const Injury& injury) {
  return injury.role == Role::kDatabase || injury.role == Role::kMachine;
}

/// Carries out a schedule. Thread-confined.
class LedgerNemesis {
 public:
  LedgerNemesis(const RunOptions& options, Patient& patient, const Ledger& ledger,
                RunReport& report)
      : options_(options), patient_(patient), ledger_(ledger), report_(report) {}

  void Run() {
    Population population = Cluster::population();
    const int spared = options_.last_stage_only ? Cluster::kFirstStageInstances : 0;
    population[static_cast<std::size_t>(Role::kInstance)] -= spared;
    auto schedule = MakeSchedule(options_.seed, options_.length, options_.faults, population,
                                 options_.faults_per_minute);
    for (Injury& injury : schedule) {
      if (injury.role == Role::kInstance) injury.victim += spared;
    }
    const auto begun = Now();
    progress_ = begun + kProgress;
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
    Patient::Cure cure;
    base::MonotonicTime heal_at;
  };

  void Strike(const Injury& injury) {
    Struck& struck = report_.faults[std::string(injury.fault)];
    const auto unfetched = static_cast<std::int64_t>(ledger_.Unfetched(Now()).size());
    auto cure = patient_.Strike(injury);
    const absl::Status status = cure.status();
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
    Active active{injury, *std::move(cure), Now() + injury.lasts};
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
      const absl::Status status = active.cure();
      if (!status.ok())
        report_.trouble.push_back("heal " + ToText(active.injury) + ": " + status.ToString());
    }
  }
  void PauseUntil(base::MonotonicTime until) {
    HealUntil(until);
    Wait(until);
  }
  void Wait(base::MonotonicTime until) {
    while (until > Now()) {
      testing::Pause(std::min(until, std::max(progress_, Now())) - Now());
      if (Now() >= progress_) SayProgress();
    }
  }
  void SayProgress() {
    progress_ += kProgress;
    const Verdict verdict = ledger_.Judge();
    std::string text = absl::StrCat("so far: ", CountOf(verdict, "accepted"), " accepted, ",
                                    CountOf(verdict, "announced"), " announced");
    const auto violated = verdict.ByKind();
    absl::StrAppend(&text, violated.empty() ? ", nothing violated" : "");
    for (const auto& [kind, count] : violated)
      absl::StrAppend(&text, ", VIOLATED ", kind, " ", count);
    for (const auto& [fault, struck] : report_.faults)
      absl::StrAppend(&text, ", ", fault, " ", struck.done);
    options_.say(text);
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
    if (injury.role == Role::kNodeManager || injury.role == Role::kGroup)
      return patient_.IsWhole(Role::kNodeManager);
    if (!TouchesDatabases(injury)) return true;
    return Now() >= suffered_until_ && patient_.IsWhole(Role::kDatabase) && HaveTheirCopies();
  }

  /// Whether all databases have the results that were announced while one of them suffered. After a
  /// long run these are thousands, so a call looks at some, and what is due is healed in between.
  bool HaveTheirCopies() {
    if (unchecked_of_ != suffered_until_) {
      unchecked_of_ = suffered_until_;
      unchecked_ = ledger_.Unfetched(suffered_until_);
    }
    const auto enough = Now() + kLook;
    while (!unchecked_.empty() && Now() < enough) {
      const auto from =
          unchecked_.end() - static_cast<std::ptrdiff_t>(std::min(kLookAtOnce, unchecked_.size()));
      if (!patient_.HasCopies({from, unchecked_.end()})) return false;
      unchecked_.erase(from, unchecked_.end());
    }
    return unchecked_.empty();
  }

  const RunOptions& options_;
  Patient& patient_;
  const Ledger& ledger_;
  RunReport& report_;
  std::vector<Active> active_;  // By heal_at.
  base::MonotonicTime suffered_until_ = base::MonotonicTime::min();
  // Results without a proof that they have their copies since then.
  base::MonotonicTime unchecked_of_ = base::MonotonicTime::min();
  std::vector<std::string> unchecked_;
  base::MonotonicTime progress_;  // When to say the next.
};

}  // namespace

void WarmUp(const RunOptions& options, const Ledger& ledger) {
  const auto calm_until =
      Now() + std::min<base::Duration>(options.length / 10, base::Duration(kLongestCalm));
  testing::Eventually(base::Scaled(kWarmUp),
                      [&] { return CountOf(ledger.Judge(), "announced") >= kWarm; });
  if (calm_until > Now()) testing::Pause(calm_until - Now());
}

void Hurt(const RunOptions& options, Patient& patient, const Ledger& ledger, RunReport& report) {
  LedgerNemesis(options, patient, ledger, report).Run();
}

base::Duration AuditLimit(const RunOptions& options) { return seconds(120) + options.length / 4; }

}  // namespace onepiece::ledger
