// The Prometheus metrics of one process, and the endpoint that serves them.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "cluster/base/mutex.h"
#include "prometheus/counter.h"
#include "prometheus/exposer.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace onepiece::telemetry {

using Labels = std::map<std::string, std::string>;

/// The largest number of label sets of one metric. Further sets are counted together, with "other"
/// as the value of every label.
inline constexpr std::size_t kMaxLabelSets = 64;

/// Returns bucket bounds for durations, in seconds, from 100 µs to 10 min.
prometheus::Histogram::BucketBoundaries DurationBuckets();

/// The metrics of the process. Names are onepiece_{thing}_{base unit}, and counters end in _total.
/// A bad name, or one metric under two types, is our own bug (ONEPIECE_CHECK).
///
/// Ownership: owns every metric. The references that it returns live as long as it does.
/// Threading: it and the metrics may be used from any thread.
class Metrics {
 public:
  /// Adds onepiece_build_info{role, node, version} and the metrics of the process itself: start
  /// time, CPU, memory and open files.
  Metrics(std::string_view role, std::string_view node);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Returns the metric of that name and labels, and makes it on first use. `help` is a sentence
  /// without a full stop.
  prometheus::Counter& Counter(std::string_view name, std::string_view help,
                               const Labels& labels = {});
  prometheus::Gauge& Gauge(std::string_view name, std::string_view help, const Labels& labels = {});
  prometheus::Histogram& Histogram(std::string_view name, std::string_view help,
                                   const prometheus::Histogram::BucketBoundaries& buckets,
                                   const Labels& labels = {});
  /// Runs `update` before every scrape, on the scraping thread. It is for values that something
  /// else counts. Whatever `update` uses must outlive Stop().
  void OnScrape(std::function<void()> update);

  /// What a scrape gets: all metrics in Prometheus' text format.
  [[nodiscard]] std::string Text() const;
  /// Serves GET http://{address}/metrics and returns host:port. The system chooses a port for 0.
  ///
  /// Errors: UNAVAILABLE (CANNOT_LISTEN).
  absl::StatusOr<std::string> Serve(const std::string& address);
  /// Stops serving. No `update` runs afterwards. A second call has no effect.
  void Stop();

 private:
  class Scrape;
  template <typename Metric>
  struct Family {
    prometheus::Family<Metric>* family;
    std::map<Labels, Metric*> metrics;
  };
  template <typename Metric>
  using Families = std::map<std::string, Family<Metric>, std::less<>>;
  // `families` is one of the three maps.
  template <typename Metric, typename Build, typename Add>
  Metric& Find(Families<Metric>& families, std::string_view name, const Labels& labels,
               const Build& build, const Add& add) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  prometheus::Registry registry_;
  base::Mutex mutex_;
  Families<prometheus::Counter> counters_ ABSL_GUARDED_BY(mutex_);
  Families<prometheus::Gauge> gauges_ ABSL_GUARDED_BY(mutex_);
  Families<prometheus::Histogram> histograms_ ABSL_GUARDED_BY(mutex_);

  std::shared_ptr<Scrape> scrape_;
  std::unique_ptr<prometheus::Exposer> exposer_;
  std::string listening_;  // The host:port of exposer_.
};

/// Returns the resident memory of this process, in bytes.
double ResidentBytes();

/// Raises a counter to `total`, which something else counts. A smaller total changes nothing.
void RaiseTo(prometheus::Counter& counter, double total);

}  // namespace onepiece::telemetry
