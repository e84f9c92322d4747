#include "cluster/node/kept_work_metrics.h"

namespace onepiece::node {
namespace {

struct Name {
  const char* name;
  const char* help;
};

Name NameOf(KeptWorkEvent event) {
  switch (event) {
    case KeptWorkEvent::kNotKept:
      return {"onepiece_work_not_kept_total", "Messages sent on without a copy, for lack of room"};
    case KeptWorkEvent::kRecomputed:
      return {"onepiece_work_recomputed_total", "Work that was given away again after a death"};
    case KeptWorkEvent::kQuarantined:
      break;
  }
  return {"onepiece_jobs_quarantined_total", "Jobs whose work ended too many instances"};
}

}  // namespace

std::function<void(KeptWorkEvent, const std::string& stage)> CountIn(telemetry::Metrics& metrics) {
  return [&metrics](KeptWorkEvent event, const std::string& stage) {
    const Name shown = NameOf(event);
    metrics.Counter(shown.name, shown.help, {{"stage", stage}}).Increment();
  };
}

ScrapeHook ShowKept(const KeptWork& kept, telemetry::Metrics& metrics) {
  return ScrapeHook(&metrics, [&kept](telemetry::Metrics& shown) {
    shown.Gauge("onepiece_kept_work_bytes", "Work sent on and kept until it is completed", {})
        .Set(static_cast<double>(kept.bytes()));
    shown.Gauge("onepiece_kept_work_items", "Messages sent on and kept until completed", {})
        .Set(static_cast<double>(kept.items()));
  });
}

}  // namespace onepiece::node
