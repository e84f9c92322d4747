// Two proxies that are asked to start one job, with databases that answer late.
#include <QtTest>
#include <thread>

#include "cluster/base/mutex.h"
#include "tests/proxy/plain_database.h"
#include "tests/test_main.h"

namespace onepiece::proxy {
namespace {

constexpr base::Duration kShortLease = 200ms;

/// A database whose leases are short. It keeps back the first answer to CreateJob.
class LateDatabase final : public PlainDatabase {
 public:
  LateDatabase() : PlainDatabase({.start_lease = kShortLease}) {}
  ~LateDatabase() override {
    Answer();
    Close();
  }
  /// Lets the first answer go.
  void Answer() {
    const base::MutexLock lock(mutex_);
    may_answer_ = true;
    changed_.NotifyAll();
  }
  void AwaitCreation() {
    base::MutexLock lock(mutex_);
    changed_.WaitFor(lock, base::Scaled(20s),
                     [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return created_ > 0; });
  }
  [[nodiscard]] int claims() const { return claims_; }
  /// Returns whether nobody has the lease of the last job that was made.
  bool IsFree() {
    std::string uid;
    {
      const base::MutexLock lock(mutex_);
      uid = uid_;
    }
    return !RecordsOf(uid).at(0).lease().has_time_left();
  }

  grpc::Status CreateJob(grpc::ServerContext* context, const v1::CreateJobRequest* request,
                         v1::CreateJobResponse* response) override {
    const grpc::Status status = PlainDatabase::CreateJob(context, request, response);
    base::MutexLock lock(mutex_);
    uid_ = request->record().job().uid();
    const bool is_first = ++created_ == 1;
    changed_.NotifyAll();
    if (is_first) {
      changed_.WaitFor(lock, base::Scaled(20s),
                       [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return may_answer_; });
    }
    return status;
  }
  grpc::Status ClaimStart(grpc::ServerContext* context, const v1::ClaimStartRequest* request,
                          v1::ClaimStartResponse* response) override {
    ++claims_;
    return PlainDatabase::ClaimStart(context, request, response);
  }

 private:
  std::atomic<int> claims_ = 0;
  base::Mutex mutex_;
  base::CondVar changed_;
  int created_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string uid_ ABSL_GUARDED_BY(mutex_);
  bool may_answer_ ABSL_GUARDED_BY(mutex_) = false;
};

/// Two proxies, one instance, and a LateDatabase as the only database.
struct LateCluster : Cluster {
  LateCluster() { TakePlace(*this, {&database}); }

  LateDatabase database;
  FakeInstance instance{*this};
  Proxy first{*this, "proxy-1"};
  Proxy second{*this, "proxy-2"};
};

}  // namespace

class StartTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // The first proxy hears that it may start the job when the second has started it.
  void Submit_WhenTheAnswerOutlastsTheLease_StartsOneJob() {
    LateCluster cluster;
    const v1::SubmitJobRequest request = RequestWithId();
    absl::StatusOr<Job> late;
    std::jthread other([&] { late = cluster.first.Submit(request); });
    cluster.database.AwaitCreation();
    const auto job = cluster.second.Submit(request);
    const auto received = cluster.instance.Receive();
    cluster.database.Answer();
    other.join();
    QVERIFY2(job.ok(), job.status().ToString().c_str());
    QVERIFY2(late.ok(), late.status().ToString().c_str());
    QCOMPARE(late->uid(), job->uid());
    QVERIFY(received.ok());
    QCOMPARE(job::RunSequence(received->message.header.run), 2U);
    QCOMPARE(cluster.instance.Receive(300ms).status().code(), absl::StatusCode::kDeadlineExceeded);
  }

  // Nobody else has asked for the job: the claim is renewed, and the job starts.
  void Submit_WhenTheAnswerOutlastsTheLease_AndNobodyElseAsks_Starts() {
    LateCluster cluster;
    const v1::SubmitJobRequest request = RequestWithId();
    absl::StatusOr<Job> late;
    std::jthread other([&] { late = cluster.first.Submit(request); });
    cluster.database.AwaitCreation();
    QVERIFY(Eventually([&] { return cluster.database.IsFree(); }));
    cluster.database.Answer();
    other.join();
    QVERIFY2(late.ok(), late.status().ToString().c_str());
    const auto received = cluster.instance.Receive();
    QVERIFY(received.ok());
    QCOMPARE(job::RunSequence(received->message.header.run), 1U);
    QCOMPARE(cluster.database.claims(), 1);
  }
};

}  // namespace onepiece::proxy

ONEPIECE_TEST(onepiece::proxy::StartTest)
#include "start_test.moc"
