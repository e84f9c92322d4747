#include "nodemanager/load/clean.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <initializer_list>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "cluster/base/utf8.h"
#include "cluster/capacity/cost_fit.h"
#include "google/protobuf/repeated_ptr_field.h"

namespace onepiece::nodemanager {
namespace {

// As many as there may be workflows.
constexpr int kMaxEntries = 1024;
// Above 1, because a node reads the clocks of busy time and of elapsed time one after the other.
constexpr double kMaxUtilization = 1.05;
constexpr int kMaxWorkers = 4096;
// Compute time counts when a job ends. A job may have begun this long before the node's first
// report.
constexpr double kLongestJobS = 3600;
constexpr double kMaxJobsPerS = 1e6;
constexpr double kCatchUpS = 60;  // A late report may count more than what has happened since.
constexpr int kMaxDebts = 256;
constexpr double kMaxDebtS = 366.0 * 24 * 3600;
constexpr int kMaxDevices = 16;
constexpr std::size_t kMaxDeviceName = 64, kMaxProduct = 128, kMaxPoolName = 128;
constexpr std::int64_t kMaxDeviceBytes = std::int64_t{1} << 50;
constexpr double kMaxWatts = 1e5, kLeastCelsius = -100, kMaxCelsius = 300;
// More Unix milliseconds than this do not fit into a WallTime.
constexpr std::int64_t kMaxUnixMs = 9'000'000'000'000;

bool Grows(double before, double after) { return std::isfinite(after) && after >= before; }

void Complain(CleanedReport& report, std::string_view what) {
  if (report.wrong.size() > 500) return;  // One line is enough for people.
  absl::StrAppend(&report.wrong, report.wrong.empty() ? "" : "; ", base::AbslView(what));
}

using Key = std::pair<std::string_view, std::string_view>;
Key KeyOf(const v1::StageLoad& stage) { return {stage.app_id(), stage.stage()}; }
Key KeyOf(const v1::Demand& demand) { return {demand.app_id(), ""}; }

/// The entries of a report by their names, so that reports of many applications stay cheap to
/// check. Borrows the entries.
template <typename Entry>
class Index {
 public:
  explicit Index(const google::protobuf::RepeatedPtrField<Entry>& entries) {
    for (const Entry& entry : entries) by_key_.emplace(KeyOf(entry), &entry);
  }
  /// Returns the entry of the same names, or an empty one.
  [[nodiscard]] const Entry& Find(const Entry& like) const {
    const auto found = by_key_.find(KeyOf(like));
    return found == by_key_.end() ? Entry::default_instance() : *found->second;
  }

 private:
  std::map<Key, const Entry*> by_key_;
};

std::string NameOf(const v1::StageLoad& stage) {
  return stage.stage().substr(0, 64) + " of " + stage.app_id().substr(0, 64);
}

// Says why `after` cannot follow `before`, or nothing when it can.
std::string WhatIsWrong(const v1::StageLoad& before, const v1::StageLoad& after,
                        const ReportContext& context) {
  if (after.jobs() < before.jobs() || after.failures() < before.failures())
    return "its job count falls";
  if (context.last != nullptr &&
      static_cast<double>(after.jobs() - before.jobs()) >
          kMaxJobsPerS * (base::ToSeconds(context.since_last) + kCatchUpS))
    return "more jobs than there is time for";
  if (!Grows(before.units(), after.units())) return "its units fall or are no number";
  if (!Grows(before.compute_s(), after.compute_s()) ||
      !Grows(before.compute_squares_s2(), after.compute_squares_s2()))
    return "its compute time falls or is no number";
  const double compute = after.compute_s() - before.compute_s();
  // The sum of squares of any numbers is at most the square of their sum. The rounding error of the
  // two sums grows with the sums, not with their difference.
  const double rounding = 1e-9 * (1 + after.compute_squares_s2());
  if (after.compute_squares_s2() - before.compute_squares_s2() >
      compute * compute * (1 + 1e-6) + rounding)
    return "its squares are more than the square of its compute time";
  return "";
}

// Sums of squares bound those of products (Cauchy and Schwarz), except for rounding.
bool ArePossible(const v1::CostSums& sums, std::uint64_t jobs) {
  const int n = sums.xy_size();
  if (n < 1 || n > capacity::kMaxTerms || sums.xx_size() != n * (n + 1) / 2 || sums.jobs() > jobs)
    return false;
  const auto possible = [](double value) { return std::isfinite(value) && value >= 0; };
  if (!std::ranges::all_of(sums.xx(), possible) || !std::ranges::all_of(sums.xy(), possible) ||
      !possible(sums.yy()))
    return false;
  const auto square = [&](int i) {
    return sums.xx(static_cast<int>(capacity::UpperIndex(n, i, i)));
  };
  // By square roots, because the product of two such sums may overflow.
  const auto within = [](double product, double one, double other) {
    return product <= std::sqrt(one) * std::sqrt(other) * (1 + 1e-6);
  };
  for (int i = 0; i < n; ++i) {
    if (!within(sums.xy(i), square(i), sums.yy())) return false;
    for (int j = i + 1; j < n; ++j) {
      if (!within(sums.xx(static_cast<int>(capacity::UpperIndex(n, i, j))), square(i), square(j)))
        return false;
    }
  }
  return true;
}

void CleanStage(const v1::StageLoad& given, const v1::StageLoad& before,
                const ReportContext& context, double& compute_left_s, CleanedReport& report) {
  std::string wrong = WhatIsWrong(before, given, context);
  const double compute = given.compute_s() - before.compute_s();
  // The first report counts from the start of the process, and nobody knows how long ago that is.
  if (wrong.empty() && context.last != nullptr && compute > compute_left_s)
    wrong = "more compute time than its workers have";
  if (!wrong.empty()) {
    Complain(report, NameOf(given) + ": " + wrong);
    if (&before != &v1::StageLoad::default_instance()) *report.load.add_stages() = before;
    return;
  }
  compute_left_s -= compute;
  v1::StageLoad& stage = *report.load.add_stages();
  stage = given;
  // These times are measured with other nodes' clocks too, so an impossible one is no reason to
  // distrust the rest.
  if (!Grows(before.queued_s(), given.queued_s())) {
    Complain(report, NameOf(given) + ": its queueing time falls or is no number");
    stage.set_queued_s(before.queued_s());
  }
  if (!Grows(before.transfer_s(), given.transfer_s())) {
    Complain(report, NameOf(given) + ": its transfer time falls or is no number");
    stage.set_transfer_s(before.transfer_s());
  }
  if (given.has_cost_sums() && !ArePossible(given.cost_sums(), given.jobs())) {
    Complain(report, NameOf(given) + ": its cost sums cannot be");
    *stage.mutable_cost_sums() = before.cost_sums();
  }
  if (!Grows(0, given.load_s())) {
    Complain(report, NameOf(given) + ": its load time is negative or no number");
    stage.set_load_s(before.load_s());
  }
}

// Falls back to no terms: the demand then counts by its units.
void CleanTerms(const v1::Demand& before, CleanedReport& report, v1::Demand& demand) {
  constexpr int kMaxStages = 64;
  std::map<std::string_view, const v1::StageTerms*> known;
  for (const v1::StageTerms& terms : before.stage_terms()) known[terms.stage()] = &terms;
  std::set<std::string_view> seen;
  const bool good =
      demand.stage_terms_size() <= kMaxStages &&
      std::ranges::all_of(demand.stage_terms(), [&](const v1::StageTerms& terms) {
        const auto earlier = known.find(terms.stage());
        // A workflow that has changed begins its sums anew.
        const bool same =
            earlier != known.end() && earlier->second->sums_size() == terms.sums_size();
        for (int i = 0; i < terms.sums_size(); ++i) {
          if (!Grows(same ? earlier->second->sums(i) : 0, terms.sums(i))) return false;
        }
        return terms.sums_size() <= capacity::kMaxTerms && seen.insert(terms.stage()).second;
      });
  if (good) return;
  Complain(report, "terms of " + demand.app_id().substr(0, 64) + " fall or are absurd");
  *demand.mutable_stage_terms() = before.stage_terms();
}

void CleanDemand(const v1::Demand& given, const v1::Demand& before, const ReportContext& context,
                 CleanedReport& report) {
  const double most = kMaxJobsPerS * (base::ToSeconds(context.since_last) + kCatchUpS);
  const bool good = given.admitted() >= before.admitted() &&
                    given.rejected() >= before.rejected() &&
                    (context.last == nullptr ||
                     (static_cast<double>(given.admitted() - before.admitted()) <= most &&
                      static_cast<double>(given.rejected() - before.rejected()) <= most)) &&
                    Grows(0, given.units());
  if (good) {
    v1::Demand& demand = *report.load.add_demands();
    demand = given;
    CleanTerms(before, report, demand);
    return;
  }
  Complain(report, "demand of " + given.app_id().substr(0, 64) + " falls or is absurd");
  if (&before != &v1::Demand::default_instance()) *report.load.add_demands() = before;
}

void CleanGauges(const v1::NodeLoad& load, const v1::NodeLoad& last, CleanedReport& report) {
  report.utilization_is_good = load.utilization() >= 0 && load.utilization() <= kMaxUtilization;
  if (!report.utilization_is_good)
    Complain(report, absl::StrCat("utilisation ", load.utilization()));
  report.load.set_utilization(report.utilization_is_good ? std::min(load.utilization(), 1.0)
                                                         : last.utilization());
  if (load.workers() < 0 || load.workers() > kMaxWorkers) {
    Complain(report, absl::StrCat(load.workers(), " workers"));
    report.load.set_workers(last.workers());
  }
  using Load = v1::NodeLoad;
  const std::initializer_list<
      std::pair<std::int64_t (Load::*)() const, void (Load::*)(std::int64_t)>>
      counts = {{&Load::queued_jobs, &Load::set_queued_jobs},
                {&Load::running_jobs, &Load::set_running_jobs},
                {&Load::ring_slots, &Load::set_ring_slots},
                {&Load::ring_slots_used, &Load::set_ring_slots_used},
                {&Load::memory_bytes, &Load::set_memory_bytes},
                {&Load::held_jobs, &Load::set_held_jobs},
                {&Load::no_progress_ms, &Load::set_no_progress_ms}};
  bool negative = false;
  for (const auto& [get, set] : counts) {
    if ((load.*get)() >= 0) continue;
    negative = true;
    (report.load.*set)((last.*get)());
  }
  if (negative) Complain(report, "a negative count");
  if (load.sample_unix_ms() < 0 || load.sample_unix_ms() > kMaxUnixMs) {
    Complain(report, absl::StrCat("sampled at ", load.sample_unix_ms(), " ms"));
    report.load.set_sample_unix_ms(0);
  }
  if (load.clock_skew_ms() < -kMaxUnixMs || load.clock_skew_ms() > kMaxUnixMs) {
    Complain(report, absl::StrCat("a clock that is ", load.clock_skew_ms(), " ms off"));
    report.load.clear_clock_skew_ms();
  }
}

// Impossible numbers become absent. For a device no number is better than an old one.
v1::DeviceLoad CleanDevice(const v1::DeviceLoad& given, CleanedReport& report) {
  using Load = v1::DeviceLoad;
  v1::DeviceLoad device = given;
  device.set_device(base::ToUtf8(given.device(), kMaxDeviceName));
  device.set_product(base::ToUtf8(given.product(), kMaxProduct));
  bool wrong = false;
  const auto leave_out = [&](bool bad, void (Load::*clear)()) {
    if (bad) (device.*clear)();
    wrong |= bad;
  };
  const auto outside = [](double value, double least, double most) {
    return !(value >= least && value <= most);  // NaN is outside.
  };
  leave_out(outside(given.sm_active(), 0, kMaxUtilization), &Load::clear_sm_active);
  leave_out(outside(given.kernel_active(), 0, kMaxUtilization), &Load::clear_kernel_active);
  leave_out(outside(given.memory_active(), 0, kMaxUtilization), &Load::clear_memory_active);
  leave_out(outside(given.process_active(), 0, kMaxUtilization), &Load::clear_process_active);
  leave_out(outside(given.power_w(), 0, kMaxWatts), &Load::clear_power_w);
  leave_out(outside(given.power_limit_w(), 0, kMaxWatts), &Load::clear_power_limit_w);
  leave_out(outside(given.temperature_c(), kLeastCelsius, kMaxCelsius), &Load::clear_temperature_c);
  const auto bad_bytes = [](std::int64_t bytes) { return bytes < 0 || bytes > kMaxDeviceBytes; };
  leave_out(bad_bytes(given.memory_bytes()), &Load::clear_memory_bytes);
  leave_out(bad_bytes(given.memory_used_bytes()) ||
                (device.has_memory_bytes() && given.memory_used_bytes() > given.memory_bytes()),
            &Load::clear_memory_used_bytes);
  if (device.sm_active() > 1) device.set_sm_active(1);
  if (device.kernel_active() > 1) device.set_kernel_active(1);
  if (device.memory_active() > 1) device.set_memory_active(1);
  if (device.process_active() > 1) device.set_process_active(1);
  if (wrong) Complain(report, "device " + device.device() + " says what cannot be");
  return device;
}

void CleanDevices(const v1::NodeLoad& load, CleanedReport& report) {
  for (const v1::DeviceLoad& given : load.devices()) {
    if (report.load.devices_size() >= kMaxDevices) {
      return Complain(report, absl::StrCat("more than ", kMaxDevices, " devices"));
    }
    v1::DeviceLoad device = CleanDevice(given, report);
    const auto same = [&](const v1::DeviceLoad& other) {
      return other.device() == device.device();
    };
    if (device.device().empty() || std::ranges::any_of(report.load.devices(), same)) {
      Complain(report, "device '" + device.device() + "' has no name or is there twice");
    } else {
      *report.load.add_devices() = std::move(device);
    }
  }
}

// A debt that cannot be is left out: an old one would be worse, because debts are worked off.
void CleanDebts(const v1::NodeLoad& load, CleanedReport& report) {
  std::set<std::string_view> pools;
  for (const v1::PoolDebt& debt : load.debts()) {
    if (report.load.debts_size() >= kMaxDebts)
      return Complain(report, absl::StrCat("debts in more than ", kMaxDebts, " pools"));
    const bool possible = debt.seconds() >= 0 && debt.seconds() <= kMaxDebtS;  // NaN is not.
    if (debt.pool().empty() || !possible || !pools.insert(debt.pool()).second) {
      Complain(report, "a debt in pool '" + base::ToUtf8(debt.pool(), kMaxPoolName) +
                           "' is absurd, or is there twice");
    } else {
      *report.load.add_debts() = debt;
    }
  }
}

// Keeps the entries that the report leaves out. Otherwise an entry that comes back would follow on
// zero, and all that it has ever counted would count once more.
template <typename Entry>
void KeepAbsent(const google::protobuf::RepeatedPtrField<Entry>& last,
                google::protobuf::RepeatedPtrField<Entry>& entries) {
  std::set<Key> there;  // The entries move when one is added, their names do not.
  for (const Entry& entry : entries) there.insert(KeyOf(entry));
  for (const Entry& before : last) {
    if (entries.size() < kMaxEntries && !there.contains(KeyOf(before))) *entries.Add() = before;
  }
}

}  // namespace

CleanedReport CleanReport(const v1::NodeLoad& load, const ReportContext& context) {
  const v1::NodeLoad& last =
      context.last == nullptr ? v1::NodeLoad::default_instance() : *context.last;
  CleanedReport report;
  report.load = load;
  report.load.clear_stages();
  report.load.clear_demands();
  report.load.clear_devices();
  report.load.clear_debts();
  CleanGauges(load, last, report);
  CleanDevices(load, report);
  CleanDebts(load, report);
  // All compute time since the first report must fit into what the workers had, so a node cannot
  // claim more in many small steps either.
  double counted = 0;
  for (const v1::StageLoad& stage : last.stages()) counted += stage.compute_s();
  const int workers = std::max(1, report.load.workers());
  double compute_left_s =
      kMaxUtilization * workers * (base::ToSeconds(context.since_first) + kLongestJobS) -
      (counted - context.compute_at_first_s);
  const Index<v1::StageLoad> stages_before(last.stages());
  std::set<Key> seen;
  for (const v1::StageLoad& stage : load.stages()) {
    if (report.load.stages_size() >= kMaxEntries) break;
    if (!seen.insert(KeyOf(stage)).second) {
      Complain(report, NameOf(stage) + " is there twice");
    } else {
      CleanStage(stage, stages_before.Find(stage), context, compute_left_s, report);
    }
  }
  const Index<v1::Demand> demands_before(last.demands());
  seen.clear();
  for (const v1::Demand& demand : load.demands()) {
    if (report.load.demands_size() >= kMaxEntries) break;
    if (!seen.insert(KeyOf(demand)).second) {
      Complain(report, "demand of " + demand.app_id().substr(0, 64) + " is there twice");
    } else {
      CleanDemand(demand, demands_before.Find(demand), context, report);
    }
  }
  if (load.stages_size() > kMaxEntries || load.demands_size() > kMaxEntries)
    Complain(report, absl::StrCat("more than ", kMaxEntries, " stages or applications"));
  KeepAbsent(last.stages(), *report.load.mutable_stages());
  KeepAbsent(last.demands(), *report.load.mutable_demands());
  return report;
}

}  // namespace onepiece::nodemanager
