#include "cluster/node/job_records.h"

#include <algorithm>
#include <charconv>
#include <list>
#include <map>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/check.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "cluster/rpc/channel.h"
#include "grpcpp/completion_queue.h"
#include "onepiece/v1/database.grpc.pb.h"

namespace onepiece::node {
namespace {

using DatabaseStub = v1::DatabaseService::Stub;

constexpr std::size_t kMaxStubs = 64;
constexpr base::Duration kPollInterval = std::chrono::milliseconds(100);
// A fetch that brings nothing for this long has lost its database.
constexpr base::Duration kFetchIdleLimit = std::chrono::seconds(10);
constexpr int kDefaultPageSize = 100;
constexpr int kMaxPageSize = 1000;

bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

absl::Status NoDatabase(const absl::Status& last) {
  return base::MakeError(
      absl::StatusCode::kUnavailable, "NO_DATABASE",
      last.ok() ? "no database is known" : "no database answers: " + base::Message(last));
}

absl::Status Cancelled() {
  return base::MakeError(absl::StatusCode::kCancelled, "CALLER_GONE", "nobody listens any more");
}

/// A lost result is one database's view and not the job's end, because another database may have
/// the bytes.
constexpr char kLostOnRestart[] = "LOST_ON_RESTART";
bool IsLost(const v1::Job& job) { return job.error().reason() == kLostOnRestart; }

/// The answers of several databases that did not have the job.
struct Misses {
  absl::Status away, not_found, lost;

  /// Returns true when `status` is a reason to ask the next database.
  bool Take(const absl::Status& status) {
    if (IsAway(status)) return away = status, true;
    // A tombstone is a final answer, because the next database may not know of the deletion yet.
    if (base::GetReason(status).metadata.contains("deleted")) return false;
    if (absl::IsNotFound(status)) return not_found = status, true;
    if (base::GetReason(status).reason == kLostOnRestart) return lost = status, true;
    return false;
  }
  [[nodiscard]] absl::Status Verdict() const {
    if (!lost.ok()) return lost;
    return away.ok() && !not_found.ok() ? not_found : NoDatabase(away);
  }
};

/// Returns true when `a` is further in the life of the same job than `b`.
bool IsFurther(const v1::Job& a, const v1::Job& b) {
  return std::tuple(job::IsTerminal(a.state()), !IsLost(a), a.state(), a.stage_index(), a.step()) >
         std::tuple(job::IsTerminal(b.state()), !IsLost(b), b.state(), b.stage_index(), b.step());
}

/// Remembers which database took the last write of a job. Evicts the least recently used jobs.
class Locations {
 public:
  explicit Locations(std::size_t limit) : limit_(limit) {}
  void Note(const base::Uid& uid, const std::string& node_id) {
    const base::MutexLock lock(mutex_);
    const auto [at, is_new] = places_.try_emplace(uid);
    if (is_new) {
      order_.push_front(uid);
      at->second.order = order_.begin();
    }
    at->second.node_id = node_id;
    Touch(at->second);
    if (order_.size() <= limit_) return;
    places_.erase(order_.back());
    order_.pop_back();
  }
  /// Returns an empty id when it does not know.
  std::string Find(const base::Uid& uid) {
    const base::MutexLock lock(mutex_);
    const auto found = places_.find(uid);
    if (found == places_.end()) return {};
    Touch(found->second);
    return found->second.node_id;
  }

 private:
  struct Place {
    std::string node_id;
    std::list<base::Uid>::iterator order;
  };
  void Touch(const Place& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    order_.splice(order_.begin(), order_, place.order);
  }

  const std::size_t limit_;
  base::Mutex mutex_;
  std::list<base::Uid> order_ ABSL_GUARDED_BY(mutex_);  // Most recently used first.
  std::unordered_map<base::Uid, Place> places_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

struct JobRecords::Impl {
  Impl(const ClusterView& cluster, JobRecordsOptions given, base::Clock& the_clock)
      : view(cluster),
        options(std::move(given)),
        clock(the_clock),
        locations(options.max_locations) {}

  std::shared_ptr<DatabaseStub> StubFor(const std::string& address) {
    const base::MutexLock lock(mutex);
    // Most of them are addresses of databases that are long gone. Those in use come back at once.
    if (stubs.size() >= kMaxStubs && !stubs.contains(address)) stubs.clear();
    std::shared_ptr<DatabaseStub>& stub = stubs[address];
    if (stub == nullptr) stub = v1::DatabaseService::NewStub(rpc::MakeChannel(address));
    return stub;
  }

  /// Returns the databases in the order in which they are asked.
  std::vector<v1::Endpoint> DatabasesFor(const base::Uid& uid) {
    std::vector<v1::Endpoint> databases = view.routing()->DatabasesFor(uid);
    const std::string wrote = locations.Find(uid);
    const auto first = std::ranges::find(databases, wrote, &v1::Endpoint::node_id);
    if (first != databases.end()) std::rotate(databases.begin(), first, first + 1);
    return databases;
  }

  /// Asks the databases of `uid` in turn.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Ask(const base::Uid& uid,
                               grpc::Status (DatabaseStub::*method)(grpc::ClientContext*,
                                                                    const Request&, Response*),
                               const std::type_identity_t<Request>& request,
                               std::optional<base::Duration> timeout = std::nullopt) {
    Misses misses;
    absl::StatusOr<Response> lost = absl::NotFoundError("");
    for (const v1::Endpoint& database : DatabasesFor(uid)) {
      absl::StatusOr<Response> response = rpc::Call(*StubFor(database.address()), method, request,
                                                    timeout.value_or(options.call_timeout));
      if constexpr (std::is_same_v<Request, v1::GetJobRecordRequest>) {
        if (response.ok() && IsLost(response->job())) {
          lost = std::move(response);
          continue;
        }
      } else if (response.ok()) {
        // Only a write says which database has the newest record. A read does not.
        locations.Note(uid, database.node_id());
      }
      if (response.ok() || !misses.Take(response.status())) return response;
    }
    if (lost.ok()) return lost;
    return misses.Verdict();
  }

  template <typename Item>
  using PrepareStream = std::function<std::unique_ptr<grpc::ClientAsyncReader<Item>>(
      DatabaseStub&, grpc::ClientContext*, grpc::CompletionQueue*)>;

  /// Reads one database's stream to its end. Returns CANCELLED when the sink or `keep_going` said
  /// no.
  template <typename Item>
  absl::Status ReadStream(const v1::Endpoint& database, const PrepareStream<Item>& prepare,
                          base::Duration idle_limit, const Sink<Item>& sink,
                          const KeepGoing& keep_going);

  /// Returns the older record of the job, if another database has one. A database that has
  /// restarted knows nothing and creates every job anew.
  v1::CreateJobResponse PreferElsewhere(const base::Uid& uid, v1::CreateJobResponse created);

  const ClusterView& view;
  const JobRecordsOptions options;
  base::Clock& clock;
  base::Mutex mutex;
  std::map<std::string, std::shared_ptr<DatabaseStub>> stubs ABSL_GUARDED_BY(mutex);
  Locations locations;
};

template <typename Item>
absl::Status JobRecords::Impl::ReadStream(const v1::Endpoint& database,
                                          const PrepareStream<Item>& prepare,
                                          base::Duration idle_limit, const Sink<Item>& sink,
                                          const KeepGoing& keep_going) {
  const std::shared_ptr<DatabaseStub> stub = StubFor(database.address());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto reader = prepare(*stub, &context, &queue);
  absl::Status ended;  // The reason why this side ended the stream, if it did.
  base::MonotonicTime idle_since = clock.Now();

  // Waits for the one operation under way, and polls the caller meanwhile.
  const auto completes = [&]() -> bool {
    while (true) {
      void* tag = nullptr;
      bool ok = false;
      const auto event =
          queue.AsyncNext(&tag, &ok, gpr_time_from_nanos(kPollInterval.count(), GPR_TIMESPAN));
      if (event == grpc::CompletionQueue::GOT_EVENT) return ok;
      // gRPC uses `item` or `status` until the operation completes, even after a cancellation.
      if (!ended.ok()) continue;
      if (!keep_going()) ended = Cancelled();
      if (clock.Now() - idle_since > idle_limit) {
        ended = base::MakeError(absl::StatusCode::kDeadlineExceeded, "STREAM_STALLED",
                                "the database went silent");
      }
      if (!ended.ok()) context.TryCancel();
    }
  };

  Item item;
  // Any pointer serves as the tag, because one operation is under way at a time.
  reader->StartCall(&item);
  bool alive = completes();
  while (alive) {
    reader->Read(&item, &item);
    alive = completes();
    if (!alive) break;
    idle_since = clock.Now();
    if (ended.ok() && !sink(item)) {
      ended = Cancelled();
      context.TryCancel();
    }
  }
  grpc::Status status;
  reader->Finish(&status, &status);
  completes();
  queue.Shutdown();
  if (!ended.ok()) return ended;
  absl::Status result = rpc::FromGrpc(status);
  // A server that shuts down cancels its streams. Our caller gets CANCELLED only when it asked for
  // the cancellation.
  return absl::IsCancelled(result) ? absl::UnavailableError(result.message()) : result;
}

v1::CreateJobResponse JobRecords::Impl::PreferElsewhere(const base::Uid& uid,
                                                        v1::CreateJobResponse created) {
  v1::GetJobRecordRequest ask;
  ask.set_uid(uid.ToString());
  const std::vector<v1::Endpoint> databases = view.routing()->DatabasesFor(uid);
  for (const v1::Endpoint& database : databases) {
    const auto known =
        rpc::Call(*StubFor(database.address()), &DatabaseStub::GetJob, ask, options.call_timeout);
    const bool deleted = base::GetReason(known.status()).metadata.contains("deleted");
    // The record that was just made answers here too. An older one has another create_time.
    const bool older = known.ok() && JobPosition::Of(known->job()).create_unix_ns !=
                                         JobPosition::Of(created.record().job()).create_unix_ns;
    if (!deleted && !older) continue;
    if (deleted) {
      created.mutable_record()->set_deleted(true);
    } else {
      *created.mutable_record() = *known;
    }
    created.set_created(false);
    v1::ReplicateJobsRequest heal;
    *heal.add_records() = created.record();
    for (const v1::Endpoint& other : databases) {
      if (other.node_id() == database.node_id()) continue;
      (void)rpc::Call(*StubFor(other.address()), &DatabaseStub::ReplicateJobs, heal,
                      options.call_timeout);
    }
    break;
  }
  return created;
}

JobRecords::JobRecords(const ClusterView& view, JobRecordsOptions options, base::Clock& clock)
    : impl_(std::make_unique<Impl>(view, std::move(options), clock)) {}

JobRecords::~JobRecords() = default;

absl::StatusOr<v1::CreateJobResponse> JobRecords::Create(const v1::JobRecord& record) {
  const std::optional<base::Uid> uid = base::Uid::Parse(record.job().uid());
  ONEPIECE_CHECK(uid.has_value());
  v1::CreateJobRequest request;
  *request.mutable_record() = record;
  absl::StatusOr<v1::CreateJobResponse> created =
      impl_->Ask(*uid, &DatabaseStub::CreateJob, request);
  // Without a request_id the uid is fresh, so no database can have it.
  if (!created.ok() || !created->created() || record.job().request_id().empty()) return created;
  return impl_->PreferElsewhere(*uid, *std::move(created));
}

absl::StatusOr<v1::JobRecord> JobRecords::Update(const v1::UpdateJobRequest& request) {
  const std::optional<base::Uid> uid = base::Uid::Parse(request.uid());
  ONEPIECE_CHECK(uid.has_value());
  return impl_->Ask(*uid, &DatabaseStub::UpdateJob, request);
}

absl::StatusOr<v1::JobRecord> JobRecords::Get(const base::Uid& uid,
                                              std::optional<base::Duration> timeout) {
  v1::GetJobRecordRequest request;
  request.set_uid(uid.ToString());
  return impl_->Ask(uid, &DatabaseStub::GetJob, request, timeout);
}

absl::StatusOr<v1::Job> JobRecords::Acknowledge(const base::Uid& uid) {
  v1::AcknowledgeResultRequest request;
  request.set_name(NameOfUid(uid));
  return impl_->Ask(uid, &DatabaseStub::AcknowledgeResult, request);
}

absl::Status JobRecords::Delete(const base::Uid& uid) {
  v1::DeleteJobRequest request;
  request.set_name(NameOfUid(uid));
  return impl_->Ask(uid, &DatabaseStub::DeleteJob, request).status();
}

absl::StatusOr<v1::ListJobsResponse> JobRecords::List(const v1::ListJobsRequest& request) {
  v1::ListJobsRequest bounded = request;
  const int page_size = std::clamp(
      request.page_size() == 0 ? kDefaultPageSize : request.page_size(), 1, kMaxPageSize);
  bounded.set_page_size(page_size);
  const auto before = [](const JobPosition& a, const JobPosition& b) { return a.Before(b); };
  std::map<JobPosition, v1::Job, decltype(before)> merged(before);
  // A database with a full page may have further jobs that come before those of another database.
  // The merged page therefore ends where the first full page ends.
  std::optional<JobPosition> horizon;
  absl::Status last;
  bool any = false;
  for (const v1::Endpoint& database : impl_->view.routing()->Databases()) {
    absl::StatusOr<v1::ListJobsResponse> page =
        rpc::Call(*impl_->StubFor(database.address()), &DatabaseStub::ListJobs, bounded,
                  impl_->options.call_timeout);
    if (!page.ok()) {
      last = page.status();
      if (IsAway(last)) continue;
      return last;
    }
    any = true;
    for (v1::Job& job : *page->mutable_jobs()) {
      v1::Job& known = merged[JobPosition::Of(job)];
      if (known.uid().empty() || IsFurther(job, known)) known = std::move(job);
    }
    if (page->next_page_token().empty()) continue;
    const std::optional<JobPosition> end = JobPosition::Parse(page->next_page_token());
    if (!end.has_value())
      return absl::InternalError("malformed page token from " + database.node_id());
    if (!horizon.has_value() || end->Before(*horizon)) horizon = end;
  }
  if (!any) return NoDatabase(last);
  v1::ListJobsResponse response;
  bool more = horizon.has_value();
  for (auto& [position, job] : merged) {
    if (response.jobs_size() == page_size || (horizon.has_value() && horizon->Before(position))) {
      more = true;
      break;
    }
    *response.add_jobs() = std::move(job);
  }
  if (more && response.jobs_size() > 0) {
    response.set_next_page_token(JobPosition::Of(*response.jobs().rbegin()).ToToken());
  }
  return response;
}

absl::Status JobRecords::Watch(const base::Uid& uid, const Sink<v1::Job>& sink,
                               const KeepGoing& keep_going) {
  v1::WatchJobRequest request;
  request.set_name(NameOfUid(uid));
  const Impl::PrepareStream<v1::Job> prepare = [&](DatabaseStub& stub, grpc::ClientContext* context,
                                                   auto* queue) {
    return stub.PrepareAsyncWatchJob(context, request, queue);
  };
  bool ended = false;
  bool heard = false;
  std::optional<v1::Job> lost;
  const Sink<v1::Job> note = [&](const v1::Job& job) {
    heard = true;
    if (IsLost(job)) {
      lost = job;
      return false;
    }
    ended = job::IsTerminal(job.state());
    return sink(job);
  };
  while (true) {
    Misses misses;
    heard = false;
    lost.reset();
    for (const v1::Endpoint& database : impl_->DatabasesFor(uid)) {
      const absl::Status status =
          impl_->ReadStream<v1::Job>(database, prepare, base::Duration::max(), note, keep_going);
      if (ended) return absl::OkStatus();
      // `note` has ended this stream, because the next database may still have the result.
      if (lost.has_value() && absl::IsCancelled(status) && keep_going()) continue;
      // A stream that ends with OK before its job has ended comes from a database that shuts down.
      if (!status.ok() && !misses.Take(status)) return status;
    }
    if (lost.has_value()) {
      (void)sink(*lost);
      return absl::OkStatus();
    }
    if (!heard) return misses.Verdict();
    if (!keep_going()) return Cancelled();
    impl_->clock.Pause({}, kPollInterval);
  }
}

absl::Status JobRecords::Fetch(const base::Uid& uid, std::string_view artifact,
                               std::int64_t offset_bytes, std::int64_t limit_bytes,
                               const Sink<v1::FetchResultResponse>& sink,
                               const KeepGoing& keep_going) {
  v1::FetchResultRequest request;
  request.set_name(NameOfUid(uid));
  request.set_artifact(std::string(artifact));
  request.set_offset_bytes(offset_bytes);
  request.set_limit_bytes(limit_bytes);
  const Impl::PrepareStream<v1::FetchResultResponse> prepare =
      [&](DatabaseStub& stub, grpc::ClientContext* context, auto* queue) {
        return stub.PrepareAsyncFetchResult(context, request, queue);
      };
  std::optional<v1::ResultArtifact> told;
  bool changed = false;
  const Sink<v1::FetchResultResponse> pass_on = [&](const v1::FetchResultResponse& response) {
    const auto came = static_cast<std::int64_t>(response.chunk().size());
    request.set_offset_bytes(request.offset_bytes() + came);
    if (limit_bytes > 0) request.set_limit_bytes(request.limit_bytes() - came);
    if (!told.has_value()) {
      told = response.artifact();
      return sink(response);
    }
    if (!response.has_artifact()) return sink(response);
    // Another database may go on only with the same bytes.
    changed = response.artifact().sha256() != told->sha256();
    v1::FetchResultResponse rest = response;
    rest.clear_artifact();
    return !changed && sink(rest);
  };
  Misses misses;
  // The second round is for a database that restarted during the first one.
  for (int round = 0; round < 2; ++round) {
    for (const v1::Endpoint& database : impl_->DatabasesFor(uid)) {
      const absl::Status status = impl_->ReadStream<v1::FetchResultResponse>(
          database, prepare, base::Scaled(kFetchIdleLimit), pass_on, keep_going);
      if (changed) {
        return base::MakeError(absl::StatusCode::kAborted, "RESULT_CHANGED",
                               "the result changed during the fetch");
      }
      if (status.ok() || !misses.Take(status)) return status;
      // Everything is here. A limit of 0 would ask the next database for all the rest.
      if (limit_bytes > 0 && request.limit_bytes() <= 0) return absl::OkStatus();
    }
    if (!told.has_value()) break;
  }
  return misses.Verdict();
}

JobPosition JobPosition::Of(const v1::Job& job) {
  const google::protobuf::Timestamp& time = job.create_time();
  return {.create_unix_ns = time.seconds() * 1'000'000'000 + time.nanos(), .uid = job.uid()};
}

std::optional<JobPosition> JobPosition::Parse(std::string_view page_token) {
  // The search starts at 1, because a negative time begins with a dash of its own.
  const std::size_t dash = page_token.find('-', 1);
  if (dash == std::string_view::npos) return std::nullopt;
  JobPosition position;
  const char* const end = page_token.data() + dash;
  const auto [parsed_to, error] = std::from_chars(page_token.data(), end, position.create_unix_ns);
  if (error != std::errc() || parsed_to != end) return std::nullopt;
  const std::optional<base::Uid> uid = base::Uid::Parse(page_token.substr(dash + 1));
  if (!uid.has_value()) return std::nullopt;
  position.uid = uid->ToString();
  return position;
}

std::string JobPosition::ToToken() const { return std::to_string(create_unix_ns) + "-" + uid; }

bool JobPosition::Before(const JobPosition& other) const {
  if (create_unix_ns != other.create_unix_ns) return create_unix_ns > other.create_unix_ns;
  return uid < other.uid;
}

std::optional<base::Uid> UidOfName(std::string_view name) {
  constexpr std::string_view kPrefix = "jobs/";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  return base::Uid::Parse(name.substr(kPrefix.size()));
}

std::string NameOfUid(const base::Uid& uid) { return "jobs/" + uid.ToString(); }

}  // namespace onepiece::node
