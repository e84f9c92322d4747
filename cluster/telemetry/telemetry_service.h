// TelemetryService over gRPC, by which every server tells its spans and its log.
#pragma once

#include <atomic>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/telemetry/log_ring.h"
#include "cluster/telemetry/spans.h"
#include "onepiece/v1/telemetry.grpc.pb.h"

namespace onepiece::telemetry {

/// How a TelemetryService answers.
struct TelemetryServiceOptions {
  std::string node_id;
  base::Duration heartbeat = std::chrono::seconds(5);  ///< The longest silence of TailLogs.
};

/// Serves spans and log lines. It logs nothing itself, because a caller that follows the log would
/// read about its own call.
///
/// Ownership: borrows `spans` and `logs`, which must outlive it.
/// Threading: may be used from any thread. A tail holds a thread of the server until its client
/// leaves or a stop of `stopping` is requested.
class TelemetryService final : public v1::TelemetryService::Service {
 public:
  static constexpr int kMaxTails = 8;

  TelemetryService(const Spans& spans, const LogRing& logs, std::stop_token stopping,
                   TelemetryServiceOptions options)
      : spans_(spans), logs_(logs), stopping_(std::move(stopping)), options_(std::move(options)) {}

  /// Errors: INVALID_ARGUMENT (BAD_UID).
  grpc::Status ListSpans(grpc::ServerContext* context, const v1::ListSpansRequest* request,
                         v1::ListSpansResponse* response) override;
  /// Errors: INVALID_ARGUMENT (BAD_LEVEL, BAD_BACKLOG), RESOURCE_EXHAUSTED (TOO_MANY_TAILS),
  /// UNAVAILABLE (SHUTTING_DOWN).
  grpc::Status TailLogs(grpc::ServerContext* context, const v1::TailLogsRequest* request,
                        grpc::ServerWriter<v1::TailLogsResponse>* writer) override;

 private:
  absl::Status Tail(const grpc::ServerContext& context, LogRing::Cursor cursor,
                    grpc::ServerWriter<v1::TailLogsResponse>& writer) const;

  const Spans& spans_;
  const LogRing& logs_;
  const std::stop_token stopping_;
  const TelemetryServiceOptions options_;
  std::atomic<int> tails_{0};
};

}  // namespace onepiece::telemetry
