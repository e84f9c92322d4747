#include "cluster/database/peer.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/strings/escaping.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "cluster/rpc/channel.h"

namespace onepiece::database {
namespace {

constexpr std::size_t kRecordsPerCall = 256;
/// Calls in a row that get no answer in time before the peer counts as silent. One is not enough: a
/// process that was stopped for a while finds its own calls out of time.
constexpr int kSlowIsSilent = 2;
/// Keeps a call well below the transport's message limit, however large the records are.
constexpr std::size_t kBytesPerCall = std::size_t{16} << 20;

/// Returns nullopt when the store has no result of the job any more.
std::optional<message::Message> ReplicaOf(const JobStore& store, const base::Uid& uid,
                                          base::MonotonicTime now) {
  const auto result = store.FindResult(uid);
  const std::vector<v1::JobRecord> records = store.Records(std::vector{uid});
  if (result == nullptr || records.empty()) return std::nullopt;
  const v1::Job& job = records.front().job();
  message::Message message;
  message.header.kind = message::Kind::kReplica;
  message.header.uid = uid;
  message.header.app = job.app_id();
  message.header.run = records.front().run();
  message.header.ingress_time = job::FromTimestamp(job.create_time());
  message.header.deadline = now + job::FromProto(records.front().time_left());
  for (const StoredArtifact& artifact : *result) {
    message.artifacts.push_back({artifact.info.artifact(),
                                 message::DType::kBytes,
                                 {artifact.info.size_bytes()},
                                 artifact.info.media_type(),
                                 artifact.data,
                                 absl::HexStringToBytes(artifact.info.sha256())});
  }
  return message;
}

}  // namespace

Peer::Peer(const node::ClusterView& view, std::string self, PeerOptions options,
           const JobStore& store, Ways ways, Events events, base::Clock& clock)
    : view_(view),
      self_(std::move(self)),
      options_(std::move(options)),
      store_(store),
      ways_(ways),
      events_(std::move(events)),
      clock_(clock) {
  record_thread_ = std::jthread([this](const std::stop_token& stop) {
    Run(What::kRecord, kRecordsPerCall, stop,
        [this](const auto& endpoint, const auto& uids) { return SendRecords(endpoint, uids); });
  });
  result_thread_ = std::jthread([this](const std::stop_token& stop) {
    Run(What::kResult, 1, stop,
        [this](const auto& endpoint, const auto& uids) { return SendResults(endpoint, uids); });
  });
}

Peer::~Peer() { Stop(); }

void Peer::Stop() {
  for (std::jthread* thread : {&record_thread_, &result_thread_}) thread->request_stop();
  for (std::jthread* thread : {&record_thread_, &result_thread_}) {
    if (thread->joinable()) thread->join();
  }
}

void Peer::Enqueue(const base::Uid& uid, What what) {
  const base::MutexLock lock(mutex_);
  const bool urgent = what == What::kUrgentRecord || what == What::kUrgentResult;
  if (!QueueOf(what).waiting.Add(uid, urgent)) ++stats_.dropped;
  changed_.NotifyAll();
}

bool Peer::Answers() const {
  const std::optional<v1::Endpoint> endpoint = Endpoint();
  const base::MutexLock lock(mutex_);
  return endpoint.has_value() && endpoint->incarnation() != silent_incarnation_;
}

bool Peer::TakesResults() const {
  const std::optional<v1::Endpoint> endpoint = Endpoint();
  const base::MutexLock lock(mutex_);
  return endpoint.has_value() && endpoint->incarnation() != silent_incarnation_ &&
         (endpoint->incarnation() != distrusted_incarnation_ || clock_.Now() >= distrusted_until_);
}

void Peer::Distrust() {
  const std::optional<v1::Endpoint> endpoint = Endpoint();
  if (!endpoint.has_value()) return;
  const base::MutexLock lock(mutex_);
  distrusted_incarnation_ = endpoint->incarnation();
  distrusted_until_ = clock_.Now() + base::Scaled(options_.distrust);
}

bool Peer::IsSendingResult(const base::Uid& uid) const {
  const bool answers = TakesResults();
  const base::MutexLock lock(mutex_);
  return results_.sending.contains(uid) || (answers && results_.waiting.contains(uid));
}

bool Peer::IsIdle() const {
  const base::MutexLock lock(mutex_);
  return records_.waiting.size() == 0 && records_.sending.empty() && results_.waiting.size() == 0 &&
         results_.sending.empty();
}

PeerStats Peer::stats() const {
  const base::MutexLock lock(mutex_);
  PeerStats stats = stats_;
  stats.records_waiting = static_cast<std::int64_t>(records_.waiting.size());
  stats.results_waiting = static_cast<std::int64_t>(results_.waiting.size());
  return stats;
}

std::optional<v1::Endpoint> Peer::Endpoint() const {
  return view_.routing()->FindDatabase(options_.node_id);
}

void Peer::Note(const v1::Endpoint& endpoint, Sign sign) {
  const base::MutexLock lock(mutex_);
  slow_in_a_row_ = sign == Sign::kSlow ? slow_in_a_row_ + 1 : 0;
  if (sign == Sign::kTook) {
    if (silent_incarnation_ != endpoint.incarnation()) return;
    // Whatever kept its results away has most likely passed too.
    silent_incarnation_ = distrusted_incarnation_ = 0;
    return;
  }
  ++stats_.failures;
  if (sign == Sign::kRefused || slow_in_a_row_ >= kSlowIsSilent)
    silent_incarnation_ = endpoint.incarnation();
}

void Peer::Run(What what, std::size_t count, const std::stop_token& stop,
               const std::function<std::vector<base::Uid>(const v1::Endpoint&,
                                                          const std::vector<base::Uid>&)>& send) {
  base::MutexLock lock(mutex_);
  Queue& queue = QueueOf(what);
  while (changed_.Wait(lock, stop, [&queue] { return queue.waiting.size() > 0; }) &&
         !stop.stop_requested()) {
    lock.Unlock();
    const std::optional<v1::Endpoint> endpoint = Endpoint();
    lock.Lock();
    bool all_sent = false;
    if (endpoint.has_value()) {
      const std::vector<base::Uid> uids = queue.waiting.Take(count);
      queue.sending.insert(uids.begin(), uids.end());
      lock.Unlock();
      const std::vector<base::Uid> again = send(*endpoint, uids);
      lock.Lock();
      queue.sending.clear();
      for (const base::Uid& uid : again) {
        if (!queue.waiting.Add(uid, false)) ++stats_.dropped;
      }
      all_sent = again.empty();
    }
    // Pause, so that a peer that is away is not retried in a tight loop. Only `stop` ends the
    // pause.
    if (!all_sent) {
      lock.Unlock();
      clock_.Pause(stop, base::Scaled(options_.retry_pause));
      lock.Lock();
    }
  }
}

std::vector<base::Uid> Peer::SendRecords(const v1::Endpoint& endpoint,
                                         const std::vector<base::Uid>& uids) {
  if (stub_ == nullptr || stub_address_ != endpoint.address()) {
    stub_address_ = endpoint.address();
    stub_ = std::make_unique<v1::DatabaseService::Stub>(rpc::MakeChannel(stub_address_));
  }
  std::vector<base::Uid> again, in_request;
  v1::ReplicateJobsRequest request;
  std::size_t bytes = 0;
  const auto flush = [&] {
    if (in_request.empty()) return;
    request.set_cluster_id(view_.cluster_id());
    request.set_node_id(self_);
    const auto answer = rpc::Call(*stub_, &v1::DatabaseService::Stub::ReplicateJobs, request,
                                  options_.call_timeout);
    const bool slow = absl::IsDeadlineExceeded(answer.status());
    Note(endpoint, answer.ok() ? Sign::kTook : slow ? Sign::kSlow : Sign::kRefused);
    if (answer.ok()) {
      {
        const base::MutexLock lock(mutex_);
        stats_.records_sent += in_request.size();
      }
      events_.answered({answer->records().begin(), answer->records().end()});
    } else {
      again.insert(again.end(), in_request.begin(), in_request.end());
      // One that is slow may yet answer, and it is up to the settlement how long it may take.
      if (!slow) {
        for (const base::Uid& uid : in_request) events_.failed(uid);
      }
    }
    request.Clear();
    in_request.clear();
    bytes = 0;
  };
  for (const base::Uid& uid : uids) {
    for (v1::JobRecord& record : store_.Records(std::vector{uid})) {
      bytes += record.ByteSizeLong();
      *request.add_records() = std::move(record);
      in_request.push_back(uid);
    }
    if (bytes >= kBytesPerCall) flush();
  }
  flush();
  return again;
}

std::vector<base::Uid> Peer::SendResults(const v1::Endpoint& endpoint,
                                         const std::vector<base::Uid>& uids) {
  std::vector<base::Uid> again;
  for (const base::Uid& uid : uids) {
    const Sent sent = SendResult(endpoint, uid);
    // No Note(took) here: the shared-memory ring of a dead process accepts messages too, so a
    // delivery does not prove that the peer is alive.
    if (sent == Sent::kYes) continue;
    if (sent == Sent::kNever) {
      events_.failed(uid);
      continue;
    }
    Note(endpoint, Sign::kSlow);
    again.push_back(uid);
    // The answer to a call tells whether anybody is there.
    Enqueue(uid, What::kUrgentRecord);
  }
  return again;
}

Peer::Sent Peer::SendResult(const v1::Endpoint& endpoint, const base::Uid& uid) {
  const std::optional<message::Message> message = ReplicaOf(store_, uid, clock_.Now());
  if (!message.has_value()) return Sent::kNever;  // It was purged meanwhile.
  const absl::Status sent = Send(endpoint, *message);
  if (sent.ok()) {
    const base::MutexLock lock(mutex_);
    ++stats_.results_sent;
    results_.sending.erase(uid);
    return Sent::kYes;
  }
  if (!absl::IsCancelled(sent)) {
    spdlog::warn("op=replicate uid={} peer={} {}", uid.ToString(), options_.node_id,
                 base::View(sent.message()));
  }
  return absl::IsInvalidArgument(sent) ? Sent::kNever : Sent::kTryAgain;
}

// A large result is written into the peer's memory, and a small one goes by message. Each way
// stands in for the other: a ring may be smaller than any result, and a peer may have no room left
// to reserve.
absl::Status Peer::Send(const v1::Endpoint& endpoint, const message::Message& message) {
  const auto write = [&] {
    return ways_.values.At(endpoint.address())
        ->Put(message, clock_.Now() + base::Scaled(options_.deliver_timeout))
        .status();
  };
  const bool large = values::IsForPut(message);
  const absl::Status written = large ? write() : absl::OkStatus();
  if (large && written.ok()) return written;
  const absl::Status sent = SendByMessage(message);
  if (base::GetReason(sent).reason != "MESSAGE_TOO_LARGE" || !values::CanPut(message)) return sent;
  return large ? written : write();
}

absl::Status Peer::SendByMessage(const message::Message& message) {
  // The endpoint is looked up again at each round, because the peer may come back under another
  // incarnation.
  const node::Destination target{.patience = base::Scaled(options_.patience),
                                 .candidates = [this](const node::Routing& routing) {
                                   const auto found = routing.FindDatabase(options_.node_id);
                                   return found.has_value() ? std::vector{*found}
                                                            : std::vector<v1::Endpoint>();
                                 }};
  return ways_.outbox
      .Deliver(message, target, clock_.Now() + base::Scaled(options_.deliver_timeout))
      .status();
}

}  // namespace onepiece::database
