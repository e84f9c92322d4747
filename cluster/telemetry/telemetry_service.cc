#include "cluster/telemetry/telemetry_service.h"

#include <algorithm>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/rpc/counted_stream.h"
#include "cluster/rpc/status.h"

namespace onepiece::telemetry {
namespace {

constexpr std::size_t kMaxLines = 256;  // In one response.
// The synchronous API does not tell a handler that its client has left. A tail looks once in this
// time.
constexpr auto kCancellationPoll = std::chrono::milliseconds(200);

absl::Status BadField(std::string_view reason, std::string_view field, std::string_view message) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason,
                         std::string(field) + ": " + std::string(message),
                         {{"field", std::string(field)}});
}

}  // namespace

grpc::Status TelemetryService::ListSpans(grpc::ServerContext*, const v1::ListSpansRequest* request,
                                         v1::ListSpansResponse* response) {
  const auto uid = base::Uid::Parse(request->uid());
  if (!uid) {
    return rpc::ToGrpc(base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_UID",
                                       "'" + request->uid() + "' is not a job's UID",
                                       {{"field", "uid"}}));
  }
  for (v1::Span& span : spans_.Find(*uid)) *response->add_spans() = std::move(span);
  return grpc::Status::OK;
}

grpc::Status TelemetryService::TailLogs(grpc::ServerContext* context,
                                        const v1::TailLogsRequest* request,
                                        grpc::ServerWriter<v1::TailLogsResponse>* writer) {
  const v1::LogLevel min_level =
      request->min_level() == v1::LOG_LEVEL_UNSPECIFIED ? v1::LOG_INFO : request->min_level();
  if (min_level < v1::LOG_DEBUG || min_level > v1::LOG_ERROR)
    return rpc::ToGrpc(BadField("BAD_LEVEL", "min_level", "unknown value"));
  if (request->backlog() < 0)
    return rpc::ToGrpc(BadField("BAD_BACKLOG", "backlog", "not negative"));
  const rpc::CountedStream tail(tails_);
  if (tail.number() > kMaxTails) {
    return rpc::ToGrpc(base::MakeError(
        absl::StatusCode::kResourceExhausted, "TOO_MANY_TAILS",
        "at most " + std::to_string(kMaxTails) + " follow this server's log at a time"));
  }
  return rpc::ToGrpc(Tail(
      *context, logs_.Begin(min_level, static_cast<std::size_t>(request->backlog())), *writer));
}

absl::Status TelemetryService::Tail(const grpc::ServerContext& context, LogRing::Cursor cursor,
                                    grpc::ServerWriter<v1::TailLogsResponse>& writer) const {
  // The first response is sent even if it is empty, because it tells the caller that there are no
  // more lines for now.
  bool more = true;
  base::MonotonicTime last_sent = base::SystemClock().Now();
  while (!stopping_.stop_requested()) {
    LogRing::News news = logs_.Take(cursor, kMaxLines);
    const base::MonotonicTime now = base::SystemClock().Now();
    // The heartbeat is due before the silence reaches the promised limit, with room for a late
    // poll.
    const bool due = now - last_sent >= options_.heartbeat - 2 * kCancellationPoll;
    if (more || due || !news.lines.empty() || news.dropped > 0) {
      v1::TailLogsResponse response;
      response.set_node_id(options_.node_id);
      response.set_dropped(news.dropped);
      more = news.lines.size() == kMaxLines;
      for (v1::LogLine& line : news.lines) *response.add_lines() = std::move(line);
      if (!writer.Write(response)) break;
      last_sent = now;
      if (more) continue;
    }
    logs_.WaitForNews(cursor, stopping_, now + kCancellationPoll);
    if (context.IsCancelled()) break;
  }
  if (stopping_.stop_requested()) {
    return base::MakeError(absl::StatusCode::kUnavailable, "SHUTTING_DOWN",
                           options_.node_id + " is shutting down");
  }
  return base::MakeError(absl::StatusCode::kCancelled, "CLIENT_LEFT",
                         "the client ended the stream");
}

}  // namespace onepiece::telemetry
