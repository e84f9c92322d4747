#include "cluster/database/replicator.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "cluster/rpc/channel.h"

namespace onepiece::database {
namespace {

constexpr std::size_t kRecordsPerCall = 256;
/// Keeps a call well below the transport's limit, whatever the records hold.
constexpr std::size_t kBytesPerCall = std::size_t{16} << 20;
constexpr std::size_t kMaxStubs = 64;

}  // namespace

bool Replicator::Queue::Add(const base::Uid& uid) {
  if (!waiting.insert(uid).second) return true;
  order.push_back(uid);
  if (order.size() <= kMaxWaiting) return true;
  waiting.erase(order.front());
  order.pop_front();
  return false;
}

std::vector<base::Uid> Replicator::Queue::Take(std::size_t count) {
  std::vector<base::Uid> uids;
  while (uids.size() < count && !order.empty()) {
    uids.push_back(order.front());
    waiting.erase(order.front());
    order.pop_front();
  }
  return uids;
}

Replicator::Replicator(ReplicatorOptions options, base::Clock& clock)
    : options_(std::move(options)), clock_(clock) {}

Replicator::~Replicator() { Stop(); }

void Replicator::Enqueue(const base::Uid& uid, Change change) {
  const std::lock_guard lock(mutex_);
  if (!(change == Change::kRecord ? records_ : results_).Add(uid)) ++stats_.dropped;
  changed_.notify_all();
}

void Replicator::Start(const JobStore& store, node::Outbox& outbox) {
  store_ = &store;
  outbox_ = &outbox;
  record_thread_ = std::jthread([this](const std::stop_token& stop) { SendRecords(stop); });
  result_thread_ = std::jthread([this](const std::stop_token& stop) { SendResults(stop); });
}

void Replicator::Stop() {
  for (std::jthread* thread : {&record_thread_, &result_thread_}) {
    if (thread->joinable()) thread->request_stop();
  }
  for (std::jthread* thread : {&record_thread_, &result_thread_}) {
    if (thread->joinable()) thread->join();
  }
}

bool Replicator::WaitIdle(base::MonotonicTime deadline) {
  std::unique_lock lock(mutex_);
  return clock_.WaitUntil(changed_, lock, {}, deadline, [this] {
    return records_.order.empty() && results_.order.empty() && !records_.busy && !results_.busy;
  });
}

ReplicatorStats Replicator::stats() const {
  const std::lock_guard lock(mutex_);
  ReplicatorStats stats = stats_;
  stats.records_waiting = static_cast<std::int64_t>(records_.order.size());
  stats.results_waiting = static_cast<std::int64_t>(results_.order.size());
  return stats;
}

std::optional<v1::Endpoint> Replicator::PeerFor(const base::Uid& uid) const {
  for (v1::Endpoint& endpoint : options_.routing()->DatabasesFor(uid)) {
    if (endpoint.node_id() != options_.node_id) return std::move(endpoint);
  }
  return std::nullopt;
}

std::vector<base::Uid> Replicator::TakeOrWait(Queue& queue, std::size_t count,
                                              const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, stop, [&queue] { return !queue.order.empty(); });
  std::vector<base::Uid> uids = queue.Take(count);
  queue.busy = !uids.empty();
  return uids;
}

void Replicator::Finish(Queue& queue, const std::vector<base::Uid>& again,
                        const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  for (const base::Uid& uid : again) {
    if (!queue.Add(uid)) ++stats_.dropped;
  }
  queue.busy = false;
  changed_.notify_all();
  // A peer that is away must not be asked as fast as we can.
  if (!again.empty()) {
    (void)changed_.wait_for(lock, stop, base::Scaled(options_.retry_pause), [] { return false; });
  }
}

void Replicator::SendRecords(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const std::vector<base::Uid> uids = TakeOrWait(records_, kRecordsPerCall, stop);
    std::map<std::string, std::pair<v1::Endpoint, std::vector<base::Uid>>> by_peer;
    std::vector<base::Uid> again;
    for (const base::Uid& uid : uids) {
      const auto peer = PeerFor(uid);
      if (!peer.has_value()) {
        again.push_back(uid);
        continue;
      }
      auto& batch = by_peer[peer->address()];
      batch.first = *peer;
      batch.second.push_back(uid);
    }
    for (const auto& [address, batch] : by_peer) {
      const std::vector<base::Uid> failed = SendBatch(batch.first, batch.second);
      again.insert(again.end(), failed.begin(), failed.end());
    }
    Finish(records_, again, stop);
  }
}

std::vector<base::Uid> Replicator::SendBatch(const v1::Endpoint& peer,
                                             const std::vector<base::Uid>& uids) {
  std::vector<base::Uid> again;
  v1::ReplicateJobsRequest request;
  std::vector<base::Uid> in_request;
  std::size_t bytes = 0;
  const auto flush = [&] {
    if (in_request.empty()) return;
    const auto stub = StubFor(peer.address());
    const auto answer =
        rpc::Call(*stub, &v1::DatabaseService::Stub::ReplicateJobs, request, options_.call_timeout);
    const std::lock_guard lock(mutex_);
    if (answer.ok()) {
      stats_.records_sent += in_request.size();
    } else {
      ++stats_.failures;
      again.insert(again.end(), in_request.begin(), in_request.end());
    }
    request.Clear();
    in_request.clear();
    bytes = 0;
  };
  for (const base::Uid& uid : uids) {
    for (v1::JobRecord& record : store_->Records(std::vector{uid})) {
      bytes += record.ByteSizeLong();
      *request.add_records() = std::move(record);
      in_request.push_back(uid);
    }
    if (bytes >= kBytesPerCall) flush();
  }
  flush();
  return again;
}

void Replicator::SendResults(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const std::vector<base::Uid> uids = TakeOrWait(results_, 1, stop);
    std::vector<base::Uid> again;
    for (const base::Uid& uid : uids) {
      if (SendResult(uid) == Sent::kTryAgain) again.push_back(uid);
    }
    Finish(results_, again, stop);
  }
}

Replicator::Sent Replicator::SendResult(const base::Uid& uid) {
  const auto result = store_->FindResult(uid);
  const std::vector<v1::JobRecord> records = store_->Records(std::vector{uid});
  if (result == nullptr || records.empty()) return Sent::kNever;  // Purged meanwhile.
  const auto peer = PeerFor(uid);
  if (!peer.has_value()) return Sent::kTryAgain;
  const v1::Job& job = records.front().job();
  message::Message message;
  message.header.kind = message::Kind::kReplica;
  message.header.uid = uid;
  message.header.app = job.app_id();
  message.header.ingress_time = job::FromTimestamp(job.create_time());
  message.header.deadline = job::FromTimestamp(job.deadline());
  for (const StoredArtifact& artifact : *result) {
    message.artifacts.push_back({artifact.info.artifact(),
                                 message::DType::kBytes,
                                 {artifact.info.size_bytes()},
                                 artifact.info.media_type(),
                                 artifact.data});
  }
  const auto sent = outbox_->Deliver(message, node::Target::Nodes({*peer}),
                                     clock_.Now() + base::Scaled(options_.deliver_timeout));
  const std::lock_guard lock(mutex_);
  if (sent.ok()) {
    ++stats_.results_sent;
    return Sent::kYes;
  }
  ++stats_.failures;
  spdlog::warn("op=replicate uid={} peer={} {}", uid.ToString(), peer->node_id(),
               base::View(sent.status().message()));
  return sent.status().code() == absl::StatusCode::kInvalidArgument ? Sent::kNever
                                                                    : Sent::kTryAgain;
}

std::shared_ptr<v1::DatabaseService::Stub> Replicator::StubFor(const std::string& address) {
  if (stubs_.size() >= kMaxStubs && !stubs_.contains(address)) stubs_.clear();
  auto& stub = stubs_[address];
  if (stub == nullptr)
    stub = std::make_shared<v1::DatabaseService::Stub>(rpc::MakeChannel(address));
  return stub;
}

}  // namespace onepiece::database
