// Filtering and sorting of jobs, and the difference between two lists of rows. JobRows runs these
// on a thread of its own, because a list may have 10^5 jobs.
//
// Threading: pure functions of values.
#pragma once

#include <QString>
#include <QStringList>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cluster/session/snapshot.h"
#include "gui/models/format.h"

namespace onepiece::gui {

/// The columns of the table of jobs, in their order.
enum class JobColumn {
  kUid,
  kApp,
  kState,
  kProgress,
  kSet,
  kCreated,
  kDuration,
  kWaiting,
  kResult,
  kLabels,
  kError,
};
inline constexpr int kJobColumns = 11;
inline constexpr int kJobStates = v1::Job::State_ARRAYSIZE;

/// Which jobs are shown: those for which every condition holds that is not empty.
struct JobFilter {
  unsigned states = 0;  ///< One bit 1 << v1::Job::State for each state; 0 for all.
  std::string app, set;
  std::string label;          ///< "key=value"
  std::int64_t newest_s = 0;  ///< Created at most so many seconds ago; 0 for any time.
  /// A text in the uid, application, set, stage, state, error, a label or a parameter. Case does
  /// not matter.
  QString text;

  /// How many conditions are not empty.
  [[nodiscard]] int count() const;
  friend bool operator==(const JobFilter&, const JobFilter&) = default;
};

/// The order of rows. The default is newest first.
struct JobSort {
  JobColumn column = JobColumn::kCreated;
  bool ascending = false;
  friend bool operator==(const JobSort&, const JobSort&) = default;
};

/// One row.
///
/// Lifetime: `job` points into the list that the row was made from.
struct JobRow {
  const v1::Job* job = nullptr;
  session::Certainty certainty = session::Certainty::kKnown;
};

/// The answer to a question about a list: its rows after filter and order, and what is counted over
/// the whole list.
struct JobArrangement {
  /// Owns all jobs below. If null, there are no rows.
  std::shared_ptr<const session::JobList> list;
  std::vector<JobRow> rows;
  std::array<int, kJobStates> counts{};  ///< Jobs of the whole list, by state.
  std::vector<JobRow> active;  ///< Jobs of the whole list that have not ended, oldest first.
  /// The values in the whole list that one can filter by, sorted; at most kMaxFacets of each.
  QStringList apps, sets, labels;
  /// The jobs of the whole list that were asked for by uid. `job` is null if the list has no such
  /// job.
  std::unordered_map<std::string, session::JobEntry> watched;
};
inline constexpr int kMaxFacets = 100;

/// Filters and sorts `list`. `now_ms` is the servers' time; `watched` holds uids.
JobArrangement Arrange(std::shared_ptr<const session::JobList> list, const JobFilter& filter,
                       const JobSort& sort, std::int64_t now_ms,
                       const std::vector<std::string>& watched);

/// The steps that turn one list of rows into another: remove, reorder, insert, repaint. Each step
/// leaves a list without holes.
struct JobEdit {
  using Run = std::pair<int, int>;  ///< First and last row.
  /// Too much differs, or a uid occurs twice: all rows are replaced.
  bool reset = false;
  std::vector<Run> removed;   ///< Rows of the old list, last run first.
  std::vector<int> order;     ///< New place of each kept row. Empty if the kept rows stay in order.
  std::vector<Run> inserted;  ///< Rows of the new list, first run first.
  std::vector<Run> changed;   ///< Rows of the new list.
};
/// The steps that turn `before` into `after`.
JobEdit Compare(const std::vector<JobRow>& before, const std::vector<JobRow>& after);

/// Seconds from the job's creation to its end, or to `now_ms` if it has not ended.
double DurationOf(const v1::Job& job, std::int64_t now_ms);
/// Seconds that the job has spent in queues, as its stages report them. For a QUEUED job, all time
/// that no stage accounts for counts as waiting. Negative if not known.
double WaitingOf(const v1::Job& job, std::int64_t now_ms);
/// Bytes of all artifacts. -1 if there is no result.
std::int64_t ResultBytesOf(const v1::Job& job);

}  // namespace onepiece::gui
