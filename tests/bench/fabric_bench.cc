#include "tests/bench/fabric_bench.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>

#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "tests/bench/measure.h"
#include "tests/bench/ring_bench.h"

namespace onepiece::bench {
namespace {

using fabric::Op;

constexpr base::Duration kPatience = std::chrono::seconds(10);
constexpr int kClientCore = 1;

/// The same work through the fabric and by the processor alone.
struct Work {
  std::string operation;
  std::string size;
  std::string peer;
  std::function<absl::Status()> ours;
  std::function<void()> theirs;
};

absl::StatusOr<fabric::FrameProtection> ParseProtection(const std::string& name) {
  if (name.empty()) return fabric::FrameProtection::kDefault;
  if (name == "none") return fabric::FrameProtection::kNone;
  if (name == "mac") return fabric::FrameProtection::kMac;
  if (name == "aead") return fabric::FrameProtection::kAead;
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PROTECTION",
                         "frames are protected by none, mac or aead, not by " + name);
}

// Returns the microseconds of one call: the median over batches, each long enough for the clock.
absl::StatusOr<double> Time(const std::function<absl::Status()>& call, Nanoseconds window) {
  constexpr std::int64_t kBatchNs = 20'000;
  int batch = 1;
  std::vector<double> us;
  for (const std::int64_t end = NowNs() + window.count(); NowNs() < end || us.empty();) {
    const std::int64_t start = NowNs();
    for (int i = 0; i < batch; ++i) {
      if (absl::Status status = call(); !status.ok()) return status;
    }
    const std::int64_t took = NowNs() - start;
    us.push_back(static_cast<double>(took) / 1000 / batch);
    if (took < kBatchNs && batch < 1 << 16) {
      batch *= 2;
      us.clear();
    }
  }
  return Median(std::move(us));
}

absl::StatusOr<BenchResult> Run(const std::string& backend, const Work& work,
                                const FabricBenchOptions& options) {
  const int pairs = options.quick ? 1 : 5;
  const Nanoseconds window = std::chrono::milliseconds(options.quick ? 10 : 60);
  BenchResult result{.name = "fabric." + backend + "." + work.operation + "." + work.size,
                     .workload = "one operation a chain, awaited",
                     .metric = "latency_p50",
                     .unit = "us",
                     .runs = pairs};
  std::vector<double> ours;
  std::vector<double> theirs;
  std::vector<double> ratios;
  for (int pair = 0; pair < pairs; ++pair) {
    ONEPIECE_ASSIGN_OR_RETURN(const double one, Time(work.ours, window));
    ours.push_back(one);
    if (!options.peers) continue;
    const auto alone = [&work] {
      work.theirs();
      return absl::OkStatus();
    };
    ONEPIECE_ASSIGN_OR_RETURN(const double other, Time(alone, window));
    theirs.push_back(other);
    ratios.push_back(other / one);
  }
  result.ours = Median(ours);
  if (!options.peers) return result;
  result.name += "." + work.peer;
  result.comparison = Comparison{.peer = work.peer,
                                 .theirs = Median(theirs),
                                 .ratio = Median(ratios),
                                 .ratio_min = *std::ranges::min_element(ratios),
                                 .ratio_max = *std::ranges::max_element(ratios)};
  return result;
}

/// A region of this process, a channel to it, and private memory of the same size.
struct Bed {
  std::unique_ptr<fabric::Fabric> fabric;
  std::unique_ptr<fabric::Region> region;
  fabric::Loopback loopback;
  std::vector<std::byte> own;
  std::span<const std::byte> piece;
  std::uint64_t word = 0;
  std::uint64_t old = 0;

  absl::Status Execute(const Op& op) {
    return loopback.channel->Execute({&op, 1}, base::SystemClock().Now() + kPatience);
  }
  std::atomic_ref<std::uint64_t> there() {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(region->bytes().data()));
  }
};

void AddCopies(Bed& bed, const std::string& size, std::size_t bytes, std::vector<Work>& works) {
  works.push_back(
      {.operation = "write",
       .size = size,
       .peer = "memcpy",
       .ours =
           [&bed, bytes] {
             bed.piece = std::span(bed.own).first(bytes);
             return bed.Execute(Op::Write("bench.write", 0, {&bed.piece, 1}));
           },
       .theirs = [&bed,
                  bytes] { std::memcpy(bed.region->bytes().data(), bed.own.data(), bytes); }});
  works.push_back(
      {.operation = "read",
       .size = size,
       .peer = "memcpy",
       .ours =
           [&bed, bytes] {
             return bed.Execute(Op::Read("bench.read", 0, std::span(bed.own).first(bytes)));
           },
       .theirs = [&bed,
                  bytes] { std::memcpy(bed.own.data(), bed.region->bytes().data(), bytes); }});
}

// Each compare-and-swap counts the word up, so that each succeeds.
void AddAtomics(Bed& bed, std::vector<Work>& works) {
  works.push_back(
      {.operation = "fetch_add",
       .size = "8B",
       .peer = "raw",
       .ours = [&bed] { return bed.Execute(Op::FetchAdd("bench.add", 0, 1, &bed.old)); },
       .theirs = [&bed] { bed.old = bed.there().fetch_add(1); }});
  works.push_back(
      {.operation = "cas",
       .size = "8B",
       .peer = "raw",
       .ours =
           [&bed] {
             bed.word = bed.old + 1;
             const std::uint64_t compare = bed.old;
             absl::Status status =
                 bed.Execute(Op::CompareAndSwap("bench.cas", 0, compare, bed.word, &bed.old));
             if (bed.old == compare) bed.old = bed.word;
             return status;
           },
       .theirs =
           [&bed] {
             std::uint64_t seen = bed.old;
             bed.old = bed.there().compare_exchange_strong(seen, seen + 1) ? bed.old + 1 : seen;
           }});
}

}  // namespace

absl::StatusOr<BenchReport> RunFabricBench(const FabricBenchOptions& options) {
  PinTo(kClientCore);
  const std::string uri =
      options.fabric.empty() ? "shm://onepiece-bench-" + std::to_string(getpid()) : options.fabric;
  std::vector<std::pair<std::string, std::size_t>> sizes;
  std::size_t longest = sizeof(std::uint64_t);
  for (const std::string& size : options.sizes) {
    ONEPIECE_ASSIGN_OR_RETURN(const std::size_t bytes, ParseSize(size));
    sizes.emplace_back(size, bytes);
    longest = std::max(longest, bytes);
  }
  Bed bed;
  ONEPIECE_ASSIGN_OR_RETURN(const fabric::FrameProtection protection,
                            ParseProtection(options.protect));
  ONEPIECE_ASSIGN_OR_RETURN(bed.fabric,
                            fabric::Fabric::Open(uri, base::SystemClock(), {protection}));
  const std::size_t words = (longest + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
  ONEPIECE_ASSIGN_OR_RETURN(bed.region,
                            bed.fabric->Register(words * sizeof(std::uint64_t), "bench"));
  ONEPIECE_ASSIGN_OR_RETURN(bed.loopback, fabric::ConnectLoopback(*bed.fabric, *bed.region));
  bed.own.assign(longest, std::byte{1});
  std::vector<Work> works;
  for (const auto& [size, bytes] : sizes) AddCopies(bed, size, bytes, works);
  AddAtomics(bed, works);
  BenchReport report;
  for (const Work& work : works) {
    ONEPIECE_ASSIGN_OR_RETURN(auto result, Run(uri.substr(0, uri.find(':')), work, options));
    report.results.push_back(std::move(result));
  }
  return report;
}

}  // namespace onepiece::bench
