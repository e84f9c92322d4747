// Which jobs are shown, in which order, and what differs between two such lists: what is computed
// of 10^5 jobs off the GUI thread.
//
// Threading  Pure functions of values.
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

/// Everything that is not empty must hold.
struct JobFilter {
  unsigned states = 0;  ///< Bit 1 << v1::Job::State of each; 0: all.
  std::string app, set;
  std::string label;          ///< "key=value"
  std::int64_t newest_s = 0;  ///< Created so many seconds ago at most; 0: any time.
  /// In the uid, application, set, stage, state, error, a label or a parameter; case does not
  /// matter.
  QString text;

  /// How many of them are not empty.
  [[nodiscard]] int count() const;
  friend bool operator==(const JobFilter&, const JobFilter&) = default;
};

struct JobSort {
  JobColumn column = JobColumn::kCreated;
  bool ascending = false;
  friend bool operator==(const JobSort&, const JobSort&) = default;
};

/// Borrowed from the list that it was made of.
struct JobRow {
  const v1::Job* job = nullptr;
  Certainty certainty = Certainty::kKnown;
};

/// The rows that are shown of a list.
struct JobArrangement {
  std::shared_ptr<const JobList> list;  ///< Owns all jobs below. May be null: no rows.
  std::vector<JobRow> rows;
  std::array<int, kJobStates> counts{};  ///< Of the whole list, by state.
  std::vector<JobRow> active;            ///< Of the whole list: not ended; oldest first.
  /// Of the whole list: what there is to filter by; at most kMaxFacets of each, in their order.
  QStringList apps, sets, labels;
  /// Of the whole list: the jobs that were asked for by uid; null: there is none.
  std::unordered_map<std::string, JobEntry> watched;
};
inline constexpr int kMaxFacets = 100;

/// `now_ms` is the servers' time. `watched` are uids.
JobArrangement Arrange(std::shared_ptr<const JobList> list, const JobFilter& filter,
                       const JobSort& sort, std::int64_t now_ms,
                       const std::vector<std::string>& watched);

/// How rows become others, in this order of steps; each leaves a list without holes.
struct JobEdit {
  using Run = std::pair<int, int>;  ///< First and last row.
  /// Too much differs (or a uid is there twice): all rows are new.
  bool reset = false;
  std::vector<Run> removed;   ///< Of the old rows, last run first.
  std::vector<int> order;     ///< New place of each row that was kept; empty: they stay in order.
  std::vector<Run> inserted;  ///< Of the new rows, first run first.
  std::vector<Run> changed;   ///< Of the new rows.
};
JobEdit Compare(const std::vector<JobRow>& before, const std::vector<JobRow>& after);

/// From its creation to its end, or to now.
double DurationOf(const v1::Job& job, std::int64_t now_ms);
/// In queues: what its stages have told, and for a job that is QUEUED, all time that is not
/// accounted for. Negative: not known.
double WaitingOf(const v1::Job& job, std::int64_t now_ms);
/// Bytes of all artifacts; -1: there is no result.
std::int64_t ResultBytesOf(const v1::Job& job);

}  // namespace onepiece::gui
