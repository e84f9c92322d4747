// A database that tells no other one what it hears, and a cluster of such databases.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cluster/base/mutex.h"
#include "tests/proxy/proxy_cluster.h"

namespace onepiece::proxy {

/// A job store behind its service, without a ring and without peers.
class PlainDatabase : public v1::DatabaseService::Service {
 public:
  /// `settles`: ends are proposed, and wait for Confirm().
  explicit PlainDatabase(database::JobStoreOptions options = {}, bool settles = false)
      : options_(options), settles_(settles), store_(MakeStore()) {
    server_.AddService(*this);
    Require(server_.Start().status());
  }
  ~PlainDatabase() override { Close(); }
  [[nodiscard]] const std::string& address() const { return server_.address(); }
  /// Lets no copy come in.
  void BlockCopies() {
    const base::MutexLock lock(mutex_);
    blocked_ = true;
  }
  [[nodiscard]] int gets() const { return gets_; }
  bool Knows(const std::string& uid) { return !RecordsOf(uid).empty(); }
  bool IsEnding(const std::string& uid) {
    const auto records = RecordsOf(uid);
    return !records.empty() && records[0].has_proposed();
  }
  void Confirm(const std::string& uid) {
    const base::MutexLock lock(mutex_);
    store_->Confirm(*base::Uid::Parse(uid));
  }
  /// Loses all that it knows.
  void Lose() {
    const base::MutexLock lock(mutex_);
    store_ = MakeStore();
  }
  /// Comes back with the job as its journal has it, which notes no proposals.
  void Restart(const std::string& uid) {
    const auto records = RecordsOf(uid);
    const base::MutexLock lock(mutex_);
    store_ = MakeStore();
    for (const v1::JobRecord& record : records) store_->Restore(record);
  }

  grpc::Status CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                         v1::CreateJobResponse* response) override {
    const base::MutexLock lock(mutex_);
    return Told(store_->Create(request->record()), *response);
  }
  grpc::Status ClaimStart(grpc::ServerContext*, const v1::ClaimStartRequest* request,
                          v1::ClaimStartResponse* response) override {
    const base::MutexLock lock(mutex_);
    return Told(store_->Claim(*request), *response);
  }
  grpc::Status UpdateJob(grpc::ServerContext*, const v1::UpdateJobRequest* request,
                         v1::JobRecord* response) override {
    const base::MutexLock lock(mutex_);
    return Told(store_->Update(*request), *response);
  }
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRecordRequest* request,
                      v1::JobRecord* response) override {
    ++gets_;
    const base::MutexLock lock(mutex_);
    return Told(store_->Get(request->uid()), *response);
  }
  grpc::Status ReplicateJobs(grpc::ServerContext*, const v1::ReplicateJobsRequest* request,
                             v1::ReplicateJobsResponse*) override {
    base::MutexLock lock(mutex_);
    changed_.WaitFor(lock, base::Scaled(20s), [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !blocked_ || closing_;
    });
    const std::vector<v1::JobRecord> records(request->records().begin(), request->records().end());
    if (!blocked_) store_->Merge(records);
    return grpc::Status::OK;
  }

 protected:
  /// A derived class calls it before it goes.
  void Close() {
    {
      const base::MutexLock lock(mutex_);
      closing_ = true;
      changed_.NotifyAll();
    }
    server_.Shutdown(base::Duration::zero());
  }
  std::vector<v1::JobRecord> RecordsOf(const std::string& uid) {
    const base::MutexLock lock(mutex_);
    return store_->Records(std::vector{*base::Uid::Parse(uid)});
  }

 private:
  std::unique_ptr<database::JobStore> MakeStore() const {
    database::JobStoreHooks hooks;
    if (settles_) hooks.settle = [](const base::Uid&) { return true; };
    return std::make_unique<database::JobStore>(options_, base::SystemClock(), std::move(hooks));
  }
  template <typename T>
  static grpc::Status Told(const absl::StatusOr<T>& answer, T& response) {
    if (!answer.ok()) return rpc::ToGrpc(answer.status());
    response = *answer;
    return grpc::Status::OK;
  }

  const database::JobStoreOptions options_;
  const bool settles_;
  std::atomic<int> gets_ = 0;
  base::Mutex mutex_;
  base::CondVar changed_;
  bool blocked_ ABSL_GUARDED_BY(mutex_) = false, closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<database::JobStore> store_ ABSL_GUARDED_BY(mutex_);
  rpc::Server server_{rpc::ServerOptions{}};
};

/// Puts other databases in the place of a Cluster's own.
inline void TakePlace(Cluster& cluster, const std::vector<const PlainDatabase*>& databases) {
  for (const char* id : {"db-1", "db-2"}) {
    cluster.Kill(id);
    cluster.Forget(id);
  }
  for (std::size_t i = 0; i < databases.size(); ++i)
    cluster.Announce("db-" + std::to_string(3 + i), 1, databases[i]->address());
}

}  // namespace onepiece::proxy
