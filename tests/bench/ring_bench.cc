#include "tests/bench/ring_bench.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "tests/bench/measure.h"

namespace onepiece::bench {
namespace {

constexpr std::size_t kSmallBytes = 4096;       // Up to this size, rate and latency are meaningful.
constexpr std::size_t kBandwidthBytes = 65536;  // From this size on, bandwidth is.

/// One row: our measurement, the peer's, and how their numbers become those of the row.
struct Row {
  std::string metric;
  std::string size;
  std::string workload;
  std::string unit;
  std::string better;
  double scale = 1;  ///< Factor from the measurement's number to the row's unit.
  Measurement ours;
  std::optional<Measurement> theirs;
};

std::string Name(const Row& row, const std::string& peer) {
  std::string name =
      "ring.shm." + row.size + "." + std::to_string(row.ours.producers) + "p." + row.metric;
  return peer.empty() ? name : name + "." + peer;
}

// Measures alternating pairs, so that other work on the machine affects both sides.
absl::StatusOr<BenchResult> Run(const Row& row, const std::string& peer, int pairs) {
  BenchResult result{.name = Name(row, peer),
                     .workload = row.workload,
                     .metric = row.metric,
                     .unit = row.unit,
                     .better = row.better,
                     .runs = pairs};
  std::fprintf(stderr, "%s\n", result.name.c_str());
  std::vector<double> ours;
  std::vector<double> theirs;
  for (int pair = 0; pair < pairs; ++pair) {
    const auto one = Measure(row.ours);
    if (!one.ok()) return one.status();
    ours.push_back(*one * row.scale);
    if (!row.theirs.has_value()) continue;
    const auto other = Measure(*row.theirs);
    if (!other.ok()) {
      // A failing peer costs its own comparison and not the run.
      std::fprintf(stderr, "%s: %s\n", result.name.c_str(), other.status().ToString().c_str());
      result.runs = pair + 1;
      break;
    }
    theirs.push_back(*other * row.scale);
  }
  result.ours = Median(ours);
  if (theirs.empty()) return result;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < theirs.size(); ++i) {
    ratios.push_back(row.better == "higher" ? ours[i] / theirs[i] : theirs[i] / ours[i]);
  }
  result.comparison = Comparison{.peer = peer,
                                 .theirs = Median(theirs),
                                 .ratio = Median(ratios),
                                 .ratio_min = *std::ranges::min_element(ratios),
                                 .ratio_max = *std::ranges::max_element(ratios)};
  return result;
}

class Plan {
 public:
  explicit Plan(const RingBenchOptions& options) : options_(options) {
    if (options.quick) window_ = std::chrono::milliseconds(60);
  }

  // Returns every row of one size.
  absl::Status Add(const std::string& size) {
    const auto bytes = ParseSize(size);
    if (!bytes.ok()) return bytes.status();
    for (const int producers : options_.producers) {
      const bool one = producers == 1;
      if (*bytes <= kSmallBytes) Rate(size, *bytes, producers);
      if (*bytes >= kBandwidthBytes) Bandwidth(size, *bytes, producers);
      if (one && *bytes <= kSmallBytes) Latency(size, *bytes);
    }
    const bool single = std::ranges::find(options_.producers, 1) != options_.producers.end();
    if (single && *bytes <= 64) WakeUp(size, *bytes);
    return absl::OkStatus();
  }

  /// Rows, each with its peer, "" for none.
  [[nodiscard]] const std::vector<std::pair<Row, std::string>>& rows() const { return rows_; }

 private:
  static bool IsLimit(const std::string& peer) { return peer == "memcpy" || peer == "pingpong"; }

  // Adds a row for each peer that `takes` accepts. Without any peer, adds our number alone.
  template <typename Takes>
  void ForPeers(const Row& row, const Takes& takes) {
    bool any = false;
    for (const std::string& peer : options_.peers) {
      if (!takes(peer)) continue;
      Row with = row;
      with.theirs = row.ours;
      with.theirs->port = peer;
      rows_.emplace_back(with, peer);
      any = true;
    }
    if (!any && options_.peers.empty()) rows_.emplace_back(row, "");
  }

  Measurement Ours(Kind kind, std::size_t bytes, int producers, Mode mode) const {
    return {.port = "ring",
            .kind = kind,
            .message_bytes = bytes,
            .producers = producers,
            .mode = mode,
            .window = window_};
  }

  void Rate(const std::string& size, std::size_t bytes, int producers) {
    const Row row{.metric = "rate",
                  .size = size,
                  .workload = "producers on one core send to a consumer on the other",
                  .unit = "messages/s",
                  .better = "higher",
                  .ours = Ours(Kind::kStream, bytes, producers, {})};
    ForPeers(row, [](const std::string& peer) { return !IsLimit(peer); });
  }

  void Latency(const std::string& size, std::size_t bytes) {
    const Row row{.metric = "p50",
                  .size = size,
                  .workload = "half of a round trip, one message at a time, both sides spin",
                  .unit = "us",
                  .better = "lower",
                  .ours = Ours(Kind::kLatency, bytes, 1, {})};
    ForPeers(row, [](const std::string& peer) { return peer != "memcpy"; });
  }

  void Bandwidth(const std::string& size, std::size_t bytes, int producers) {
    Row row{.metric = "bandwidth",
            .size = size,
            .workload = "payloads without a checksum, copied into the ring and out of it",
            .unit = "GB/s",
            .better = "higher",
            .scale = static_cast<double>(bytes) / 1e9,
            .ours = Ours(Kind::kStream, bytes, producers, {.checksum = false})};
    const auto takes = [producers](const std::string& peer) {
      return peer != "pingpong" && (peer != "memcpy" || producers == 1);
    };
    if (producers == 1) ForPeers(row, takes);
    row.metric = "bandwidth_crc";
    row.workload = "payloads with CRC-32C on both sides, copied into the ring and out of it";
    row.ours.mode.checksum = true;
    ForPeers(row, [&](const std::string& peer) {
      return takes(peer) && (peer == "memcpy" || peer == "zeromq");
    });
  }

  void WakeUp(const std::string& size, std::size_t bytes) {
    Row wake{.metric = "wakeup",
             .size = size,
             .workload = "from the send to a receiver that slept; theirs is a bare futex",
             .unit = "us",
             .better = "lower",
             .ours = Ours(Kind::kWakeUp, bytes, 1, {.spin = false})};
    wake.theirs = wake.ours;
    wake.theirs->port = "futex";
    rows_.emplace_back(wake, "futex");
    Row idle{.metric = "idle_cpu",
             .size = size,
             .workload = "processor time of a waiting receiver, its recovery ticking",
             .unit = "%",
             .better = "lower",
             .ours = Ours(Kind::kIdle, bytes, 1, {.spin = false})};
    idle.ours.window = 3 * window_;
    rows_.emplace_back(idle, "");
  }

  const RingBenchOptions& options_;
  Nanoseconds window_ = std::chrono::milliseconds(150);
  std::vector<std::pair<Row, std::string>> rows_;
};

}  // namespace

const std::vector<std::string>& RingPeers() {
  static const std::vector<std::string> peers = RingBenchOptions().peers;
  return peers;
}

absl::StatusOr<std::size_t> ParseSize(const std::string& text) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const std::size_t factor = unit == "B" ? 1 : unit == "KiB" ? 1024 : unit == "MiB" ? 1 << 20 : 0;
  constexpr std::size_t kLargest = std::size_t{256} << 20;
  if (error != std::errc() || factor == 0 || number == 0 || number > kLargest / factor ||
      number * factor < sizeof(std::uint64_t)) {
    return absl::InvalidArgumentError(
        "a size is written as 64B, 4KiB or 4MiB (8B to 256MiB), not " + text);
  }
  return number * factor;
}

absl::StatusOr<BenchReport> RunRingBench(const RingBenchOptions& options) {
  Plan plan(options);
  for (const std::string& size : options.sizes) {
    if (absl::Status status = plan.Add(size); !status.ok()) return status;
  }
  const int pairs = options.quick ? 1 : 5;
  BenchReport report;
  for (const auto& [row, peer] : plan.rows()) {
    auto result = Run(row, peer, pairs);
    if (!result.ok()) return result.status();
    report.results.push_back(*std::move(result));
  }
  return report;
}

}  // namespace onepiece::bench
