// `onepiece-bench-watch`: measures what 10,000 watches over 8 connections cost a proxy. A proxy,
// two databases and their gRPC servers are the real ones, in one process. The clients are another
// process, so that memory and processor time are those of the servers alone.
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cluster/rpc/channel.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/report_main.h"
#include "tests/proxy/proxy_cluster.h"
#include "tests/stream_watcher.h"

namespace onepiece::bench {
namespace {

using namespace std::chrono_literals;
using database::Require;
using testing::StreamWatcher;
using testing::StreamWatchers;

constexpr int kConnections = 8, kWatchers = 10'000, kJobs = 5'000;

/// What the servers cost until now.
struct Cost {
  double seconds = 0, cpu_seconds = 0, resident_bytes = 0;
};

Cost CostNow() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  const auto now = base::SystemClock().Now().time_since_epoch();
  return {.seconds = std::chrono::duration<double>(now).count(),
          .cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime),
          .resident_bytes = telemetry::ResidentBytes()};
}

/// Two ends of a conversation in lines.
struct Talk {
  FILE* in = nullptr;
  FILE* out = nullptr;

  void Say(const std::string& line) const {
    std::fprintf(out, "%s\n", line.c_str());
    std::fflush(out);
  }
  [[nodiscard]] std::string Hear() const {
    char line[256];
    if (std::fgets(line, sizeof(line), in) == nullptr) return {};
    std::string text(line);
    text.pop_back();
    return text;
  }
};

/// The clients: they say "all" when all watchers see what the servers ask for.
int RunClients(const Talk& servers) {
  const std::string address = servers.Hear();
  std::vector<std::string> names;
  for (int i = 0; i < kJobs; ++i) names.push_back(servers.Hear());
  std::vector<std::unique_ptr<v1::GenerationService::Stub>> stubs;
  for (int i = 0; i < kConnections; ++i) {
    stubs.push_back(v1::GenerationService::NewStub(rpc::MakeChannel(address)));
  }
  StreamWatchers watchers;
  for (std::size_t i = 0; i < kWatchers; ++i) {
    watchers.emplace_back(*stubs[i % kConnections], names[i % kJobs]);
  }
  const auto wait_for = [&](const auto& seen) {
    const bool all = testing::Eventually(120s, [&] { return testing::All(watchers, seen); });
    servers.Say(all ? "all" : "missing");
  };
  wait_for([](StreamWatcher& watcher) { return watcher.states() > 0; });
  (void)servers.Hear();
  wait_for([](StreamWatcher& watcher) { return watcher.job().step() == 1; });
  (void)servers.Hear();
  return 0;
}

BenchResult Number(const std::string& name, const std::string& workload, const std::string& unit,
                   double ours) {
  return {.name = "watch." + name,
          .workload = workload,
          .metric = name,
          .unit = unit,
          .ours = ours,
          .runs = 1,
          .split = {}};
}

void Expect(const Talk& clients) {
  if (clients.Hear() != "all") qFatal("not every watcher saw its job");
}

BenchReport MeasureServers(const Talk& clients) {
  database::DatabaseCluster cluster;
  for (const char* id : {"db-1", "db-2"}) cluster.AddDatabase(id);
  const auto proxy = std::make_unique<proxy::Proxy>(cluster, "proxy-1");
  clients.Say(proxy->server.address());
  std::vector<std::string> uids;
  for (int i = 0; i < kJobs; ++i) {
    v1::JobRecord record = database::NewRecord();
    // No job may end during the run.
    *record.mutable_job()->mutable_deadline() =
        job::ToTimestamp(base::SystemClock().WallNow() + std::chrono::hours(1));
    Require(cluster.records().Create(record).status());
    uids.push_back(record.job().uid());
  }
  const Cost before = CostNow();
  for (const std::string& uid : uids) clients.Say("jobs/" + uid);
  Expect(clients);
  const Cost watched = CostNow();
  testing::Pause(25s);  // Long enough for each state to be repeated once.
  const Cost idle = CostNow();
  for (const std::string& uid : uids) {
    v1::UpdateJobRequest update;
    update.set_uid(uid);
    update.mutable_progress()->mutable_holder()->set_node_id("inst-1");
    update.mutable_progress()->mutable_holder()->set_stage("encode");
    update.mutable_progress()->set_step(1);
    update.mutable_progress()->set_steps(9);
    Require(cluster.records().Update(update).status());
  }
  clients.Say("changed");
  Expect(clients);
  const Cost changed = CostNow();
  const int threads = testing::Threads();
  clients.Say("bye");
  const std::string all = std::to_string(kWatchers) + " watches of " + std::to_string(kJobs) +
                          " jobs over " + std::to_string(kConnections) + " connections";
  BenchReport report;
  report.results = {
      Number("resident", all + ": the proxy and two databases", "bytes", changed.resident_bytes),
      Number("resident_each", all + ": growth for each watch", "bytes",
             (idle.resident_bytes - before.resident_bytes) / kWatchers),
      Number("begin", all + ": until all have a state", "s", watched.seconds - before.seconds),
      Number("begin_cpu", all + ": the same", "cpu s", watched.cpu_seconds - before.cpu_seconds),
      Number("idle_cpu", all + ": share of a processor while nothing changes", "ratio",
             (idle.cpu_seconds - watched.cpu_seconds) / (idle.seconds - watched.seconds)),
      Number("change", all + ": every job changes, until all have seen it", "s",
             changed.seconds - idle.seconds),
      Number("change_cpu", all + ": the same", "cpu s", changed.cpu_seconds - idle.cpu_seconds),
      Number("threads", all + ": threads of the servers", "threads", threads)};
  return report;
}

Talk Open(int in, int out) { return {.in = fdopen(in, "r"), .out = fdopen(out, "w")}; }

BenchReport Measure() {
  int to_clients[2], to_servers[2];
  if (pipe(to_clients) != 0 || pipe(to_servers) != 0) qFatal("no pipe");
  // Before gRPC has begun any thread.
  const pid_t child = fork();
  if (child == 0) {
    close(to_clients[1]);
    close(to_servers[0]);
    _exit(RunClients(Open(to_clients[0], to_servers[1])));
  }
  close(to_clients[0]);
  close(to_servers[1]);
  const BenchReport report = MeasureServers(Open(to_servers[0], to_clients[1]));
  waitpid(child, nullptr, 0);
  return report;
}

}  // namespace
}  // namespace onepiece::bench

int main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::off);  // Its lines would mix with the report.
  return onepiece::bench::ReportMain(argc, argv, "onepiece-bench-watch", onepiece::bench::Measure);
}
