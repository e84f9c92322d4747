// `onepiece-bench-recording`: records an hour of about 500 series and looks at it. Beside it stores
// the same numbers as one SQLite row for each sample, in the same run and with the same settings.
// Then does both again with 100 jobs at work.
#include <sqlite3.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/history/pieces.h"
#include "cluster/history/recorder.h"
#include "cluster/history/recording.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/report_main.h"

namespace onepiece::bench {
namespace {

using namespace history;

constexpr int kTicks = 3600;
constexpr int kNodes = 14;
constexpr int kLooks = 400;
constexpr int kJobs = 100;
constexpr std::int64_t kStart = 1'800'000'000'000;

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", base::Message(status).c_str());
  std::exit(1);
}

void Sql(sqlite3* file, const char* sql) {
  if (sqlite3_exec(file, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return;
  std::fprintf(stderr, "%s\n", sqlite3_errmsg(file));
  std::exit(1);
}

double Millis(base::MonotonicTime since) {
  return std::chrono::duration<double, std::milli>(base::SystemClock().Now() - since).count();
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// A cluster at work. Loads wander and counters grow by uneven steps. Each of a number of jobs
/// makes a step in most seconds, and a new job replaces one that is done.
class Cluster {
 public:
  explicit Cluster(int jobs = 0) : jobs_(static_cast<std::size_t>(jobs)) {}
  session::Snapshot Next() {
    auto cluster = std::make_shared<v1::Cluster>();
    auto rings = std::make_shared<session::Rings>();
    cluster->set_cluster_id("bench");
    for (int i = 0; i < kNodes; ++i) {
      State& state = states_[static_cast<std::size_t>(i)];
      state.utilization = std::clamp(state.utilization + 0.03 * Draw(), 0.0, 1.0);
      state.work += 0.5 + 0.5 * Draw();
      state.jobs += random_() % 3;
      v1::Node& node = *cluster->add_nodes();
      node.set_node_id("instance-" + std::to_string(i));
      node.set_state(v1::Node::READY);
      node.mutable_last_report_time()->set_seconds((kStart + 1000 * tick_) / 1000);
      v1::NodeLoad& load = *node.mutable_load();
      load.set_utilization(state.utilization);
      load.set_queued_jobs(static_cast<std::int64_t>(random_() % 9));
      load.set_running_jobs(static_cast<std::int64_t>(random_() % 2));
      load.set_memory_bytes((std::int64_t{30} << 30) +
                            static_cast<std::int64_t>(random_() % 4096) * 4096);
      load.set_sample_unix_ms(kStart + 1000 * tick_ + static_cast<std::int64_t>(random_() % 100));
      v1::StageLoad& stage = *load.add_stages();
      stage.set_app_id("wan");
      stage.set_stage("diffusion");
      stage.set_jobs(state.jobs);
      stage.set_compute_s(state.work);
      stage.set_queued_s(2 * state.work);
      session::RingEntry& ring = rings->emplace_back();
      ring.node_id = node.node_id();
      ring.health.set_used_slots(random_() % 4);
      ring.health.mutable_counters()->set_delivered(3 * state.jobs);
      ring.health.mutable_counters()->set_delivered_bytes(state.jobs * 4'200'017);
      ring.as_of_ms = kStart + 1000 * tick_;
    }
    session::Snapshot snapshot;
    snapshot.at_ms = kStart + 1000 * tick_++;
    if (!jobs_.empty()) snapshot.jobs = {NextJobs(), snapshot.at_ms, ""};
    snapshot.cluster = {cluster, snapshot.at_ms, ""};
    snapshot.rings = {rings, snapshot.at_ms, ""};
    return snapshot;
  }

 private:
  struct State {
    double utilization = 0.5, work = 0;
    std::uint64_t jobs = 0;
  };
  std::shared_ptr<const session::JobList> NextJobs() {
    auto list = std::make_shared<session::JobList>();
    for (std::shared_ptr<const v1::Job>& job : jobs_) {
      if (job && random_() % 10 < 3) continue;
      auto next = job ? std::make_shared<v1::Job>(*job) : std::make_shared<v1::Job>();
      if (!job || job->step() == job->steps()) {
        next->Clear();
        next->set_uid("00000000-0000-4000-8000-" + std::to_string(100'000'000'000 + job_count_++));
        next->set_name("jobs/" + next->uid());
        next->set_app_id("wan");
        next->set_state(v1::Job::RUNNING);
        next->set_stage("diffusion");
        next->set_steps(50);
        next->mutable_create_time()->set_seconds(kStart / 1000 + tick_);
        (*next->mutable_parameters()->mutable_fields())["prompt"].set_string_value(
            "a green square that moves up, number " + std::to_string(job_count_));
      } else {
        next->set_step(next->step() + 1);
      }
      job = next;
    }
    for (const auto& job : jobs_) {
      if (job) list->jobs.push_back({job, session::Certainty::kKnown});
    }
    return list;
  }
  double Draw() { return static_cast<double>(random_() % 2000) / 1000 - 1; }
  std::mt19937 random_{7};
  std::vector<State> states_ = std::vector<State>(kNodes);
  std::vector<std::shared_ptr<const v1::Job>> jobs_;
  std::int64_t tick_ = 0, job_count_ = 0;
};

struct Figures {
  double mib = 0, write_ms = 0, look_ms = 0, series_ms = 0, series = 0;
};

Figures MeasureRecording(const std::string& path, int jobs) {
  Figures figures;
  Limits limits;
  limits.keep_free_bytes = 0;
  session::LinkStatus link;
  link.link = session::Link::kLive;
  {
    auto recorder = Recorder::Open(path, limits);
    Require(recorder.status());
    Cluster cluster(jobs);
    for (int tick = 0; tick < kTicks; ++tick) {
      const session::Snapshot snapshot = cluster.Next();
      const auto start = base::SystemClock().Now();
      Require((*recorder)->Record(snapshot, link));
      figures.write_ms += Millis(start) / kTicks;
    }
  }
  figures.mib = static_cast<double>(std::filesystem::file_size(path)) / (1 << 20);
  auto recording = Recording::Open(path);
  Require(recording.status());
  figures.series = static_cast<double>((*recording)->ListSeries()->size());
  std::mt19937 random(11);
  std::vector<double> looks, series;
  for (int i = 0; i < kLooks; ++i) {
    const auto start = base::SystemClock().Now();
    Require((*recording)->At(kStart + 1000 * (random() % kTicks)).status());
    looks.push_back(Millis(start));
  }
  for (int i = 0; i < 5; ++i) {
    const auto start = base::SystemClock().Now();
    Require((*recording)
                ->Series("node/instance-3/utilization", {kStart, kStart + 1000 * kTicks}, kTicks)
                .status());
    series.push_back(Millis(start));
  }
  figures.look_ms = Median(looks);
  figures.series_ms = Median(series);
  return figures;
}

Figures MeasureRows(const std::string& path) {
  Figures figures;
  sqlite3* file = nullptr;
  if (sqlite3_open(path.c_str(), &file) != SQLITE_OK) std::exit(1);
  Sql(file,
      "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; CREATE TABLE sample (series INTEGER, "
      "t_ms INTEGER, value REAL, PRIMARY KEY (series, t_ms)) WITHOUT ROWID");
  sqlite3_stmt *add = nullptr, *look = nullptr, *one = nullptr;
  sqlite3_prepare_v2(file, "INSERT INTO sample VALUES (?1, ?2, ?3)", -1, &add, nullptr);
  // Each series' value by its key, like the table's index.
  sqlite3_prepare_v2(file, "SELECT value FROM sample WHERE series = ?1 AND t_ms = ?2", -1, &look,
                     nullptr);
  sqlite3_prepare_v2(file, "SELECT t_ms, value FROM sample WHERE series = ?1", -1, &one, nullptr);
  Cluster cluster;
  std::size_t count = 0;
  for (int tick = 0; tick < kTicks; ++tick) {
    const session::Snapshot snapshot = cluster.Next();
    const auto start = base::SystemClock().Now();
    const std::vector<Number> numbers = TakeApart(snapshot).numbers;
    count = numbers.size();
    Sql(file, "BEGIN");
    for (std::size_t i = 0; i < count; ++i) {
      sqlite3_bind_int64(add, 1, static_cast<std::int64_t>(i));
      sqlite3_bind_int64(add, 2, snapshot.at_ms);
      sqlite3_bind_double(add, 3, numbers[i].value);
      sqlite3_step(add);
      sqlite3_reset(add);
    }
    Sql(file, "COMMIT");
    figures.write_ms += Millis(start) / kTicks;
  }
  std::mt19937 random(11);
  std::vector<double> looks, series;
  for (int i = 0; i < kLooks; ++i) {
    const std::int64_t at_ms = kStart + 1000 * static_cast<std::int64_t>(random() % kTicks);
    const auto start = base::SystemClock().Now();
    for (std::size_t id = 0; id < count; ++id) {
      sqlite3_bind_int64(look, 1, static_cast<std::int64_t>(id));
      sqlite3_bind_int64(look, 2, at_ms);
      if (sqlite3_step(look) != SQLITE_ROW) std::exit(1);
      sqlite3_reset(look);
    }
    looks.push_back(Millis(start));
  }
  for (int i = 0; i < 5; ++i) {
    const auto start = base::SystemClock().Now();
    sqlite3_bind_int64(one, 1, 3);
    while (sqlite3_step(one) == SQLITE_ROW) {
    }
    sqlite3_reset(one);
    series.push_back(Millis(start));
  }
  for (sqlite3_stmt* statement : {add, look, one}) sqlite3_finalize(statement);
  sqlite3_close(file);
  figures.mib = static_cast<double>(std::filesystem::file_size(path)) / (1 << 20);
  figures.look_ms = Median(looks);
  figures.series_ms = Median(series);
  return figures;
}

BenchReport Measure(const std::string& folder) {
  const Figures ours = MeasureRecording(folder + "/ours", 0);
  const Figures busy = MeasureRecording(folder + "/busy", kJobs);
  const Figures rows = MeasureRows(folder + "/rows");
  char workload[120];
  std::snprintf(workload, sizeof(workload), "%.0f series, %d ticks of 1 s", ours.series, kTicks);
  BenchReport report;
  const auto add = [&](const char* name, const char* metric, const char* unit, double our,
                       double their) {
    BenchResult result;
    result.name = name;
    result.workload = workload;
    result.metric = metric;
    result.unit = unit;
    result.ours = our;
    result.runs = 1;
    result.comparison = Comparison{"rows", their, their / our, their / our, their / our};
    report.results.push_back(result);
  };
  add("recording.size.rows", "file after an hour", "MiB", ours.mib, rows.mib);
  add("recording.write.rows", "one tick, mean", "ms", ours.write_ms, rows.write_ms);
  add("recording.scrub.rows", "all series at a random instant, median", "ms", ours.look_ms,
      rows.look_ms);
  add("recording.series.rows", "one series over the hour, median", "ms", ours.series_ms,
      rows.series_ms);
  std::snprintf(workload, sizeof(workload), "the same and %d jobs", kJobs);
  const auto add_busy = [&](const char* name, const char* metric, const char* unit, double value) {
    BenchResult result;
    result.name = name;
    result.workload = workload;
    result.metric = metric;
    result.unit = unit;
    result.ours = value;
    result.runs = 1;
    report.results.push_back(result);
  };
  add_busy("recording.size.jobs", "file after an hour", "MiB", busy.mib);
  add_busy("recording.write.jobs", "one tick, mean", "ms", busy.write_ms);
  add_busy("recording.scrub.jobs", "everything at a random instant, median", "ms", busy.look_ms);
  return report;
}

}  // namespace
}  // namespace onepiece::bench

int main(int argc, char** argv) {
  return onepiece::bench::ReportMain(argc, argv, "onepiece-bench-recording", [] {
    std::string folder = std::filesystem::temp_directory_path() / "onepiece-recording-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) std::exit(1);
    auto report = onepiece::bench::Measure(folder);
    std::filesystem::remove_all(folder);
    return report;
  });
}
