// Prometheus metrics of one process, and the endpoint that serves them.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "prometheus/counter.h"
#include "prometheus/exposer.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace onepiece::telemetry {

using Labels = std::map<std::string, std::string>;

/// Label sets that one metric may have; further ones are counted together, every label's value
/// "other".
inline constexpr std::size_t kMaxLabelSets = 64;

/// Bucket bounds in seconds from 100 µs to 10 min, for durations.
prometheus::Histogram::BucketBoundaries DurationBuckets();

/// The process's metrics. Names: onepiece_{thing}_{base unit}, counters end in _total; a broken
/// name, or one metric under two types, is a bug of ours (ONEPIECE_CHECK).
///
/// Ownership  Owns every metric: the references that it returns live as long as it does.
/// Threading  Thread-safe, and so are the metrics.
class Metrics {
 public:
  /// Adds onepiece_build_info{role, node, version} and the process's own metrics (start time, CPU,
  /// memory, open files).
  Metrics(std::string_view role, std::string_view node);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// The metric of that name and labels, made on first use. `help` is a sentence without a full
  /// stop.
  prometheus::Counter& Counter(std::string_view name, std::string_view help,
                               const Labels& labels = {});
  prometheus::Gauge& Gauge(std::string_view name, std::string_view help, const Labels& labels = {});
  prometheus::Histogram& Histogram(std::string_view name, std::string_view help,
                                   const prometheus::Histogram::BucketBoundaries& buckets,
                                   const Labels& labels = {});
  /// Runs `update` before every scrape, on the scraping thread: for values that something else
  /// counts. Whatever it uses outlives Stop().
  void OnScrape(std::function<void()> update);

  /// Serves GET http://{address}/metrics; port 0 is chosen by the system. Returns host:port.
  /// Errors: UNAVAILABLE with reason CANNOT_LISTEN.
  absl::StatusOr<std::string> Serve(const std::string& address);
  /// Ends serving: no `update` runs afterwards. Idempotent.
  void Stop();

 private:
  class Scrape;
  template <typename Metric>
  struct Family {
    prometheus::Family<Metric>* family;
    std::map<Labels, Metric*> metrics;
  };
  template <typename Metric, typename Build, typename Add>
  Metric& Find(std::map<std::string, Family<Metric>, std::less<>>& families, std::string_view name,
               const Labels& labels, const Build& build, const Add& add);

  prometheus::Registry registry_;
  std::mutex mutex_;  // Guards the three maps.
  std::map<std::string, Family<prometheus::Counter>, std::less<>> counters_;
  std::map<std::string, Family<prometheus::Gauge>, std::less<>> gauges_;
  std::map<std::string, Family<prometheus::Histogram>, std::less<>> histograms_;
  std::shared_ptr<Scrape> scrape_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  std::string listening_;  // host:port of exposer_.
};

/// Bytes of this process that are resident.
double ResidentBytes();

/// Raises a counter to `total`, which something else counts; a smaller one changes nothing.
void RaiseTo(prometheus::Counter& counter, double total);

}  // namespace onepiece::telemetry
