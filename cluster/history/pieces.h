// Takes a snapshot apart into what a recording keeps, and puts it together again. The pieces are
// things (messages without their numbers), jobs, and numbers as named series. Internal to
// cluster/history.
//
// A number is a leaf of a message that changes by itself: a load, a counter, an age. Protobuf
// reflection finds it, so that a new field of NodeLoad becomes a new series. Fields that identify
// something (incarnations, producer ids, pids) stay in the thing, and so does an integer that a
// double cannot hold.
//
// Threading: pure functions.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "cluster/session/snapshot.h"

namespace onepiece::history {

/// Serialised messages by key: "node/instance-1", "ring/instance-1", "plan/7f…", "cluster".
using Things = std::map<std::string, std::string, std::less<>>;

struct Number {
  std::string name;  ///< As SeriesInfo::name.
  double value = 0;
};

struct Pieces {
  Things things;  ///< Without jobs.
  std::vector<Number> numbers;
};

/// Numbers beyond this many stay in the things.
inline constexpr std::size_t kMaxNumbers = 50'000;

/// Takes a snapshot apart. `jobs_left_out` says that not all of its jobs are recorded.
Pieces TakeApart(const session::Snapshot& snapshot, bool jobs_left_out = false);
/// Returns the value of a number, or NaN when it is not known.
using FindNumber = absl::FunctionRef<double(const std::string& name)>;
/// Puts a snapshot together from the things. A thing that is no message of its kind is left out.
session::Snapshot PutTogether(const Things& things, std::vector<session::JobEntry> jobs,
                              FindNumber find);

/// The jobs of a list that are recorded: those that have not ended, and the newest ones that have.
struct JobsToRecord {
  std::vector<const session::JobEntry*> jobs;
  bool left_out = false;
};
inline constexpr std::size_t kMaxActiveJobs = 10'000;
inline constexpr std::size_t kMaxEndedJobs = 1'000;
JobsToRecord ChooseJobs(const session::JobList& list);
std::string JobBytes(const session::JobEntry& entry);
std::optional<session::JobEntry> ParseJob(std::string_view bytes);

/// Returns a number's unit by its name: "ratio", "bytes", …, as SeriesInfo::unit.
std::string UnitOf(std::string_view name);

}  // namespace onepiece::history
