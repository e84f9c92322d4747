// Sends many RPCs at the same time, and keeps the last answer of each process of one kind. Internal
// to cluster/session.
#pragma once

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <stop_token>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/status.h"
#include "cluster/session/feeds.h"

namespace onepiece::session {

/// Sends requests[i] over channels[i]. At most 64 calls are in flight at a time. answers[i] is the
/// answer or the error of call i.
///
/// REQUIRES: `channels` and `requests` have the same size.
///
/// Blocking: it returns when every call has ended. Each call has `timeout` from its own start, so
/// all together may take `timeout` for every 64 calls. It notices `stop` within 50 ms, cancels the
/// calls in flight, and starts no more. Calls that were not started are CANCELLED ("not asked").
template <typename Stub, typename Request, typename Response>
std::vector<absl::StatusOr<Response>> AskAll(
    const std::vector<std::shared_ptr<grpc::Channel>>& channels,
    const std::vector<Request>& requests,
    std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (Stub::*prepare)(
        grpc::ClientContext*, const Request&, grpc::CompletionQueue*),
    base::Duration timeout, const std::stop_token& stop) {
  constexpr std::size_t kAtOnce = 64;
  constexpr std::chrono::milliseconds kStopPoll(50);
  struct Call {
    grpc::ClientContext context;
    Response response;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> reader;
  };
  std::vector<absl::StatusOr<Response>> answers(requests.size(), absl::CancelledError("not asked"));
  std::vector<std::unique_ptr<Call>> calls(requests.size());
  grpc::CompletionQueue queue;
  std::size_t started = 0, ended = 0;
  bool cancelled = false;
  for (;;) {
    for (; started < requests.size() && started - ended < kAtOnce && !cancelled; ++started) {
      auto& call = calls[started] = std::make_unique<Call>();
      rpc::SetTimeout(call->context, timeout);
      Stub stub(channels[started]);
      call->reader = (stub.*prepare)(&call->context, requests[started], &queue);
      call->reader->StartCall();
      call->reader->Finish(&call->response, &call->status, reinterpret_cast<void*>(started + 1));
    }
    if (ended == started) break;
    if (stop.stop_requested() && !cancelled) {
      // The loop goes on until every cancelled call has come out of the queue, because a call must
      // not be destroyed before that.
      cancelled = true;
      for (const auto& call : calls) {
        if (call != nullptr) call->context.TryCancel();
      }
    }
    void* tag = nullptr;
    bool ok = false;
    if (queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kStopPoll) !=
        grpc::CompletionQueue::GOT_EVENT) {
      continue;
    }
    const std::size_t i = reinterpret_cast<std::uintptr_t>(tag) - 1;
    if (calls[i]->status.ok()) {
      answers[i] = std::move(calls[i]->response);
    } else {
      answers[i] = rpc::FromGrpc(calls[i]->status);
    }
    calls[i].reset();
    ++ended;
  }
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
  return answers;
}

/// The last known Entry (RingEntry, DatabaseEntry) of each process of one kind.
///
/// Threading: needs external synchronisation.
template <typename Entry>
class ProcessTable {
 public:
  /// Asks every live process whose role `wanted` accepts. It calls take(answer, process, entry) for
  /// each answer, and then publishes the entries as `part`. A process that does not answer keeps
  /// its last entry, whose `error` says why. A node that the cluster has forgotten loses its entry.
  /// It publishes nothing while the cluster is unknown or after `stop` is requested.
  ///
  /// Blocking: as AskAll() with kReadTimeout.
  template <typename Stub, typename Request, typename Response, typename Take>
  void Poll(Feeds& feeds, bool (*wanted)(v1::Role),
            std::unique_ptr<grpc::ClientAsyncResponseReader<Response>> (Stub::*prepare)(
                grpc::ClientContext*, const Request&, grpc::CompletionQueue*),
            const Take& take, Part<std::vector<Entry>> Snapshot::*part,
            const std::stop_token& stop) {
    const auto cluster = feeds.board.cluster();
    if (cluster == nullptr) return;
    const std::vector<Asked> asked = Reconcile(Processes(*cluster, wanted));
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    for (const Asked& process : asked) channels.push_back(feeds.channels.To(process.address));
    auto answers =
        AskAll(channels, std::vector<Request>(asked.size()), prepare, kReadTimeout, stop);
    if (stop.stop_requested()) return;
    absl::Status last;
    bool any = asked.empty();
    for (std::size_t i = 0; i < asked.size(); ++i) {
      Entry& entry = known_[asked[i].node_id];
      entry.node_id = asked[i].node_id;
      if (answers[i].ok()) {
        take(*std::move(answers[i]), asked[i], entry);
        entry.as_of_ms = NowMs();
        entry.error.clear();
        any = true;
      } else {
        last = answers[i].status();
        entry.error = Explain(last);
      }
    }
    if (any) as_of_ms_ = NowMs();
    auto entries = std::make_shared<std::vector<Entry>>();
    for (const auto& [id, entry] : known_) entries->push_back(entry);
    feeds.board.PutPart<std::vector<Entry>>(
        part,
        {std::move(entries), as_of_ms_, any ? "" : "no process answers (" + Explain(last) + ")"});
  }

 private:
  /// Removes the entries of nodes that are not in `processes`, and marks those of dead ones.
  /// Returns the live processes.
  std::vector<Asked> Reconcile(std::vector<Asked> processes) {
    std::vector<Asked> asked;
    std::map<std::string, Entry> kept;
    for (Asked& process : processes) {
      if (const auto at = known_.find(process.node_id); at != known_.end()) {
        Entry& entry = kept[process.node_id] = std::move(at->second);
        if (!process.alive) entry.error = "the node is dead";
      }
      if (process.alive) asked.push_back(std::move(process));
    }
    known_ = std::move(kept);
    return asked;
  }

  std::map<std::string, Entry> known_;
  std::int64_t as_of_ms_ = 0;
};

}  // namespace onepiece::session
