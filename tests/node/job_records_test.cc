#include "cluster/node/job_records.h"

#include <QtTest>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/node/job_position.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "onepiece/v1/database.grpc.pb.h"
#include "tests/eventually.h"
#include "tests/fetch_whole.h"
#include "tests/test_main.h"
#include "tests/watch_to_end.h"

namespace onepiece::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A database instance in memory, with the faults that the test asks for. Thread-safe.
class FakeDatabase final : public v1::DatabaseService::Service {
 public:
  explicit FakeDatabase(std::string id) : id_(std::move(id)) { Start("127.0.0.1:0"); }

  void Start(const std::string& listen) {
    server_ = std::make_unique<rpc::Server>(rpc::ServerOptions{.listen = listen});
    server_->AddService(*this);
    started_ = server_->Start().ok();
    address_ = server_->address();
  }
  void Stop() { server_->Shutdown(base::Duration(0)); }
  [[nodiscard]] v1::Endpoint endpoint() const {
    v1::Endpoint endpoint;
    endpoint.set_node_id(id_);
    endpoint.set_address(address_);
    return endpoint;
  }
  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] bool started() const { return started_; }
  [[nodiscard]] int watches() const { return watches_; }

  void Put(const v1::Job& job) {
    const base::MutexLock lock(mutex_);
    *records_[job.uid()].mutable_job() = job;
  }
  /// Leaves a tombstone.
  void Bury(const base::Uid& uid) {
    const base::MutexLock lock(mutex_);
    buried_.insert(uid.ToString());
  }
  grpc::Status ReplicateJobs(grpc::ServerContext*, const v1::ReplicateJobsRequest* request,
                             v1::ReplicateJobsResponse*) override {
    const base::MutexLock lock(mutex_);
    for (const auto& record : request->records()) records_[record.job().uid()] = record;
    return grpc::Status::OK;
  }
  [[nodiscard]] bool Has(const base::Uid& uid) {
    const base::MutexLock lock(mutex_);
    return records_.contains(uid.ToString());
  }
  void SetResult(const std::string& bytes, const std::string& sha256,
                 std::size_t stop_after = ~std::size_t{0}) {
    const base::MutexLock lock(mutex_);
    result_ = bytes;
    sha256_ = sha256;
    stop_after_ = stop_after;
  }

  grpc::Status CreateJob(grpc::ServerContext*, const v1::CreateJobRequest* request,
                         v1::CreateJobResponse* response) override {
    const base::MutexLock lock(mutex_);
    const auto [found, created] =
        records_.emplace(request->record().job().uid(), request->record());
    *response->mutable_record() = found->second;
    response->set_created(created);
    return grpc::Status::OK;
  }
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRecordRequest* request,
                      v1::JobRecord* response) override {
    const base::MutexLock lock(mutex_);
    if (buried_.contains(request->uid())) {
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kNotFound, "JOB_UNKNOWN", "deleted",
                                         {{"deleted", "true"}}));
    }
    const auto found = records_.find(request->uid());
    if (found == records_.end()) return Missing();
    *response = found->second;
    return grpc::Status::OK;
  }
  grpc::Status DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest* request,
                         google::protobuf::Empty*) override {
    const base::MutexLock lock(mutex_);
    return records_.erase(UidOfName(request->name())->ToString()) == 1 ? grpc::Status::OK
                                                                       : Missing();
  }
  grpc::Status AcknowledgeResult(grpc::ServerContext*, const v1::AcknowledgeResultRequest*,
                                 v1::Job*) override {
    return rpc::ToGrpc(
        base::MakeError(absl::StatusCode::kFailedPrecondition, "NOT_SUCCEEDED", "not yet"));
  }
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override {
    const base::MutexLock lock(mutex_);
    std::vector<v1::Job> jobs;
    const auto start = JobPosition::Parse(request->page_token());
    for (const auto& [uid, record] : records_) {
      if (!start.has_value() || start->Before(JobPosition::Of(record.job())))
        jobs.push_back(record.job());
    }
    std::ranges::sort(jobs, [](const v1::Job& a, const v1::Job& b) {
      return JobPosition::Of(a).Before(JobPosition::Of(b));
    });
    const std::size_t count = std::min(jobs.size(), static_cast<std::size_t>(request->page_size()));
    for (std::size_t i = 0; i < count; ++i) *response->add_jobs() = jobs[i];
    if (count < jobs.size())
      response->set_next_page_token(JobPosition::Of(jobs[count - 1]).ToToken());
    return grpc::Status::OK;
  }
  grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::Job>* writer) override {
    const std::string uid = UidOfName(request->name())->ToString();
    std::string last;
    ++watches_;
    while (!context->IsCancelled() && !server_->stopping().stop_requested()) {
      v1::Job job;
      {
        const base::MutexLock lock(mutex_);
        const auto found = records_.find(uid);
        if (found == records_.end()) return Missing();
        job = found->second.job();
      }
      if (const std::string now = job.SerializeAsString(); now != last) {
        last = now;
        writer->Write(job);
      }
      if (job.state() == v1::Job::SUCCEEDED) return grpc::Status::OK;
      std::this_thread::yield();
    }
    return {grpc::StatusCode::UNAVAILABLE, "stopping"};
  }
  grpc::Status FetchResult(grpc::ServerContext*, const v1::FetchResultRequest* request,
                           grpc::ServerWriter<v1::FetchResultResponse>* writer) override {
    const base::MutexLock lock(mutex_);
    const auto found = records_.find(UidOfName(request->name())->ToString());
    if (found != records_.end() && !found->second.job().error().reason().empty()) {
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kFailedPrecondition,
                                         found->second.job().error().reason(), "lost"));
    }
    if (result_.empty()) return Missing();
    constexpr std::size_t kChunk = 100;
    for (auto offset = static_cast<std::size_t>(request->offset_bytes()); offset < result_.size();
         offset += kChunk) {
      if (offset >= stop_after_) return {grpc::StatusCode::UNAVAILABLE, "died"};
      v1::FetchResultResponse response;
      if (offset == static_cast<std::size_t>(request->offset_bytes())) {
        response.mutable_artifact()->set_sha256(sha256_);
      }
      response.set_chunk(result_.substr(offset, kChunk));
      writer->Write(response);
    }
    return grpc::Status::OK;
  }

 private:
  static grpc::Status Missing() {
    return rpc::ToGrpc(
        base::MakeError(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "no such job"));
  }

  const std::string id_;
  std::string address_;
  bool started_ = false;
  std::atomic<int> watches_ = 0;
  std::unique_ptr<rpc::Server> server_;
  base::Mutex mutex_;
  std::map<std::string, v1::JobRecord> records_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> buried_ ABSL_GUARDED_BY(mutex_);
  std::string result_ ABSL_GUARDED_BY(mutex_), sha256_ ABSL_GUARDED_BY(mutex_);
  std::size_t stop_after_ ABSL_GUARDED_BY(mutex_) = 0;
};

v1::Job MakeJob(const base::Uid& uid, std::int64_t created_s = 1) {
  v1::Job job;
  job.set_uid(uid.ToString());
  job.set_state(v1::Job::QUEUED);
  job.mutable_create_time()->set_seconds(created_s);
  return job;
}

}  // namespace

class JobRecordsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    a_ = std::make_unique<FakeDatabase>("db-a");
    b_ = std::make_unique<FakeDatabase>("db-b");
    QVERIFY(a_->started() && b_->started());
    v1::RoutingTable table;
    *table.add_databases() = a_->endpoint();
    *table.add_databases() = b_->endpoint();
    view_.SetRouting(std::make_shared<Routing>(table));
    records_ = std::make_unique<JobRecords>(view_);
    const std::string first = view_.routing()->DatabasesFor(uid_)[0].node_id();
    first_ = first == a_->id() ? a_.get() : b_.get();
    second_ = first == a_->id() ? b_.get() : a_.get();
  }
  void cleanup() { records_.reset(); }

  void Create_GoesToTheFirstDatabaseAndFindsTheRecordAgain() {
    v1::JobRecord record;
    *record.mutable_job() = MakeJob(uid_);
    const auto created = records_->Create(record);
    QVERIFY(created.ok() && created->created());
    QVERIFY(first_->Has(uid_) && !second_->Has(uid_));
    const auto again = records_->Create(record);
    QVERIFY(again.ok() && !again->created());
  }

  void Create_FirstAway_GoesToTheNext() {
    first_->Stop();
    v1::JobRecord record;
    *record.mutable_job() = MakeJob(uid_);
    QVERIFY(records_->Create(record).ok());
    QVERIFY(second_->Has(uid_));
  }

  void Get_MissingInTheFirst_AsksTheNext() {
    second_->Put(MakeJob(uid_));
    const auto record = records_->Get(uid_);
    QVERIFY(record.ok());
    QCOMPARE(record->job().uid(), uid_.ToString());
  }

  // A database that restarted says that it lost a result, which another database may have.
  void LostInTheFirst_AsksTheNext_AndSaysSoWhenAllLostIt() {
    v1::Job lost = MakeJob(uid_);
    lost.set_state(v1::Job::FAILED);
    lost.mutable_error()->set_reason("LOST_ON_RESTART");
    v1::Job whole = MakeJob(uid_);
    whole.set_state(v1::Job::SUCCEEDED);
    first_->Put(lost);
    second_->Put(whole);
    second_->SetResult("video", "abc");
    std::vector<v1::Job::State> states;
    const auto watch = [&] {
      states.clear();
      return testing::WatchToEnd(
          *records_, uid_, [&](const v1::Job& job) { return states.push_back(job.state()), true; });
    };
    QCOMPARE(records_->Get(uid_)->job().state(), v1::Job::SUCCEEDED);
    QCOMPARE(records_->List({})->jobs(0).state(), v1::Job::SUCCEEDED);
    QVERIFY(watch().ok());
    QCOMPARE(states, std::vector{v1::Job::SUCCEEDED});
    QCOMPARE(*testing::FetchWhole(*records_, uid_), std::string("video"));

    second_->Put(lost);
    second_->SetResult("", "");
    QCOMPARE(records_->Get(uid_)->job().error().reason(), std::string("LOST_ON_RESTART"));
    QVERIFY(watch().ok());
    QCOMPARE(states, std::vector{v1::Job::FAILED});
    QCOMPARE(base::GetReason(testing::FetchWhole(*records_, uid_).status()).reason,
             std::string("LOST_ON_RESTART"));
  }

  // The one that is away may have the result, so nobody is told an end that may not be one.
  void LostInTheFirst_WhileTheNextIsAway_IsNotSaid() {
    v1::Job lost = MakeJob(uid_);
    lost.set_state(v1::Job::FAILED);
    lost.mutable_error()->set_reason("LOST_ON_RESTART");
    v1::Job whole = MakeJob(uid_);
    whole.set_state(v1::Job::SUCCEEDED);
    first_->Put(lost);
    second_->Put(whole);
    second_->Stop();
    QVERIFY(absl::IsUnavailable(records_->Get(uid_).status()));
    QVERIFY(absl::IsUnavailable(testing::FetchWhole(*records_, uid_).status()));
    std::vector<v1::Job::State> states;
    absl::Status ended;
    std::jthread watcher([&] {
      ended = testing::WatchToEnd(
          *records_, uid_, [&](const v1::Job& job) { return states.push_back(job.state()), true; });
    });
    // Its round goes on until both have answered.
    const bool goes_on = testing::Eventually([&] { return first_->watches() >= 2; });
    v1::RoutingTable table = view_.routing()->table();
    FakeDatabase back(second_->id());
    back.Put(whole);
    for (v1::Endpoint& database : *table.mutable_databases()) {
      if (database.node_id() == back.id()) database = back.endpoint();
    }
    view_.SetRouting(std::make_shared<Routing>(table));
    watcher.join();
    QVERIFY(goes_on);
    QVERIFY2(ended.ok(), base::Message(ended).c_str());
    QCOMPARE(states, std::vector{v1::Job::SUCCEEDED});
    records_.reset();  // Before `back`.
  }

  void Copy_GoesToAnotherDatabase_AndPassesOverOneThatIsSilent() {
    base::ManualClock clock;
    JobRecords records(view_, {}, clock);
    v1::JobRecord record;
    *record.mutable_job() = MakeJob(uid_);
    QVERIFY(records.Create(record).ok());
    const auto copy = records.Copy(record);
    QVERIFY(copy != nullptr);
    copy->Await();
    QVERIFY(second_->Has(uid_));
    second_->Stop();
    records.Copy(record)->Await();
    QVERIFY(records.Copy(record) == nullptr);
    clock.Advance(base::Scaled(seconds(1)));
    QVERIFY(records.Copy(record) != nullptr);
  }

  // The database with the copy may tell of a success that the other one has not heard of yet.
  void Fetch_NotDoneInTheFirst_AsksTheNext() {
    v1::Job open = MakeJob(uid_);
    open.mutable_error()->set_reason("JOB_NOT_DONE");
    first_->Put(open);
    second_->Put(MakeJob(uid_));
    second_->SetResult("video", "abc");
    QCOMPARE(*testing::FetchWhole(*records_, uid_), std::string("video"));
    second_->Put(open);
    QCOMPARE(base::GetReason(testing::FetchWhole(*records_, uid_).status()).reason,
             std::string("JOB_NOT_DONE"));
    // The one that is away may know more.
    second_->Stop();
    QVERIFY(absl::IsUnavailable(testing::FetchWhole(*records_, uid_).status()));
  }

  // The first database was away during the write, and is back with its old record.
  void Get_ReadsWhatWasWritten_WhoeverWasAwayThen() {
    first_->Put(MakeJob(uid_));
    const auto both = view_.routing();
    v1::RoutingTable table;
    *table.add_databases() = second_->endpoint();
    view_.SetRouting(std::make_shared<Routing>(table));
    v1::JobRecord newer;
    *newer.mutable_job() = MakeJob(uid_);
    newer.mutable_job()->set_state(v1::Job::RUNNING);
    QVERIFY(records_->Create(newer).ok());
    view_.SetRouting(both);
    QCOMPARE(records_->Get(uid_)->job().state(), v1::Job::RUNNING);
    // A client that did not write asks in the usual order.
    JobRecords other(view_);
    QCOMPARE(other.Get(uid_)->job().state(), v1::Job::QUEUED);
    // The database that was written to is gone: the next one answers.
    second_->Stop();
    QCOMPARE(records_->Get(uid_)->job().state(), v1::Job::QUEUED);
  }

  void Get_OfAJobWrittenLongAgo_AsksInTheUsualOrder() {
    JobRecords few(view_, {.max_locations = 3});
    const auto both = view_.routing();
    v1::RoutingTable table;
    *table.add_databases() = second_->endpoint();
    view_.SetRouting(std::make_shared<Routing>(table));
    v1::JobRecord record;
    *record.mutable_job() = MakeJob(uid_);
    record.mutable_job()->set_state(v1::Job::RUNNING);
    QVERIFY(few.Create(record).ok());
    for (int i = 0; i < 3; ++i) {
      *record.mutable_job() = MakeJob(base::Uid::GenerateRandom());
      QVERIFY(few.Create(record).ok());
    }
    view_.SetRouting(both);
    first_->Put(MakeJob(uid_));
    QCOMPARE(few.Get(uid_)->job().state(), v1::Job::QUEUED);
  }

  void Get_DeletedInTheFirst_IsNotAskedElsewhere() {
    first_->Bury(uid_);
    second_->Put(MakeJob(uid_));
    QVERIFY(absl::IsNotFound(records_->Get(uid_).status()));
  }

  void Create_RememberedElsewhere_IsThatJob() {
    v1::Job old = MakeJob(uid_);
    old.set_state(v1::Job::SUCCEEDED);
    old.mutable_create_time()->set_seconds(77);
    second_->Put(old);
    v1::JobRecord record;
    *record.mutable_job() = MakeJob(uid_);
    record.mutable_job()->set_request_id("7c9e6679-7425-40de-944b-e07fc1f90ae7");
    const auto created = records_->Create(record);
    QVERIFY(created.ok());
    QVERIFY(!created->created());
    QVERIFY(created->record().job().state() == v1::Job::SUCCEEDED);
    QVERIFY(records_->Get(uid_)->job().state() == v1::Job::SUCCEEDED);
  }

  void Create_DeletedElsewhere_IsDeleted() {
    second_->Bury(uid_);
    v1::JobRecord record;
    *record.mutable_job() = MakeJob(uid_);
    record.mutable_job()->set_request_id("7c9e6679-7425-40de-944b-e07fc1f90ae7");
    const auto created = records_->Create(record);
    QVERIFY(created.ok());
    QVERIFY(!created->created());
    QVERIFY(created->record().deleted());
  }

  void Get_MissingEverywhere_IsNotFound() {
    const auto record = records_->Get(uid_);
    QVERIFY(absl::IsNotFound(record.status()));
    QCOMPARE(base::GetReason(record.status()).reason, std::string("JOB_NOT_FOUND"));
  }

  // The database that is away may be the one that has it.
  void Get_MissingInOneAndOneAway_IsUnavailable() {
    first_->Stop();
    const auto record = records_->Get(uid_);
    QVERIFY(absl::IsUnavailable(record.status()));
    QCOMPARE(base::GetReason(record.status()).reason, std::string("NO_DATABASE"));
  }

  void Get_NoDatabases_IsUnavailable() {
    view_.SetRouting(std::make_shared<Routing>());
    QCOMPARE(base::GetReason(records_->Get(uid_).status()).reason, std::string("NO_DATABASE"));
  }

  void Acknowledge_RefusedByTheFirst_IsNotAskedElsewhere() {
    const auto job = records_->Acknowledge(uid_);
    QVERIFY(absl::IsFailedPrecondition(job.status()));
    QCOMPARE(base::GetReason(job.status()).reason, std::string("NOT_SUCCEEDED"));
  }

  void Delete_FindsTheDatabaseThatHasIt() {
    second_->Put(MakeJob(uid_));
    QVERIFY(records_->Delete(uid_).ok());
    QVERIFY(!second_->Has(uid_));
  }

  // Else the death of the first one could bring the job back.
  void Delete_IsKnownToBothWhenItReturns() {
    first_->Put(MakeJob(uid_));
    second_->Put(MakeJob(uid_));
    QVERIFY(records_->Delete(uid_).ok());
    QVERIFY(!first_->Has(uid_));
    QVERIFY(!second_->Has(uid_));
  }

  void List_PagesOverAllDatabases_GiveEveryJobOnceInOrder() {
    for (int i = 0; i < 25; ++i) {
      const v1::Job job = MakeJob(base::Uid::GenerateRandom(), 100 + i / 2);
      // Jobs live in both databases, or in one when the other was away.
      if (i % 3 != 1) a_->Put(job);
      if (i % 3 != 2) b_->Put(job);
    }
    v1::ListJobsRequest request;
    request.set_page_size(4);
    std::vector<JobPosition> seen;
    do {
      const auto page = records_->List(request);
      QVERIFY(page.ok());
      QVERIFY(page->jobs_size() <= 4 && page->jobs_size() > 0);
      for (const v1::Job& job : page->jobs()) seen.push_back(JobPosition::Of(job));
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty() && seen.size() < 100);
    QCOMPARE(seen.size(), std::size_t{25});
    QVERIFY(std::ranges::adjacent_find(seen, [](const JobPosition& x, const JobPosition& y) {
              return !x.Before(y);
            }) == seen.end());
  }

  void List_TakesTheFurtherOfTwoVersions() {
    v1::Job job = MakeJob(uid_);
    first_->Put(job);
    job.set_state(v1::Job::SUCCEEDED);
    second_->Put(job);
    const auto page = records_->List({});
    QVERIFY(page.ok());
    QCOMPARE(page->jobs_size(), 1);
    QCOMPARE(page->jobs(0).state(), v1::Job::SUCCEEDED);
  }

  void List_OneAway_ListsTheRest() {
    second_->Put(MakeJob(uid_));
    first_->Stop();
    const auto page = records_->List({});
    QVERIFY(page.ok());
    QCOMPARE(page->jobs_size(), 1);
    second_->Stop();
    QVERIFY(absl::IsUnavailable(records_->List({}).status()));
  }

  void Watch_DatabaseDies_GoesOnAtTheNext() {
    first_->Put(MakeJob(uid_));
    v1::Job later = MakeJob(uid_);
    later.set_state(v1::Job::SUCCEEDED);
    second_->Put(later);
    std::vector<v1::Job::State> states;
    std::jthread killer;
    const absl::Status status = testing::WatchToEnd(*records_, uid_, [&](const v1::Job& job) {
      states.push_back(job.state());
      if (states.size() == 1) killer = std::jthread([this] { first_->Stop(); });
      return true;
    });
    QVERIFY2(status.ok(), base::Message(status).c_str());
    QCOMPARE(states, (std::vector{v1::Job::QUEUED, v1::Job::SUCCEEDED}));
  }

  void Watch_CallerLeaves_Ends() {
    first_->Put(MakeJob(uid_));
    int states = 0;
    const absl::Status status =
        testing::WatchToEnd(*records_, uid_, [&](const v1::Job&) { return ++states < 1; });
    QCOMPARE(states, 1);
    QVERIFY(absl::IsCancelled(status));
  }

  void Watch_UnknownJob_IsNotFound() {
    QVERIFY(absl::IsNotFound(
        testing::WatchToEnd(*records_, uid_, [](const v1::Job&) { return true; })));
  }

  // A database that hangs keeps its connection, and says nothing.
  void Watch_DatabaseFallsSilent_GoesOnAtTheNext() {
    base::ManualClock clock;
    JobRecords records(view_, {}, clock);
    first_->Put(MakeJob(uid_));
    v1::Job later = MakeJob(uid_);
    later.set_state(v1::Job::SUCCEEDED);
    second_->Put(later);
    std::vector<v1::Job::State> states;
    std::jthread time;
    const absl::Status status = testing::WatchToEnd(records, uid_, [&](const v1::Job& job) {
      states.push_back(job.state());
      if (states.size() > 1) return true;
      time = std::jthread([&clock](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          clock.Advance(base::Scaled(std::chrono::seconds(10)));
          std::this_thread::yield();
        }
      });
      return true;
    });
    QVERIFY2(status.ok(), base::Message(status).c_str());
    // Time flies, so the next one may count as silent too. Then the first one says again what it
    // knows.
    QCOMPARE(states.front(), v1::Job::QUEUED);
    QCOMPARE(states.back(), v1::Job::SUCCEEDED);
  }

  // Its clock stands still, so the pause before the next round never ends by itself.
  void Destructor_EndsWatchesThatWaitForAnotherRound() {
    base::ManualClock clock;
    auto records = std::make_unique<JobRecords>(view_, JobRecordsOptions{}, clock);
    first_->Put(MakeJob(uid_));
    std::atomic<bool> heard = false;
    absl::Status status;
    std::thread watcher([&] {
      status = testing::WatchToEnd(*records, uid_, [&](const v1::Job&) { return heard = true; });
    });
    QVERIFY(testing::Eventually([&] { return heard.load(); }));
    first_->Stop();
    second_->Stop();
    records.reset();
    watcher.join();
    QVERIFY2(absl::IsCancelled(status) || absl::IsUnavailable(status),
             base::Message(status).c_str());
  }

  void PageToken_SurvivesTheRoundTripAndNothingElseParses() {
    const JobPosition position{.create_unix_ns = 1'700'000'000'123'456'789, .uid = uid_.ToString()};
    const auto parsed = JobPosition::Parse(position.ToToken());
    QVERIFY(parsed.has_value());
    QVERIFY(!parsed->Before(position) && !position.Before(*parsed));
    for (const char* text : {"", "-", "1-",
                             "x-"
                             "00000000-0000-0000-0000-000000000000",
                             "12", "1-2"}) {
      QVERIFY2(!JobPosition::Parse(text).has_value(), text);
    }
  }

  void UidOfName_RefusesOtherNames() {
    QVERIFY(UidOfName(NameOfUid(uid_)) == uid_);
    QVERIFY(!UidOfName(uid_.ToString()).has_value());
    QVERIFY(!UidOfName("jobs/").has_value());
    QVERIFY(!UidOfName("nodes/" + uid_.ToString()).has_value());
  }

 private:
  const base::Uid uid_ = base::Uid::GenerateRandom();
  std::unique_ptr<FakeDatabase> a_, b_;
  FakeDatabase* first_ = nullptr;
  FakeDatabase* second_ = nullptr;
  ClusterView view_;
  std::unique_ptr<JobRecords> records_;
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::JobRecordsTest)
#include "job_records_test.moc"
