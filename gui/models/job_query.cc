#include "gui/models/job_query.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "cluster/client/client.h"
#include "gui/models/format.h"

namespace onepiece::gui {
namespace {

/// With more runs than this, one reset is cheaper than a signal for each run.
constexpr std::size_t kMaxRuns = 64;

double Seconds(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9;
}

/// The text that a filter looks for in many jobs.
class Needle {
 public:
  explicit Needle(const QString& text) : text_(text) {}
  [[nodiscard]] bool In(const std::string& bytes) const {
    return !bytes.empty() && QString::fromUtf8(bytes.data(), static_cast<qsizetype>(bytes.size()))
                                 .contains(text_, Qt::CaseInsensitive);
  }
  [[nodiscard]] bool In(const v1::Job& job) const {
    if (In(job.uid()) || In(job.app_id()) || In(job.workflow_set()) || In(job.stage()) ||
        In(job.error().reason()) || In(job.error().message()) ||
        JobStateName(job.state()).contains(text_, Qt::CaseInsensitive)) {
      return true;
    }
    for (const auto& [key, value] : job.labels()) {
      if (In(key + "=" + value)) return true;
    }
    for (const auto& [name, value] : job.parameters().fields()) {
      if (In(value.string_value())) return true;
    }
    return false;
  }

 private:
  const QString& text_;
};

bool HasLabel(const v1::Job& job, const std::string& label) {
  const std::size_t equals = label.find('=');
  const auto found = job.labels().find(label.substr(0, equals));
  return found != job.labels().end() && equals != std::string::npos &&
         found->second == label.substr(equals + 1);
}

bool Accepts(const JobFilter& filter, const Needle& needle, const v1::Job& job,
             std::int64_t now_ms) {
  if (filter.states != 0 && (filter.states & 1u << job.state()) == 0) return false;
  if (!filter.app.empty() && job.app_id() != filter.app) return false;
  if (!filter.set.empty() && job.workflow_set() != filter.set) return false;
  if (filter.newest_s > 0 && ToMs(job.create_time()) < now_ms - filter.newest_s * 1000)
    return false;
  if (!filter.label.empty() && !HasLabel(job, filter.label)) return false;
  return filter.text.isEmpty() || needle.In(job);
}

/// What a column sorts by: first a number, then a text.
struct SortKey {
  double number = 0;
  std::string_view text;
};

double Share(const v1::Job& job) {
  if (client::IsTerminal(job.state())) return 1;
  const double step = job.steps() > 0 ? static_cast<double>(job.step()) / job.steps() : 0;
  return (job.stage_index() + step) / std::max(1, job.stage_count());
}

SortKey KeyOf(const v1::Job& job, JobColumn column, std::int64_t now_ms) {
  switch (column) {
    case JobColumn::kUid:
      return {0, job.uid()};
    case JobColumn::kApp:
      return {0, job.app_id()};
    case JobColumn::kState:
      return {static_cast<double>(job.state()), {}};
    case JobColumn::kProgress:
      return {Share(job), {}};
    case JobColumn::kSet:
      return {0, job.workflow_set()};
    case JobColumn::kCreated:
      return {static_cast<double>(ToMs(job.create_time())), {}};
    case JobColumn::kDuration:
      return {DurationOf(job, now_ms), {}};
    case JobColumn::kWaiting:
      return {WaitingOf(job, now_ms), {}};
    case JobColumn::kResult:
      return {static_cast<double>(ResultBytesOf(job)), {}};
    case JobColumn::kLabels:
      return {static_cast<double>(job.labels().size()), {}};
    case JobColumn::kError:
      return {0, job.error().reason()};
  }
  return {};
}

void Sort(std::vector<JobRow>& rows, const JobSort& sort, std::int64_t now_ms) {
  if (sort.column == JobColumn::kCreated) {  // Session lists are newest first.
    if (sort.ascending) std::reverse(rows.begin(), rows.end());
    return;
  }
  struct Keyed {
    SortKey key;
    JobRow row;
  };
  std::vector<Keyed> keyed;
  keyed.reserve(rows.size());
  for (const JobRow& row : rows) keyed.push_back({KeyOf(*row.job, sort.column, now_ms), row});
  const auto less = [](const SortKey& a, const SortKey& b) {
    return a.number != b.number ? a.number < b.number : a.text < b.text;
  };
  // The sort is stable and the list is newest first, so the newest of equal rows comes first in
  // both directions.
  std::stable_sort(keyed.begin(), keyed.end(), [&](const Keyed& a, const Keyed& b) {
    return sort.ascending ? less(a.key, b.key) : less(b.key, a.key);
  });
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = keyed[i].row;
}

/// The distinct values of one property, up to kMaxFacets. It remembers the last value, because
/// neighbours in a list often have the same one.
class Facet {
 public:
  void Add(std::string_view value) {
    if (value.empty() || value == last_ || values_.size() == kMaxFacets) return;
    last_ = value;
    values_.insert(value);
  }
  [[nodiscard]] QStringList values() const {
    QStringList list;
    for (const std::string_view value : values_) {
      list.append(QString::fromUtf8(value.data(), static_cast<qsizetype>(value.size())));
    }
    return list;
  }

 private:
  std::set<std::string_view> values_;
  std::string_view last_;
};

bool Same(const JobRow& a, const JobRow& b) { return a.job == b.job && a.certainty == b.certainty; }
bool IsOne(const JobRow& a, const JobRow& b) {
  return a.job == b.job || a.job->uid() == b.job->uid();
}

/// Adds a row to the last run, or begins a new run with it.
void Add(std::vector<JobEdit::Run>& runs, int row) {
  if (!runs.empty() && runs.back().second + 1 == row) {
    runs.back().second = row;
  } else {
    runs.emplace_back(row, row);
  }
}

/// Makes JobEdit::order. `kept` holds the new places of the rows that were kept between the first
/// `first` rows and the last `tail` rows.
std::vector<int> OrderOfKept(std::size_t first, const std::vector<int>& kept, std::size_t tail) {
  if (std::is_sorted(kept.begin(), kept.end())) return {};
  std::vector<int> sorted = kept;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> order;
  order.reserve(first + kept.size() + tail);
  for (std::size_t i = 0; i < first; ++i) order.push_back(static_cast<int>(i));
  for (const int row : kept) {
    const auto place = std::lower_bound(sorted.begin(), sorted.end(), row) - sorted.begin();
    order.push_back(static_cast<int>(first) + static_cast<int>(place));
  }
  for (std::size_t i = 0; i < tail; ++i) order.push_back(static_cast<int>(order.size()));
  return order;
}

std::unordered_map<std::string_view, const JobRow*> OldRows(const std::vector<JobRow>& before,
                                                            std::size_t first, std::size_t end) {
  std::unordered_map<std::string_view, const JobRow*> rows;
  rows.reserve(end - first);
  for (std::size_t i = first; i < end; ++i) rows.emplace(before[i].job->uid(), &before[i]);
  return rows;
}

}  // namespace

int JobFilter::count() const {
  return (states != 0) + !app.empty() + !set.empty() + !label.empty() + (newest_s > 0) +
         !text.isEmpty();
}

JobArrangement Arrange(std::shared_ptr<const session::JobList> list, const JobFilter& filter,
                       const JobSort& sort, std::int64_t now_ms,
                       const std::vector<std::string>& watched) {
  JobArrangement made;
  for (const std::string& uid : watched) made.watched[uid] = {};
  made.list = std::move(list);
  if (made.list == nullptr) return made;
  Facet apps, sets;
  std::set<std::string> labels;
  const Needle needle(filter.text);
  const bool all = filter.count() == 0;
  made.rows.reserve(made.list->jobs.size());
  for (const session::JobEntry& entry : made.list->jobs) {
    const v1::Job& job = *entry.job;
    const auto state = static_cast<std::size_t>(job.state());
    if (state < made.counts.size()) ++made.counts[state];
    apps.Add(job.app_id());
    sets.Add(job.workflow_set());
    for (const auto& [key, value] : job.labels()) {
      if (labels.size() < kMaxFacets) labels.insert(key + "=" + value);
    }
    const JobRow row{&job, entry.certainty};
    if (!client::IsTerminal(job.state())) made.active.push_back(row);
    if (!watched.empty()) {
      if (const auto at = made.watched.find(job.uid()); at != made.watched.end())
        at->second = entry;
    }
    if (all || Accepts(filter, needle, job, now_ms)) made.rows.push_back(row);
  }
  std::reverse(made.active.begin(), made.active.end());
  made.apps = apps.values();
  made.sets = sets.values();
  for (const std::string& label : labels) made.labels.append(QString::fromStdString(label));
  Sort(made.rows, sort, now_ms);
  return made;
}

JobEdit Compare(const std::vector<JobRow>& before, const std::vector<JobRow>& after) {
  JobEdit edit;
  std::size_t first = 0, old_end = before.size(), new_end = after.size();
  // Most updates change little. Rows that are the same at both ends are set aside before anything
  // is hashed.
  while (first < old_end && first < new_end && IsOne(before[first], after[first])) ++first;
  while (old_end > first && new_end > first && IsOne(before[old_end - 1], after[new_end - 1])) {
    --old_end, --new_end;
  }
  std::unordered_map<std::string_view, std::size_t> places;
  places.reserve(new_end - first);
  for (std::size_t i = first; i < new_end; ++i) places.emplace(after[i].job->uid(), i);
  bool twice = places.size() != new_end - first;
  std::vector<char> kept(new_end - first, 0);
  std::vector<int> order;
  for (std::size_t i = first; i < old_end && edit.removed.size() <= kMaxRuns; ++i) {
    const auto place = places.find(before[i].job->uid());
    if (place == places.end()) {
      Add(edit.removed, static_cast<int>(i));
      continue;
    }
    char& known = kept[place->second - first];
    twice = twice || known != 0;
    known = 1;
    order.push_back(static_cast<int>(place->second));
  }
  for (std::size_t i = first; i < new_end && edit.inserted.size() <= kMaxRuns; ++i) {
    if (kept[i - first] == 0) Add(edit.inserted, static_cast<int>(i));
  }
  if (twice || edit.removed.size() > kMaxRuns || edit.inserted.size() > kMaxRuns) {
    edit = {};
    edit.reset = true;
    return edit;
  }
  std::reverse(edit.removed.begin(), edit.removed.end());
  edit.order = OrderOfKept(first, order, before.size() - old_end);
  const auto old_row = OldRows(before, first, old_end);
  for (std::size_t i = 0; i < after.size(); ++i) {
    const JobRow* old = nullptr;
    if (i < first) {
      old = &before[i];
    } else if (i >= new_end) {
      old = &before[old_end + (i - new_end)];
    } else if (kept[i - first] != 0) {
      old = old_row.at(after[i].job->uid());
    }
    // A job that has changed is another object, because the parts of a snapshot are replaced and
    // never changed. So Same() compares pointers.
    if (old != nullptr && !Same(*old, after[i])) Add(edit.changed, static_cast<int>(i));
  }
  return edit;
}

double DurationOf(const v1::Job& job, std::int64_t now_ms) {
  const std::int64_t end_ms = job.has_end_time() ? ToMs(job.end_time()) : now_ms;
  return static_cast<double>(std::max<std::int64_t>(0, end_ms - ToMs(job.create_time()))) * 1e-3;
}

double WaitingOf(const v1::Job& job, std::int64_t now_ms) {
  double queued = 0, worked = 0;
  for (const v1::StageTiming& timing : job.timings()) {
    queued += Seconds(timing.queued());
    worked += Seconds(timing.compute()) + Seconds(timing.transfer());
  }
  if (job.state() == v1::Job::QUEUED) {
    return std::max(queued, DurationOf(job, now_ms) - worked);
  }
  return job.timings().empty() ? -1 : queued;
}

std::int64_t ResultBytesOf(const v1::Job& job) {
  if (job.result().artifacts().empty()) return -1;
  std::int64_t bytes = 0;
  for (const v1::ResultArtifact& artifact : job.result().artifacts()) {
    bytes += std::max<std::int64_t>(0, artifact.size_bytes());
  }
  return bytes;
}

}  // namespace onepiece::gui
