// What each process of the benchmark of collectives measures, whoever's collectives these are.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace onepiece::bench {

/// One process of a group that stands, and its collective operations on F32.
class Contestant {
 public:
  using Floats = std::span<float>;
  virtual ~Contestant() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  virtual void Broadcast(Floats data) = 0;
  /// Each rank's part lies in its place.
  virtual void AllGather(Floats all) = 0;
  /// False when it has none.
  virtual bool ReduceScatter(Floats all, Floats part) = 0;
  virtual void AllReduce(Floats data) = 0;
  virtual void AllToAll(Floats sent, Floats received) = 0;
  virtual void Barrier() = 0;
  /// Goes on with a new group of the same ranks.
  virtual void ChangeGroup() = 0;
};

struct ContestSize {
  const char* name;
  std::size_t bytes;  ///< Of the whole, of which each rank has a part.
};
inline constexpr ContestSize kContestSizes[] = {
    {"1KiB", 1 << 10}, {"64KiB", 1 << 16}, {"1MiB", 1 << 20}, {"16MiB", 1 << 24}};
inline constexpr const char* kContestOperations[] = {"broadcast", "all_gather", "reduce_scatter",
                                                     "all_reduce", "all_to_all"};

namespace contest {

using Clock = std::chrono::steady_clock;

inline double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

inline double MiddleOf(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// Microseconds a call: the middle one of three batches of about `batch_us`, as rank 0 sees them.
template <typename Call>
double TimeCalls(Contestant& group, double batch_us, Call call) {
  call();
  group.Barrier();
  const auto trial = Clock::now();
  for (int i = 0; i < 3; ++i) call();
  // All ranks must call equally often, so rank 0 says how often.
  std::vector<float> count{
      static_cast<float>(std::clamp(batch_us / (MicrosecondsSince(trial) / 3), 2.0, 1000.0))};
  group.Broadcast(count);
  const int calls = static_cast<int>(count[0]);
  std::vector<double> batches;
  for (int batch = 0; batch < 3; ++batch) {
    group.Barrier();
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    batches.push_back(MicrosecondsSince(start) / calls);
  }
  return MiddleOf(batches);
}

inline bool CallOnce(Contestant& group, const std::string& operation, std::vector<float>& data,
                     std::vector<float>& other) {
  const std::size_t part = data.size() / static_cast<std::size_t>(group.size());
  if (operation == "broadcast") group.Broadcast(data);
  if (operation == "all_gather") group.AllGather(data);
  if (operation == "reduce_scatter") return group.ReduceScatter(data, std::span(other).first(part));
  if (operation == "all_reduce") group.AllReduce(data);
  if (operation == "all_to_all") group.AllToAll(data, other);
  return true;
}

inline void Print(const Contestant& group, const std::string& name, double value) {
  if (group.rank() == 0) std::printf("%s %.3f\n", name.c_str(), value);
}

/// The first barrier of a new group, less a barrier of a group that stands: the middle ones of
/// both.
inline double TimeGroupChange(Contestant& group, int changes) {
  std::vector<double> first;
  std::vector<double> again;
  for (int i = 0; i < changes; ++i) {
    group.Barrier();
    auto start = Clock::now();
    group.ChangeGroup();
    group.Barrier();
    first.push_back(MicrosecondsSince(start));
    start = Clock::now();
    group.Barrier();
    again.push_back(MicrosecondsSince(start));
  }
  // Less than the clock can tell counts as a hundredth, so that there is a ratio.
  return std::max(0.01, MiddleOf(first) - MiddleOf(again));
}

}  // namespace contest

/// Measures everything. Rank 0 prints lines of a name and microseconds.
inline void RunContest(Contestant& group, double batch_us) {
  using contest::Print;
  for (const ContestSize& size : kContestSizes) {
    std::vector<float> data(size.bytes / sizeof(float), 0.0F);
    std::vector<float> other(data.size());
    for (const char* operation : kContestOperations) {
      if (!contest::CallOnce(group, operation, data, other)) continue;
      const double time = contest::TimeCalls(
          group, batch_us, [&] { (void)contest::CallOnce(group, operation, data, other); });
      Print(group, std::string(operation) + "." + size.name, time);
    }
  }
  Print(group, "barrier", contest::TimeCalls(group, batch_us, [&] { group.Barrier(); }));
  Print(group, "group_change", contest::TimeGroupChange(group, 101));
  std::fflush(stdout);
}

}  // namespace onepiece::bench
