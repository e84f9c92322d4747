// What a recording keeps of a snapshot: things (messages without their numbers), jobs, and numbers
// as named series; and the snapshot again out of them. Internal to gui/history.
//
// What       A number is a leaf of a message that changes by itself: a load, a counter, an age. It
//            is found by protobuf reflection, so that a new field of NodeLoad is a new series. What
//            says who something is (incarnations, producer ids, pids) stays in the thing, and so
//            does an integer that a double cannot hold.
// Threading  Pure functions.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "cluster/session/snapshot.h"

namespace onepiece::gui::history {

/// Protobuf bytes by key: "node/instance-1", "ring/instance-1", "plan/7f…", "cluster".
using Things = std::map<std::string, std::string, std::less<>>;

struct Number {
  std::string name;  ///< As SeriesInfo::name.
  double value = 0;
};

struct Pieces {
  Things things;  ///< Without jobs.
  std::vector<Number> numbers;
};

/// Numbers beyond it stay in the things.
inline constexpr std::size_t kMaxNumbers = 50'000;

/// `jobs_left_out`: of the jobs, what is recorded is not all.
Pieces TakeApart(const Snapshot& snapshot, bool jobs_left_out = false);
/// A number's value now; NaN when it is not known.
using FindNumber = absl::FunctionRef<double(const std::string& name)>;
/// The parts that the things tell of; a thing that is no message of its kind is left out.
Snapshot PutTogether(const Things& things, std::vector<JobEntry> jobs, FindNumber find);

/// Which jobs of a list are recorded: those that have not ended and the newest that have.
struct JobsToRecord {
  std::vector<const JobEntry*> jobs;
  bool left_out = false;
};
inline constexpr std::size_t kMaxActiveJobs = 10'000;
inline constexpr std::size_t kMaxEndedJobs = 1'000;
JobsToRecord ChooseJobs(const JobList& list);
[[nodiscard]] bool HasEnded(const v1::Job& job);
std::string JobBytes(const JobEntry& entry);
std::optional<JobEntry> ParseJob(std::string_view bytes);

/// "ratio", "bytes", …, as SeriesInfo::unit, by the number's name.
std::string UnitOf(std::string_view name);
/// Same message, same bytes (maps are sorted).
std::string StableBytes(const google::protobuf::MessageLite& message);

}  // namespace onepiece::gui::history
