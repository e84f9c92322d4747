#include "tests/nodemanager/paxos/sim/report.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/base/seconds.h"

namespace onepiece::paxos::sim {
namespace {

thread_local std::uint64_t current_seed = 0;

std::uint64_t Median(std::vector<std::uint64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What the threads of RunSeeds() have found.
struct Results {
  base::Mutex mutex;
  Report report ABSL_GUARDED_BY(mutex);
  std::vector<std::uint64_t> delivered ABSL_GUARDED_BY(mutex);
  std::vector<std::uint64_t> leader_changes ABSL_GUARDED_BY(mutex);
};

bool IsStuck(const Violation& violation) {
  return violation.found() && (violation.invariant == Invariants::kProgress ||
                               violation.invariant == Invariants::kConverge);
}

// This does only what a signal handler may do.
void SayAndDie(int /*signal*/) {
  char text[64] = "consensus_sim: ended by a broken check in the history of seed ";
  std::size_t at = std::string_view(text).size();
  char digits[24];
  std::size_t count = 0;
  for (std::uint64_t seed = current_seed; seed != 0 || count == 0; seed /= 10) {
    digits[count++] = static_cast<char>('0' + seed % 10);
  }
  [[maybe_unused]] auto written = write(STDERR_FILENO, text, at);
  std::reverse(digits, digits + count);
  digits[count++] = '\n';
  written = write(STDERR_FILENO, digits, count);
  std::signal(SIGABRT, SIG_DFL);
}

}  // namespace

const std::vector<NamedMutant>& AllMutants() {
  static constexpr std::array<const char*, static_cast<std::size_t>(Mutant::kCount)> core = {
      "none",
      "accept-lower-ballot",
      "promise-lower-ballot",
      "count-other-ballot",
      "choose-with-minority",
      "recover-lowest-ballot",
      "skip-recovery",
      "match-jumps-gap",
      "core-read-without-lease",
      "lease-from-receipt",
      "lease-without-majority",
      "no-lease-binding",
      "no-binding-after-restart",
      "no-pre-vote-check",
      "chosen-beyond-match",
      "members-overlap",
      "no-new-phase-one",
      "snapshot-keeps-log",
      "snapshot-forgets-members",
      "hand-out-of-order",
      "read-index-unconfirmed"};
  static const std::vector<NamedMutant> all = [] {
    std::vector<NamedMutant> mutants;
    for (std::size_t i = 0; i < core.size(); ++i) {
      mutants.push_back({core[i], static_cast<Mutant>(i), WorldMutant::kNone});
    }
    for (std::size_t i = 1; i < static_cast<std::size_t>(WorldMutant::kCount); ++i) {
      const auto mutant = static_cast<WorldMutant>(i);
      mutants.push_back({std::string(NameOf(mutant)), Mutant::kNone, mutant});
    }
    return mutants;
  }();
  return all;
}

const NamedMutant* FindMutant(const std::string& name) {
  for (const NamedMutant& mutant : AllMutants()) {
    if (mutant.name == name) return &mutant;
  }
  return nullptr;
}

std::string Report::Text() const {
  std::string text = absl::StrFormat(
      "%d seeds in %.1f s, %.0f seeds/s\n"
      "median history: %d delivered messages, %d leader changes\n"
      "delivered %d, slots %d, leader changes %d, changes of members %d\n"
      "commands %d, reads %d (by lease %d, through the log %d), unknown %d, retries remembered %d\n"
      "snapshots taken %d, installed %d\nfaults:",
      seeds, seconds, seconds > 0 ? static_cast<double>(seeds) / seconds : 0, median_delivered,
      median_leader_changes, sum.delivered, sum.slots, sum.leader_changes, sum.membership_changes,
      sum.commands, sum.reads, sum.lease_reads, sum.log_reads, sum.unknown, sum.retries_remembered,
      sum.snapshots_taken, sum.snapshots_installed);
  for (std::size_t i = 0; i < kFaultCount; ++i) {
    absl::StrAppend(&text, i == 0 ? " " : ", ", NameOf(static_cast<Fault>(i)), " ", sum.fired[i]);
  }
  for (const Failure& history : hopeless)
    absl::StrAppend(&text, "\nhopeless: ", Explain(history, AllMutants().front()));
  for (const Failure& history : stuck) {
    absl::StrAppend(&text, "\nstuck: ", Explain(history, AllMutants().front()));
  }
  return text;
}

std::vector<std::string> Report::NeverFired() const {
  std::vector<std::string> never;
  for (std::size_t i = 0; i < kFaultCount; ++i) {
    if (sum.fired[i] == 0) never.emplace_back(NameOf(static_cast<Fault>(i)));
  }
  return never;
}

Outcome RunSeed(std::uint64_t seed, const NamedMutant& mutant, std::ostream* story) {
  current_seed = seed;
  active_mutant = mutant.core;
  return RunHistory(seed, mutant.world, story);
}

Report RunSeeds(std::uint64_t from, std::uint64_t count, unsigned jobs, const NamedMutant& mutant) {
  const base::MonotonicTime started = base::SystemClock().Now();
  Results results;
  std::atomic<std::uint64_t> next = 0;
  std::atomic<std::uint64_t> end = count;  // Histories from here on need not run.
  const auto work = [&] {
    for (std::uint64_t i = next++; i < end; i = next++) {
      const Outcome outcome = RunSeed(from + i, mutant, nullptr);
      const base::MutexLock lock(results.mutex);
      if (IsStuck(outcome.violation) && outcome.hopeless) {
        results.report.hopeless.push_back({from + i, outcome.violation, outcome.at});
      } else if (IsStuck(outcome.violation)) {
        results.report.stuck.push_back({from + i, outcome.violation, outcome.at});
      } else if (outcome.violation.found()) {
        if (i < end) {
          end = i;
          results.report.failure = Failure{from + i, outcome.violation, outcome.at};
        }
        continue;
      }
      ++results.report.seeds;
      results.report.sum.Add(outcome.tally);
      results.delivered.push_back(outcome.tally.delivered);
      results.leader_changes.push_back(outcome.tally.leader_changes);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::max(1U, jobs); ++i) threads.emplace_back(work);
  }
  const base::MutexLock lock(results.mutex);
  Report report = std::move(results.report);
  report.median_delivered = Median(std::move(results.delivered));
  report.median_leader_changes = Median(std::move(results.leader_changes));
  report.seconds = base::ToSeconds(base::SystemClock().Now() - started);
  return report;
}

std::string Explain(const Failure& failure, const NamedMutant& mutant) {
  return absl::StrCat("seed ", failure.seed, " violates \"", failure.violation.invariant, "\" at ",
                      failure.at / kMicrosecond, " us: ", failure.violation.detail,
                      "\nreplay: consensus_sim --seed ", failure.seed,
                      mutant.name == "none" ? "" : " --mutant " + mutant.name);
}

void NameSeedOnAbort() { std::signal(SIGABRT, SayAndDie); }

}  // namespace onepiece::paxos::sim
