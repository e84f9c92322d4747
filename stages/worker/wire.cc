#include "stages/worker/wire.h"

#include <string>

#include "cluster/base/status.h"
#include "cluster/base/utf8.h"

namespace onepiece::worker {
namespace {

constexpr std::size_t kMaxText = 16 << 10, kMaxName = 256, kMaxValue = 1024;  // Bytes.
constexpr std::size_t kMaxMetadata = 16;

using Names = google::protobuf::RepeatedPtrField<std::string>;

Names NamesToWire(const std::vector<std::string>& names) { return {names.begin(), names.end()}; }
std::vector<std::string> NamesFromWire(const Names& names) { return {names.begin(), names.end()}; }

}  // namespace

v1::WorkerStatus ToWire(const absl::Status& status) {
  v1::WorkerStatus wire;
  wire.set_code(static_cast<int>(status.code()));
  if (status.ok()) return wire;
  wire.set_message(base::ToUtf8(base::Message(status), kMaxText));
  const base::ErrorReason reason = base::GetReason(status);
  wire.set_reason(base::ToUtf8(reason.reason, kMaxName));
  for (const auto& [key, value] : reason.metadata) {
    if (wire.metadata().size() == kMaxMetadata) break;
    (*wire.mutable_metadata())[base::ToUtf8(key, kMaxName)] = base::ToUtf8(value, kMaxValue);
  }
  return wire;
}

absl::Status FromWire(const v1::WorkerStatus& wire) {
  if (wire.code() == 0) return absl::OkStatus();
  absl::Status status(static_cast<absl::StatusCode>(wire.code()), wire.message());
  if (!wire.reason().empty())
    base::SetReason(status, {wire.reason(), {wire.metadata().begin(), wire.metadata().end()}});
  return status;
}

v1::WorkerPlan ToWire(const sdk::ParallelPlan& plan) {
  v1::WorkerPlan wire;
  wire.set_cfg(plan.cfg);
  wire.set_sequence(plan.sequence);
  return wire;
}

sdk::ParallelPlan FromWire(const v1::WorkerPlan& wire) {
  return {.cfg = wire.cfg(), .sequence = wire.sequence()};
}

void ToWire(const sdk::StageInfo& info, v1::StageLoaded& loaded) {
  loaded.set_name(info.name);
  loaded.set_description(info.description);
  *loaded.mutable_inputs() = NamesToWire(info.inputs);
  *loaded.mutable_optional_inputs() = NamesToWire(info.optional_inputs);
  *loaded.mutable_outputs() = NamesToWire(info.outputs);
  *loaded.mutable_parameters() = NamesToWire(info.parameters);
}

sdk::StageInfo InfoFromWire(const v1::StageLoaded& loaded) {
  return {.name = loaded.name(),
          .description = loaded.description(),
          .inputs = NamesFromWire(loaded.inputs()),
          .optional_inputs = NamesFromWire(loaded.optional_inputs()),
          .outputs = NamesFromWire(loaded.outputs()),
          .parameters = NamesFromWire(loaded.parameters())};
}

void ToWire(const std::vector<sdk::StageMetric>& metrics, v1::FromWorker& packet) {
  for (const sdk::StageMetric& metric : metrics) {
    v1::WorkerMetric& wire = *packet.add_metrics();
    wire.set_name(metric.name);
    wire.set_help(metric.help);
    wire.set_counter(metric.counter);
    wire.set_of_process(metric.of_process);
    wire.set_value(metric.value);
  }
}

std::vector<sdk::StageMetric> MetricsFromWire(const v1::FromWorker& packet) {
  std::vector<sdk::StageMetric> metrics;
  for (const v1::WorkerMetric& wire : packet.metrics()) {
    metrics.push_back({.name = wire.name(),
                       .help = wire.help(),
                       .counter = wire.counter(),
                       .of_process = wire.of_process(),
                       .value = wire.value()});
  }
  return metrics;
}

}  // namespace onepiece::worker
