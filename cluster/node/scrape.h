// Shows numbers that an object counts itself as metrics.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/telemetry/metrics.h"

namespace onepiece::node {

/// Runs `update` before every scrape for as long as it lives. The metrics may live longer.
///
/// Threading: `update` runs on the scraping thread. The destructor waits for an update under way.
class ScrapeHook {
 public:
  ScrapeHook(telemetry::Metrics* metrics, std::function<void(telemetry::Metrics&)> update) {
    if (metrics == nullptr) return;
    shared_->update = std::move(update);
    metrics->OnScrape([shared = shared_, metrics] {
      const base::MutexLock lock(shared->mutex);
      if (shared->update) shared->update(*metrics);
    });
  }
  ~ScrapeHook() {
    const base::MutexLock lock(shared_->mutex);
    shared_->update = nullptr;
  }
  ScrapeHook(const ScrapeHook&) = delete;
  ScrapeHook& operator=(const ScrapeHook&) = delete;

 private:
  struct Shared {
    base::Mutex mutex;
    std::function<void(telemetry::Metrics&)> update ABSL_GUARDED_BY(mutex);
  };
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace onepiece::node
