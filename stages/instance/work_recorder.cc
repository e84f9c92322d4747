#include "stages/instance/work_recorder.h"

#include <utility>

#include "cluster/base/seconds.h"
#include "cluster/base/status.h"
#include "stages/runtime/stage_runner.h"

namespace onepiece::instance {

WorkRecorder::WorkRecorder(Parts parts, CurrentAssignment assignment)
    : parts_(parts), assignment_(std::move(assignment)) {}

void WorkRecorder::Started(const runtime::WorkItem& item) {
  parts_.updates.Begun(item.message.header, item.parts);
}

void WorkRecorder::Progressed(const runtime::WorkItem& item, int step, int steps) {
  parts_.updates.Progressed(item.message.header, step, steps);
}

void WorkRecorder::Finished(runtime::FinishedWork work) {
  // Nothing was computed for work that belongs elsewhere, so it must not count in the averages.
  if (base::GetReason(work.outputs.status()).reason != runtime::kWrongStage) {
    Count(work);
    Measure(work);
    RecordSpans(work);
  }
  parts_.deliver.Submit(std::move(work));
}

void WorkRecorder::ModelLoaded(const std::string& stage, const std::string& model_dir,
                               base::Duration time) {
  for (const auto& model : assignment_().models) {
    if (model.model_dir == model_dir) parts_.counts.Loaded(stage, model.app, time);
  }
  parts_.metrics
      .Histogram("onepiece_stage_load_seconds", "Time to load a stage with a model",
                 telemetry::DurationBuckets(), {{"stage", stage}})
      .Observe(base::ToSeconds(time));
}

void WorkRecorder::Count(const runtime::FinishedWork& work) {
  const absl::Status& status = work.outputs.status();
  // The time of a cancelled job says nothing about what a job costs, and it is no failure either.
  if (absl::IsCancelled(status)) return;
  const bool handed_over = base::GetReason(status).reason == runtime::kHandedOver;
  parts_.counts.Count(work.item.message.header, SizeOf(*parts_.view.routing(), work.item.message),
                      work.timing,
                      status.ok()   ? WorkCounts::Outcome::kDone
                      : handed_over ? WorkCounts::Outcome::kHandedOver
                                    : WorkCounts::Outcome::kFailed);
}

void WorkRecorder::Measure(const runtime::FinishedWork& work) {
  const std::string& stage = work.item.message.header.stage;
  const telemetry::Labels labels = {{"stage", stage}};
  telemetry::Metrics& metrics = parts_.metrics;
  metrics
      .Histogram("onepiece_stage_compute_seconds",
                 "Time that a job spent in the stage's computation", telemetry::DurationBuckets(),
                 labels)
      .Observe(base::ToSeconds(work.timing.compute));
  metrics
      .Histogram("onepiece_stage_queue_seconds", "Time that a job waited in the instance's queue",
                 telemetry::DurationBuckets(), labels)
      .Observe(base::ToSeconds(work.timing.queued));
  metrics.Counter("onepiece_stage_busy_seconds_total", "Computing time of all workers", labels)
      .Increment(base::ToSeconds(work.timing.compute));
  const absl::Status& status = work.outputs.status();
  metrics
      .Counter("onepiece_stage_jobs_total", "Jobs that left the stage, by result",
               {{"stage", stage},
                {"result", status.ok() ? "ok" : absl::StatusCodeToString(status.code())}})
      .Increment();
}

void WorkRecorder::RecordSpans(const runtime::FinishedWork& work) {
  const message::Header& header = work.item.message.header;
  const auto record = [&](const char* operation, base::WallTime from, base::WallTime to) {
    v1::Span span;
    span.set_operation(operation);
    span.set_stage(header.stage);
    span.set_start_unix_ns(from.time_since_epoch().count());
    span.set_end_unix_ns(to.time_since_epoch().count());
    parts_.spans.Record(header.uid, std::move(span));
  };
  const auto start = work.item.arrival_time + work.timing.queued;
  record("queue", work.item.arrival_time, start);
  record("compute", start, start + work.timing.compute);
}

}  // namespace onepiece::instance
