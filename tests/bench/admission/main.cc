// `onepiece-bench-admission`: a proxy's refusals and goodput at 1 × and 10 × the load that its set
// can take, and its refusals in a flood. The proxy, its gRPC server, the databases and the entrance
// ring are the real ones; the instance takes jobs out of its ring and computes nothing, and the
// capacity is given. Clients are threads of this process with a lower priority than the proxy,
// because elsewhere they have machines of their own.
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cluster/base/mutex.h"
#include "cluster/node/inbox.h"
#include "cluster/proxy/proxy_service.h"
#include "cluster/rpc/channel.h"
#include "tests/bench/bench_report.h"
#include "tests/bench/report_main.h"
#include "tests/database/database_cluster.h"
#include "tests/eventually.h"

namespace onepiece::bench {
namespace {

using namespace std::chrono_literals;
using database::Require;

constexpr double kJobSeconds = 0.02;  // Of the pool's only worker.
constexpr double kShare = 0.95;
constexpr double kCapacity = kShare / kJobSeconds;  // Jobs a second.
constexpr double kFlood = 1e6;                      // More than the clients manage.
constexpr int kSenders = 8;
constexpr int kSenderNice = 10;  // Above that of the proxy.
constexpr int kRounds = 5;
constexpr auto kWarmUp = 2s;
constexpr auto kWindow = 4s;

double Micros(base::Duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

base::Duration ThreadCpu() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// The proxy. It measures how long its refusals take, from the handler's entry to its end.
class TimedProxy final : public v1::GenerationService::Service {
 public:
  explicit TimedProxy(proxy::ProxyService& proxy) : proxy_(proxy) {}
  grpc::Status SubmitJob(grpc::ServerContext* context, const v1::SubmitJobRequest* request,
                         v1::Job* response) override {
    const base::Duration cpu = ThreadCpu();
    const base::MonotonicTime start = base::SystemClock().Now();
    grpc::Status status = proxy_.SubmitJob(context, request, response);
    const double micros = Micros(base::SystemClock().Now() - start);
    const double cpu_micros = Micros(ThreadCpu() - cpu);
    if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
      const base::MutexLock lock(mutex_);
      refusals_.push_back(micros);
      cpu_.push_back(cpu_micros);
    }
    return status;
  }
  /// Returns wall time and processor time of the refusals so far, and forgets them.
  std::pair<std::vector<double>, std::vector<double>> Take() {
    const base::MutexLock lock(mutex_);
    return {std::exchange(refusals_, {}), std::exchange(cpu_, {})};
  }

 private:
  proxy::ProxyService& proxy_;
  base::Mutex mutex_;
  std::vector<double> refusals_, cpu_;  // Guarded by mutex_, µs.
};

v1::SubmitJobRequest Job() {
  v1::SubmitJobRequest request;
  request.set_app_id("app");
  (*request.mutable_parameters()->mutable_fields())["prompt"].set_string_value("a red ball");
  request.add_inputs()->set_name("image");
  request.mutable_inputs(0)->set_media_type("image/png");
  request.mutable_inputs(0)->set_data(std::string(100'000, 'x'));
  return request;
}

/// An entrance instance that only takes jobs out of its ring.
class Sink {
 public:
  explicit Sink(database::DatabaseCluster& cluster) {
    v1::Endpoint self;
    self.set_node_id("inst-1");
    self.set_incarnation(77);
    view_.SetSelf(self);
    auto inbox = node::Inbox::Open(cluster.fabric(), view_,
                                   {.label = "inst", .capacity_bytes = 16 << 20, .slots = 256});
    Require(inbox.status());
    inbox_ = *std::move(inbox);
    server_.AddService(*inbox_->service());
    Require(server_.Start().status());
    self.set_address(server_.address());
    cluster.ChangeTable([&](v1::RoutingTable& table) {
      *table.add_alive() = self;
      v1::Route& route = *table.add_routes();
      route.set_app_id("app");
      route.set_stage("encode");
      *route.add_instances() = self;
      v1::Workflow& workflow = *table.add_workflows();
      workflow.set_app_id("app");
      workflow.add_stages()->set_stage("encode");
      workflow.add_inputs()->set_name("image");
      workflow.add_parameters()->set_name("prompt");
      workflow.mutable_parameters(0)->set_type(v1::ParameterSpec::STRING);
      workflow.mutable_parameters(0)->set_required(true);
    });
    taker_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested())
        jobs_ += inbox_->Receive(base::SystemClock().Now() + 50ms).ok();
    });
  }
  ~Sink() {
    taker_.request_stop();
    taker_.join();
    inbox_->Close();
    server_.Shutdown(base::Duration::zero());
  }
  [[nodiscard]] int jobs() const { return jobs_; }

 private:
  node::ClusterView view_;
  std::unique_ptr<node::Inbox> inbox_;
  rpc::Server server_{rpc::ServerOptions{}};
  std::atomic<int> jobs_{0};
  std::jthread taker_;
};

v1::Capacity Capacity() {
  v1::Capacity capacity;
  capacity.set_share(1);
  capacity.add_pools()->set_pool("encode");
  capacity.mutable_pools(0)->set_workers(1);
  v1::StageCost& cost = *capacity.add_costs();
  cost.set_app_id("app");
  cost.set_stage("encode");
  cost.set_pool("encode");
  cost.set_seconds_per_unit(kJobSeconds);
  cost.set_units_per_job(1);
  cost.set_samples(100);
  return capacity;
}

/// While it lives, offers `rate` jobs a second evenly, or as many as the senders manage.
class Offer {
 public:
  Offer(const std::string& address, double rate) {
    for (int i = 0; i < kSenders; ++i) {
      senders_.emplace_back([this, address, rate, i](const std::stop_token& stop) {
        // Of this thread alone.
        const auto self = static_cast<id_t>(gettid());
        setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + kSenderNice);
        v1::GenerationService::Stub stub(rpc::MakeChannel(address));
        const v1::SubmitJobRequest request = Job();
        const auto gap = std::chrono::duration_cast<base::Duration>(
            std::chrono::duration<double>(kSenders / rate));
        auto next = std::chrono::steady_clock::now() + gap * i / kSenders;
        while (!stop.stop_requested()) {
          testing::Pause(next - std::chrono::steady_clock::now());
          next += gap;
          (void)rpc::Call(stub, &v1::GenerationService::Stub::SubmitJob, request, 10s);
          ++sent_;
        }
      });
    }
  }
  [[nodiscard]] int sent() const { return sent_; }

 private:
  std::atomic<int> sent_{0};
  std::vector<std::jthread> senders_;
};

struct Window {
  double goodput = 0, offered = 0;    ///< Jobs a second.
  std::vector<double> refusals, cpu;  ///< µs.
};

Window Run(const std::string& address, double rate, Sink& sink, TimedProxy& proxy) {
  const Offer offer(address, rate);
  testing::Pause(kWarmUp);  // Spends what the bucket had saved up.
  (void)proxy.Take();
  const auto start = std::chrono::steady_clock::now();
  const int jobs = sink.jobs(), sent = offer.sent();
  testing::Pause(kWindow);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Window window;
  window.goodput = (sink.jobs() - jobs) / seconds;
  window.offered = (offer.sent() - sent) / seconds;
  std::tie(window.refusals, window.cpu) = proxy.Take();
  return window;
}

double Quantile(std::vector<double> values, double quantile) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(quantile * static_cast<double>(values.size() - 1))];
}

/// The results of several windows of one load.
class Series {
 public:
  void Add(const Window& window) {
    refusals_.insert(refusals_.end(), window.refusals.begin(), window.refusals.end());
    cpu_.insert(cpu_.end(), window.cpu.begin(), window.cpu.end());
    offered_.push_back(window.offered);
  }
  /// Rows "{name}.p50" and so on. `how` says for people how the jobs were offered.
  void Report(const std::string& name, const char* how, BenchReport& report) const {
    char workload[160];
    std::snprintf(
        workload, sizeof(workload),
        "capacity %.1f jobs/s, offered %.0f jobs/s %s by %d senders at nice +%d, 100 kB of "
        "inputs each, %zu refusals",
        kCapacity, Quantile(offered_, 0.5), how, kSenders, kSenderNice, refusals_.size());
    const auto add = [&](const char* row, const char* metric, double micros) {
      report.results.push_back({.name = name + row,
                                .workload = workload,
                                .metric = metric,
                                .unit = "us",
                                .ours = micros,
                                .runs = kRounds});
    };
    add(".p50", "handler entry to finish", Quantile(refusals_, 0.5));
    add(".p99", "handler entry to finish", Quantile(refusals_, 0.99));
    add(".cpu_p50", "processor time of the handler", Quantile(cpu_, 0.5));
    add(".cpu_p99", "processor time of the handler", Quantile(cpu_, 0.99));
  }

 private:
  std::vector<double> refusals_, cpu_, offered_;
};

BenchReport Measure() {
  database::DatabaseCluster cluster;
  cluster.AddDatabase("db-1");
  cluster.AddDatabase("db-2");
  Sink sink(cluster);
  telemetry::Metrics metrics("proxy", "proxy-1");
  telemetry::Spans spans("proxy-1");
  node::JobRecords records(cluster.view());
  const auto outbox =
      node::Outbox::Create(cluster.fabric(), cluster.view(), {.node_id = "proxy-1"});
  proxy::ProxyService service(
      cluster.view(),
      {.workflow_set = "default", .max_jobs_in_flight = 1'000'000, .admission_share = kShare},
      records, *outbox, metrics, spans);
  service.UpdateCapacity(Capacity());
  TimedProxy timed(service);
  rpc::Server server{rpc::ServerOptions{}};
  server.AddService(timed);
  Require(server.Start().status());

  Series tenfold, flood;
  std::vector<double> ratios;
  for (int round = 0; round < kRounds; ++round) {
    const double once = Run(server.address(), kCapacity, sink, timed).goodput;
    const Window window = Run(server.address(), 10 * kCapacity, sink, timed);
    ratios.push_back(once > 0 ? window.goodput / once : 0);
    tenfold.Add(window);
    flood.Add(Run(server.address(), kFlood, sink, timed));
  }
  outbox->Close();
  service.Stop();
  server.Shutdown(base::Duration::zero());

  BenchReport report;
  tenfold.Report("reject.10x", "evenly", report);
  flood.Report("reject.flood", "back to back", report);
  report.results.push_back({.name = "reject.goodput_ratio",
                            .workload = report.results.front().workload,
                            .metric = "jobs in the ring at 10x over 1x",
                            .unit = "ratio",
                            .better = "higher",
                            .ours = Quantile(ratios, 0.5),
                            .runs = kRounds});
  return report;
}

}  // namespace
}  // namespace onepiece::bench

int main(int argc, char** argv) {
  return onepiece::bench::ReportMain(argc, argv, "onepiece-bench-admission",
                                     onepiece::bench::Measure);
}
