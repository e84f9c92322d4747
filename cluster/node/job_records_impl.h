// The parts of JobRecords that its source files share.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/node/job_records.h"
#include "cluster/rpc/channel.h"
#include "onepiece/v1/database.grpc.pb.h"

namespace onepiece::node {

using DatabaseStub = v1::DatabaseService::Stub;

inline constexpr std::size_t kMaxStubs = 64;
inline constexpr base::Duration kPollInterval = std::chrono::milliseconds(100);

inline bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

inline absl::Status NoDatabase(const absl::Status& last) {
  return base::MakeError(
      absl::StatusCode::kUnavailable, "NO_DATABASE",
      last.ok() ? "no database is known" : "no database answers: " + base::Message(last));
}

inline absl::Status Cancelled() {
  return base::MakeError(absl::StatusCode::kCancelled, "CALLER_GONE", "nobody listens any more");
}

/// A lost result is one database's view and not the job's end, because another database may have
/// the bytes.
inline constexpr char kLostOnRestart[] = "LOST_ON_RESTART";
inline constexpr char kJobNotDone[] = "JOB_NOT_DONE";
inline bool IsLost(const v1::Job& job) { return job.error().reason() == kLostOnRestart; }

/// The answers of several databases that did not have the job.
struct Misses {
  absl::Status away, not_found, lost, not_done;

  /// Returns true when `status` is a reason to ask the next database.
  bool Take(const absl::Status& status) {
    if (IsAway(status)) return away = status, true;
    // A tombstone is a final answer, because the next database may not know of the deletion yet.
    if (base::GetReason(status).metadata.contains("deleted")) return false;
    if (absl::IsNotFound(status)) return not_found = status, true;
    const std::string reason = base::GetReason(status).reason;
    if (reason == kLostOnRestart) return lost = status, true;
    // Another database may know of the job's end before this one does.
    if (reason == kJobNotDone) return not_done = status, true;
    return false;
  }
  /// A database that is away may have what the others lack, so as long as one is, the caller is to
  /// ask again.
  [[nodiscard]] absl::Status Verdict() const {
    if (!away.ok()) return NoDatabase(away);
    if (!lost.ok()) return lost;
    if (!not_done.ok()) return not_done;
    return not_found.ok() ? NoDatabase(away) : not_found;
  }
};

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

/// One caller's watch of a job: a stream to one database at a time.
///
/// Ownership: the registry and its own stream keep it until it has ended.
/// Threading: Cancel() and CancelIfSilent() may be called from any thread. All else happens one
/// after the other: in Begin(), and in what follows from it.
class WatchRun final : public JobWatch, public std::enable_shared_from_this<WatchRun> {
 public:
  WatchRun(JobRecords::Impl& records, const base::Uid& uid, std::shared_ptr<JobWatcher> watcher)
      : records_(records), uid_(uid), watcher_(std::move(watcher)) {}
  /// Begins a round through the databases.
  void Begin();
  void Cancel() override;
  void CancelIfSilent(base::MonotonicTime now);

 private:
  class Stream;
  void Next();
  void EndRound();
  /// Returns false when the stream is not wanted any more.
  bool Heard(const v1::Job& job);
  void Ended(const grpc::Status& status);
  void Finish(const absl::Status& status);
  bool IsCancelled();

  JobRecords::Impl& records_;
  const base::Uid uid_;
  std::shared_ptr<JobWatcher> watcher_;
  std::vector<v1::Endpoint> databases_;  ///< Of this round.
  std::size_t next_ = 0;
  Misses misses_;         ///< Of this round, as the next three.
  absl::Status refused_;  ///< A database has no place for another watch.
  bool heard_ = false;
  std::optional<v1::Job> lost_;
  bool leave_ = false;  ///< This database has lost the result.
  bool over_ = false;   ///< The job has ended.
  base::Mutex mutex_;
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  base::MonotonicTime heard_at_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

/// The watches of a JobRecords. One thread begins their later rounds and ends silent streams.
///
/// Threading: thread-safe.
class WatchRegistry {
 public:
  explicit WatchRegistry(base::Clock& clock) : clock_(clock) {}
  /// Cancels the watches and waits for their ends.
  ~WatchRegistry();

  void Add(const std::shared_ptr<WatchRun>& run);
  void Remove(const std::shared_ptr<WatchRun>& run);
  /// Calls run->Begin() in kPollInterval.
  void BeginLater(const std::shared_ptr<WatchRun>& run);

 private:
  void Run(const std::stop_token& stop);
  std::vector<std::shared_ptr<WatchRun>> All();

  base::Clock& clock_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::set<std::shared_ptr<WatchRun>> runs_ ABSL_GUARDED_BY(mutex_);
  std::multimap<base::MonotonicTime, std::shared_ptr<WatchRun>> later_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::jthread thread_ ABSL_GUARDED_BY(mutex_);  ///< Begun by the first watch.
};

struct JobRecords::Impl {
  Impl(const ClusterView& cluster, JobRecordsOptions given, base::Clock& the_clock)
      : view(cluster),
        options(std::move(given)),
        clock(the_clock),
        locations(options.max_locations),
        watches(the_clock) {}

  std::shared_ptr<DatabaseStub> StubFor(const std::string& address) {
    const base::MutexLock lock(mutex);
    // Most of them are addresses of databases that are long gone. Those in use come back at once.
    if (stubs.size() >= kMaxStubs && !stubs.contains(address)) stubs.clear();
    std::shared_ptr<DatabaseStub>& stub = stubs[address];
    if (stub == nullptr) stub = v1::DatabaseService::NewStub(rpc::MakeChannel(address));
    return stub;
  }

  /// The database at this address did not take a copy in time.
  void NoteSilent(const std::string& address) {
    const base::MutexLock lock(mutex);
    if (silent_until.size() >= kMaxStubs) silent_until.clear();
    silent_until[address] = clock.Now() + base::Scaled(options.copy_pause);
  }
  bool IsSilent(const std::string& address) {
    const base::MutexLock lock(mutex);
    const auto found = silent_until.find(address);
    return found != silent_until.end() && clock.Now() < found->second;
  }

  /// Returns the best database beside the one that took the job's last write from here. Passes over
  /// those that are silent.
  std::optional<v1::Endpoint> OtherDatabase(const base::Uid& uid) {
    const std::string has_it = locations.Find(uid);
    for (const v1::Endpoint& database : view.routing()->DatabasesFor(uid)) {
      if (database.node_id() != has_it && !IsSilent(database.address())) return database;
    }
    return std::nullopt;
  }
  /// Makes the call that one database has answered at one more, soon: else the death of the first
  /// one could undo it.
  template <typename Request, typename Response>
  void AskOther(const base::Uid& uid,
                grpc::Status (DatabaseStub::*method)(grpc::ClientContext*, const Request&,
                                                     Response*),
                const std::type_identity_t<Request>& request) {
    const std::optional<v1::Endpoint> database = OtherDatabase(uid);
    if (!database.has_value()) return;
    const absl::StatusOr<Response> response =
        rpc::Call(*StubFor(database->address()), method, request, options.copy_timeout);
    if (IsAway(response.status())) NoteSilent(database->address());
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
    if (lost.ok() && misses.away.ok()) return lost;
    return misses.Verdict();
  }

  /// Returns the older record of the job, if another database has one. A database that has
  /// restarted knows nothing and creates every job anew.
  v1::CreateJobResponse PreferElsewhere(const base::Uid& uid, v1::CreateJobResponse created);

  const ClusterView& view;
  const JobRecordsOptions options;
  base::Clock& clock;
  base::Mutex mutex;
  std::map<std::string, std::shared_ptr<DatabaseStub>> stubs ABSL_GUARDED_BY(mutex);
  std::map<std::string, base::MonotonicTime> silent_until ABSL_GUARDED_BY(mutex);
  Locations locations;
  WatchRegistry watches;  // Last: its watches use the rest.
};

}  // namespace onepiece::node
