#include "stages/instance/work_counts.h"

#include <algorithm>

#include "cluster/base/mutex.h"
#include "cluster/base/seconds.h"
#include "cluster/workflow/work_units.h"

namespace onepiece::instance {
namespace {

// Returns zero when a clock has gone back.
double SecondsOf(base::Duration time) { return std::max(0.0, base::ToSeconds(time)); }

// The transfer time is measured with the clocks of two hosts. A time that no transfer takes is the
// difference of the clocks, so it counts as zero.
double TransferSeconds(base::Duration time) {
  constexpr double kMost = 10;
  const double seconds = SecondsOf(time);
  return seconds > kMost ? 0 : seconds;
}

int Bucket(double seconds) {
  int bucket = 0;
  // Seconds: 1 ms, doubled for each bucket. The last one is open (524 s and more).
  for (double bound = 0.001; bucket < WorkCounts::kBuckets - 1 && seconds >= bound; bound *= 2)
    ++bucket;
  return bucket;
}

// Adds a job to the sums. They begin anew when the workflow has another number of terms than
// before.
void AddTerms(const std::vector<double>& terms, double seconds, v1::CostSums& sums) {
  const int n = static_cast<int>(terms.size());
  if (sums.xy_size() != n) {
    sums.Clear();
    sums.mutable_xx()->Resize(n * (n + 1) / 2, 0);
    sums.mutable_xy()->Resize(n, 0);
  }
  sums.set_jobs(sums.jobs() + 1);
  sums.set_yy(sums.yy() + seconds * seconds);
  int place = 0;
  for (int i = 0; i < n; ++i) {
    sums.set_xy(i, sums.xy(i) + terms[i] * seconds);
    for (int j = i; j < n; ++j, ++place) sums.set_xx(place, sums.xx(place) + terms[i] * terms[j]);
  }
}

}  // namespace

JobSize SizeOf(const node::Routing& table, const message::Message& message) {
  const v1::Workflow* workflow = table.FindWorkflow(message.header.app);
  const auto index = table.StageIndex(message.header.app, message.header.stage);
  if (workflow == nullptr || !index) return {};
  const v1::StageSpec& stage = workflow->stages(*index);
  return {.units = workflow::WorkUnits(*workflow, stage, message.parameters),
          .terms = workflow::WorkTerms(*workflow, stage, message.parameters)};
}

v1::StageLoad* WorkCounts::Entry(const std::string& stage, const std::string& app) {
  const auto found = entries_.find({stage, app});
  if (found != entries_.end()) return &found->second;
  if (entries_.size() >= kMaxEntries) return nullptr;
  v1::StageLoad& entry = entries_[{stage, app}];
  entry.set_stage(stage);
  entry.set_app_id(app);
  entry.mutable_compute_buckets()->Resize(kBuckets, 0);
  return &entry;
}

void WorkCounts::Count(const message::Header& header, const JobSize& size,
                       const runtime::WorkTiming& timing, Outcome outcome) {
  const double compute = SecondsOf(timing.compute);
  const base::MutexLock lock(mutex_);
  v1::StageLoad* entry = Entry(header.stage, header.app);
  if (entry == nullptr) return;
  if (outcome == Outcome::kFailed) return entry->set_failures(entry->failures() + 1);
  entry->set_compute_s(entry->compute_s() + compute);
  entry->set_compute_squares_s2(entry->compute_squares_s2() + compute * compute);
  if (outcome == Outcome::kHandedOver) return;
  entry->set_jobs(entry->jobs() + 1);
  entry->set_units(entry->units() + size.units);
  entry->set_queued_s(entry->queued_s() + SecondsOf(timing.queued));
  entry->set_transfer_s(entry->transfer_s() + TransferSeconds(timing.transfer));
  if (!size.terms.empty()) AddTerms(size.terms, compute, *entry->mutable_cost_sums());
  std::uint64_t& bucket = *entry->mutable_compute_buckets()->Mutable(Bucket(compute));
  ++bucket;
}

void WorkCounts::Loaded(const std::string& stage, const std::string& app, base::Duration time) {
  const base::MutexLock lock(mutex_);
  if (v1::StageLoad* entry = Entry(stage, app)) entry->set_load_s(SecondsOf(time));
}

void WorkCounts::AddTo(v1::NodeLoad& load) const {
  const base::MutexLock lock(mutex_);
  for (const auto& [key, entry] : entries_) *load.add_stages() = entry;
}

}  // namespace onepiece::instance
