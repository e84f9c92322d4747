// The streams of Client: Watch and Fetch.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>

#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "cluster/client/client_impl.h"
#include "cluster/client/receive_file.h"
#include "cluster/rpc/channel.h"

namespace onepiece::client {
namespace {

// A stream is opened anew after this long, so that a lost peer is noticed.
constexpr std::chrono::seconds kTransferTurn(60);

bool Reconnect(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsAborted(status) || absl::IsCancelled(status);
}

absl::Status Stopped() {
  return base::MakeError(absl::StatusCode::kCancelled, "INTERRUPTED", "interrupted");
}

/// One artifact that is being received: what has arrived over all connections.
struct Incoming {
  v1::ResultArtifact artifact;
  std::int64_t received_bytes = 0;
  base::Sha256 sha256;
  absl::Status sink_error;
};

/// Reads one stream to its end into `incoming`. Sets `moved` when any byte came.
absl::Status ReadStream(grpc::ClientReader<v1::FetchResultResponse>& reader, const ChunkSink& sink,
                        Incoming& incoming, bool& moved) {
  v1::FetchResultResponse response;
  while (reader.Read(&response)) {
    if (response.has_artifact()) {
      if (!incoming.artifact.sha256().empty() &&
          incoming.artifact.sha256() != response.artifact().sha256()) {
        // A resumed fetch would append the bytes of another result.
        incoming.sink_error = base::MakeError(absl::StatusCode::kDataLoss, "RESULT_CHANGED",
                                              "the result changed while it was being fetched");
        return incoming.sink_error;
      }
      incoming.artifact = response.artifact();
    }
    if (response.chunk().empty()) continue;
    moved = true;
    incoming.sha256.Update(response.chunk());
    incoming.received_bytes += static_cast<std::int64_t>(response.chunk().size());
    incoming.sink_error = sink(response.chunk());
    if (!incoming.sink_error.ok()) return incoming.sink_error;
  }
  return absl::OkStatus();
}

absl::Status CheckArrived(Incoming& incoming) {
  if (incoming.received_bytes == incoming.artifact.size_bytes() &&
      incoming.sha256.FinishHex() == incoming.artifact.sha256()) {
    return absl::OkStatus();
  }
  return base::MakeError(absl::StatusCode::kDataLoss, "CHECKSUM_MISMATCH",
                         "the result arrived damaged: size or SHA-256 differs");
}

}  // namespace

absl::StatusOr<v1::Job> Client::Watch(std::string_view uid, const JobObserver& observer,
                                      base::MonotonicTime deadline, std::stop_token stop) {
  v1::WatchJobRequest request;
  request.set_name(JobName(uid));
  base::Clock& clock = *impl_->options.clock;
  v1::Job job;
  base::MonotonicTime give_up = clock.Now() + impl_->options.timeout;
  base::Duration pause = impl_->options.first_pause;
  for (bool refresh = false;; refresh = true) {
    absl::Status status;
    const auto proxies = impl_->proxies.Proxies(refresh, std::min(deadline, give_up));
    if (!proxies.ok()) status = proxies.status();
    std::set<std::string> strangers;  // The sets that do not know the job.
    for (std::size_t i = 0; proxies.ok() && i < proxies->size(); ++i) {
      grpc::ClientContext context;
      rpc::SetTimeLeft(context, std::min<base::Duration>(kTransferTurn, deadline - clock.Now()));
      const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
      const std::stop_callback leave(impl_->options.stop, [&context] { context.TryCancel(); });
      const auto reader = (*proxies)[i].stub->WatchJob(&context, request);
      bool enough = false, heard = false;
      while (!enough && reader->Read(&job)) {
        heard = true;
        give_up = clock.Now() + impl_->options.timeout;
        pause = impl_->options.first_pause;
        enough = !observer(job) || IsTerminal(job.state());
      }
      if (enough) {
        context.TryCancel();
        reader->Finish();
        return job;
      }
      status = ReadAnswer(reader->Finish()).status;
      if (stop.stop_requested() || impl_->options.stop.stop_requested()) return Stopped();
      if (clock.Now() >= deadline) {
        return base::MakeError(absl::StatusCode::kDeadlineExceeded, "WATCH_DEADLINE",
                               "the job has not ended in time");
      }
      // A job may be unchanged for a whole turn. The cluster has answered in it all the same.
      if (heard && absl::IsDeadlineExceeded(status)) give_up = clock.Now() + impl_->options.timeout;
      // RESOURCE_EXHAUSTED means too many watches. The job goes on, so the next proxy is asked.
      if (status.ok() || Reconnect(status) || absl::IsResourceExhausted(status)) continue;
      if (!absl::IsNotFound(status)) return status;
      // NOT_FOUND is final only when all sets say so, because a silent set or one that is not known
      // yet may know the job.
      strangers.insert(SetOf((*proxies)[i]));
      const bool all = std::ranges::all_of(*proxies, [&](const Proxy& proxy) {
        return proxy.unlisted || strangers.contains(SetOf(proxy));
      });
      if (all && (refresh || impl_->proxies.Complete())) return status;
    }
    if (clock.Now() >= give_up) {
      return base::MakeError(
          absl::StatusCode::kUnavailable, "CLUSTER_UNREACHABLE",
          "the cluster does not answer" + (status.ok() ? "" : ": " + base::Message(status)));
    }
    if (!impl_->proxies.Pause(pause, std::min(deadline, give_up), stop)) return Stopped();
    pause = std::min(pause * 2, impl_->options.max_pause);
  }
}

absl::StatusOr<v1::ResultArtifact> Client::Fetch(std::string_view uid, std::string_view artifact,
                                                 const ChunkSink& sink) {
  v1::FetchResultRequest request;
  request.set_name(JobName(uid));
  request.set_artifact(std::string(artifact));
  Incoming incoming;
  // Call() bounds the time of the attempts. A turn that has moved bytes begins a new Call().
  for (;;) {
    bool moved = false;
    const absl::Status status = impl_->proxies.Call([&](auto& stub, auto& context) {
      // A long transfer may outlive the deadline of an attempt, so a turn replaces it.
      rpc::SetTimeLeft(context, kTransferTurn);
      request.set_offset_bytes(incoming.received_bytes);
      const auto reader = stub.FetchResult(&context, request);
      const absl::Status read = ReadStream(*reader, sink, incoming, moved);
      if (!read.ok()) context.TryCancel();
      const grpc::Status end = reader->Finish();
      // Call() does not retry FAILED_PRECONDITION. Any code that it retries would feed a sink that
      // has refused.
      return read.ok()
                 ? end
                 : grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "stopped by the receiver");
    });
    if (!incoming.sink_error.ok()) return incoming.sink_error;
    if (status.ok()) break;
    if (!moved || !Reconnect(status)) return status;
  }
  ONEPIECE_RETURN_IF_ERROR(CheckArrived(incoming));
  return incoming.artifact;
}

absl::StatusOr<v1::ResultArtifact> ReceiveIntoFile(
    const std::string& path,
    absl::FunctionRef<absl::StatusOr<v1::ResultArtifact>(const ChunkSink&)> receive) {
  const std::string partial = path + ".part" + std::to_string(::getpid());
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  const auto cannot_write = [&partial] {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "CANNOT_WRITE",
                           "cannot write " + partial + ": " + std::strerror(errno),
                           {{"path", partial}});
  };
  if (!file) return cannot_write();
  absl::StatusOr<v1::ResultArtifact> received = receive([&](std::string_view chunk) {
    file.write(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    return file ? absl::OkStatus() : cannot_write();
  });
  // close() writes what is still buffered, so a full disk may show only here.
  file.close();
  if (received.ok() && !file) received = cannot_write();
  if (received.ok() && std::rename(partial.c_str(), path.c_str()) != 0) received = cannot_write();
  if (!received.ok()) ::unlink(partial.c_str());
  return received;
}

absl::StatusOr<v1::ResultArtifact> Client::FetchToFile(std::string_view uid,
                                                       std::string_view artifact,
                                                       const std::string& path) {
  const auto fetch = [&] {
    return ReceiveIntoFile(path, [&](const ChunkSink& sink) { return Fetch(uid, artifact, sink); });
  };
  absl::StatusOr<v1::ResultArtifact> fetched = fetch();
  if (base::GetReason(fetched.status()).reason == "CHECKSUM_MISMATCH") fetched = fetch();
  return fetched;
}

}  // namespace onepiece::client
