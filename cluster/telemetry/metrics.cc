#include "cluster/telemetry/metrics.h"

#include <dirent.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <fstream>
#include <optional>
#include <stop_token>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "cluster/base/check.h"
#include "cluster/base/clock.h"
#include "cluster/base/host_port.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "prometheus/text_serializer.h"

namespace onepiece::telemetry {
namespace {

// A client that sends or takes nothing holds a thread, so there are two, and it may do so not for
// long.
constexpr char kThreads[] = "2", kRequestLimitMs[] = "3000";

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double OpenFiles() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  int entries = 0;
  while (readdir(directory) != nullptr) ++entries;
  closedir(directory);
  return entries - 3;  // Without ".", ".." and the descriptor of the directory itself.
}

// Opens a connection to "host:port" and closes it.
void Connect(const std::string& address) {
  const std::optional<base::HostPort> where = base::SplitHostPort(address);
  if (!where.has_value()) return;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(where->host.c_str(), where->port.c_str(), &hints, &found) != 0) return;
  const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                        found->ai_protocol);
  if (fd >= 0) {
    static_cast<void>(connect(fd, found->ai_addr, found->ai_addrlen));
    close(fd);
  }
  freeaddrinfo(found);
}

bool IsName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (const char c : name) {
    if (!allowed(c)) return false;
  }
  return name.starts_with("onepiece_");
}

}  // namespace

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  double total_pages = 0;
  double resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// Collects the metrics for the endpoint. The updates run first, so that their values are part of
// the same scrape.
class Metrics::Scrape final : public prometheus::Collectable {
 public:
  explicit Scrape(const prometheus::Registry& registry) : registry_(registry) {}

  void Add(std::function<void()> update) {
    const base::MutexLock lock(mutex_);
    updates_.push_back(std::move(update));
  }

  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override {
    const base::MutexLock lock(mutex_);
    // The lock is held, so an update must not call OnScrape().
    for (const auto& update : updates_) update();
    return registry_.Collect();
  }

 private:
  const prometheus::Registry& registry_;
  mutable base::Mutex mutex_;
  std::vector<std::function<void()>> updates_ ABSL_GUARDED_BY(mutex_);
};

prometheus::Histogram::BucketBoundaries DurationBuckets() {
  return {1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25,
          0.5,  1,      2.5,  5,    10,     25,   60,   120,    300,  600};
}

Metrics::Metrics(std::string_view role, std::string_view node)
    : scrape_(std::make_shared<Scrape>(registry_)) {
  Gauge("onepiece_build_info", "Always 1; the labels say what runs",
        {{"role", std::string(role)}, {"node", std::string(node)}, {"version", ONEPIECE_VERSION}})
      .Set(1);
  Gauge("onepiece_process_start_time_seconds", "Unix time when the process began")
      .Set(static_cast<double>(base::ToUnixMs(base::SystemClock().WallNow())) / 1000);
  auto& cpu =
      Counter("onepiece_process_cpu_seconds_total", "User and system CPU time of the process");
  auto& resident =
      Gauge("onepiece_process_resident_memory_bytes", "Memory of the process that is resident");
  auto& files = Gauge("onepiece_process_open_fds", "File descriptors of the process that are open");
  OnScrape([&] {
    RaiseTo(cpu, CpuSeconds());
    resident.Set(ResidentBytes());
    files.Set(OpenFiles());
  });
}

Metrics::~Metrics() { Stop(); }

template <typename Metric, typename Build, typename Add>
Metric& Metrics::Find(Families<Metric>& families, std::string_view name, const Labels& labels,
                      const Build& build, const Add& add) {
  ONEPIECE_CHECK(IsName(name));
  auto found = families.find(name);
  if (found == families.end()) {
    const auto used = [&](const auto& others) {
      return static_cast<std::size_t>(others.contains(name));
    };
    ONEPIECE_CHECK(used(counters_) + used(gauges_) + used(histograms_) == 0);
    found = families.emplace(std::string(name), Family<Metric>{&build(), {}}).first;
  }
  auto& [family, metrics] = found->second;
  Labels bounded = labels;
  if (!metrics.contains(labels) && metrics.size() >= kMaxLabelSets) {
    for (auto& [key, value] : bounded) value = "other";
  }
  Metric*& metric = metrics[bounded];
  if (metric == nullptr) metric = &add(*family, bounded);
  return *metric;
}

prometheus::Counter& Metrics::Counter(std::string_view name, std::string_view help,
                                      const Labels& labels) {
  ONEPIECE_CHECK(name.ends_with("_total"));
  const base::MutexLock lock(mutex_);
  return Find(
      counters_, name, labels,
      [&]() -> auto& {
        return prometheus::BuildCounter()
            .Name(std::string(name))
            .Help(std::string(help))
            .Register(registry_);
      },
      [](auto& family, const Labels& set) -> auto& { return family.Add(set); });
}

prometheus::Gauge& Metrics::Gauge(std::string_view name, std::string_view help,
                                  const Labels& labels) {
  ONEPIECE_CHECK(!name.ends_with("_total"));
  const base::MutexLock lock(mutex_);
  return Find(
      gauges_, name, labels,
      [&]() -> auto& {
        return prometheus::BuildGauge()
            .Name(std::string(name))
            .Help(std::string(help))
            .Register(registry_);
      },
      [](auto& family, const Labels& set) -> auto& { return family.Add(set); });
}

prometheus::Histogram& Metrics::Histogram(std::string_view name, std::string_view help,
                                          const prometheus::Histogram::BucketBoundaries& buckets,
                                          const Labels& labels) {
  ONEPIECE_CHECK(!name.ends_with("_total"));
  const base::MutexLock lock(mutex_);
  return Find(
      histograms_, name, labels,
      [&]() -> auto& {
        return prometheus::BuildHistogram()
            .Name(std::string(name))
            .Help(std::string(help))
            .Register(registry_);
      },
      [&](auto& family, const Labels& set) -> auto& { return family.Add(set, buckets); });
}

void Metrics::OnScrape(std::function<void()> update) { scrape_->Add(std::move(update)); }

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(scrape_->Collect());
}

absl::StatusOr<std::string> Metrics::Serve(const std::string& address) {
  ONEPIECE_CHECK(exposer_ == nullptr);
  try {
    exposer_ = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports", address, "num_threads", kThreads,
                                 "request_timeout_ms", kRequestLimitMs});
  } catch (const std::exception& error) {
    return base::MakeError(absl::StatusCode::kUnavailable, "CANNOT_LISTEN",
                           "cannot serve metrics on " + address + ": " + error.what(),
                           {{"address", address}});
  }
  exposer_->RegisterCollectable(scrape_);
  listening_ = address.substr(0, address.rfind(':') + 1) +
               std::to_string(exposer_->GetListeningPorts().at(0));
  return listening_;
}

void Metrics::Stop() {
  if (exposer_ == nullptr) return;
  // The endpoint's thread looks at its stop flag only every 2 s, or when a connection comes
  // (civetweb issue 1163). The waker connects again and again until the endpoint has stopped.
  const std::jthread waker([address = listening_](const std::stop_token& stop) {
    do {
      Connect(address);
    } while (base::SystemClock().Pause(stop, std::chrono::milliseconds(10)));
  });
  exposer_.reset();
}

void RaiseTo(prometheus::Counter& counter, double total) {
  if (const double more = total - counter.Value(); more > 0) counter.Increment(more);
}

}  // namespace onepiece::telemetry
