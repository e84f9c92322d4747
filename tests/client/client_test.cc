#include "cluster/client/client.h"

#include <QtTest>
#include <atomic>
#include <fstream>
#include <future>
#include <set>
#include <thread>

#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "tests/client/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

v1::Job JobIn(v1::Job::State state) {
  v1::Job job;
  job.set_uid("uid");
  job.set_state(state);
  return job;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

class ClientTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Submit_MakesARandomRequestId() {
    FakeNodeManager manager;
    FakeProxy proxy("default");
    proxy.submit = Accept;
    manager.Serve({&proxy});
    Client client(To(manager));
    const auto first = client.Submit({});
    const auto second = client.Submit({});
    QVERIFY2(first.ok(), first.status().ToString().c_str());
    QVERIFY(second.ok());
    QVERIFY(base::Uid::Parse(first->request_id()).has_value());
    QCOMPARE(first->request_id()[14], '4');
    QVERIFY(first->request_id() != second->request_id());
  }

  void Submit_SendsTheLargestJobAndRefusesALargerOneByItself() {
    FakeNodeManager manager;
    FakeProxy proxy("default");
    std::atomic<std::size_t> arrived = 0;
    proxy.submit = [&](const v1::SubmitJobRequest& request, v1::Job& job) {
      arrived += request.inputs(0).data().size();
      return Accept(request, job);
    };
    manager.Serve({&proxy});
    Client client(To(manager));
    v1::SubmitJobRequest request;
    request.add_inputs()->mutable_data()->assign(std::size_t{64} << 20, 'x');
    const auto job = client.Submit(request);
    QVERIFY2(job.ok(), job.status().ToString().c_str());
    QCOMPARE(arrived.load(), std::size_t{64} << 20);
    request.add_inputs()->mutable_data()->assign(std::size_t{8} << 20, 'x');
    const auto larger = client.Submit(std::move(request));
    QCOMPARE(larger.status().code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(base::GetReason(larger.status()).reason, std::string("REQUEST_TOO_LARGE"));
    QCOMPARE(arrived.load(), std::size_t{64} << 20);
  }

  void Submit_MovesOnFromADeadProxyWithTheSameRequestId() {
    FakeNodeManager manager;
    FakeProxy broken("default"), dead("default"), good("default");
    broken.submit = [](const auto&, auto&) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE, "going away");
    };
    good.submit = Accept;
    dead.Stop();
    manager.Serve({&broken, &dead, &good});
    std::set<std::string> ids_sent;
    for (int i = 0; i < 8; ++i) {  // The first proxy is chosen at random.
      Client client(To(manager));
      const auto job = client.Submit({});
      QVERIFY2(job.ok(), job.status().ToString().c_str());
      ids_sent.insert(job->request_id());
    }
    const base::MutexLock lock(broken.mutex);
    for (const auto& id : broken.request_ids) QVERIFY(ids_sent.contains(id));
  }

  void Submit_FullSet_GoesToAnotherSet() {
    FakeNodeManager manager;
    FakeProxy full("a"), full_too("a"), free("b");
    int refusals = 0;
    full.submit = full_too.submit = [&refusals](const auto&, auto&) {
      ++refusals;
      return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "SET_FULL", 900);
    };
    free.submit = Accept;
    manager.Serve({&full, &full_too, &free});
    ClientOptions options = To(manager);
    options.workflow_set = "a";
    Client client(options);
    QVERIFY(client.Submit({}).ok());
    QCOMPARE(refusals, 1);  // One proxy answers for its set.
  }

  void Submit_EverySetFull_WaitsAsLongAsAsked() {
    FakeNodeManager manager;
    FakeProxy proxy("a");
    int calls = 0;
    proxy.submit = [&calls](const v1::SubmitJobRequest& request, v1::Job& job) {
      return ++calls == 1 ? Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "SET_FULL", 300)
                          : Accept(request, job);
    };
    manager.Serve({&proxy});
    Client client(To(manager));
    QElapsedTimer timer;
    timer.start();
    QVERIFY(client.Submit({}).ok());
    QCOMPARE(calls, 2);
    QVERIFY2(timer.elapsed() >= 299, "came back before the delay that the cluster asked for");
  }

  void Submit_FullForLongerThanTheTimeout_SaysSoAtOnce() {
    FakeNodeManager manager;
    FakeProxy proxy("a");
    proxy.submit = [](const auto&, auto&) {
      return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "SET_FULL", 90'000);
    };
    manager.Serve({&proxy});
    ClientOptions options = To(manager);
    options.timeout = seconds(60);
    Client client(options);
    QElapsedTimer timer;
    timer.start();
    const auto job = client.Submit({});
    QVERIFY(absl::IsResourceExhausted(job.status()));
    QCOMPARE(base::GetReason(job.status()).reason, std::string("SET_FULL"));
    QVERIFY(timer.elapsed() < 20'000);  // It does not wait for the timeout.
  }

  void Submit_BadParameters_IsNotRepeated() {
    FakeNodeManager manager;
    FakeProxy proxy("a");
    int calls = 0;
    proxy.submit = [&calls](const auto&, auto&) {
      ++calls;
      return Refusal(grpc::StatusCode::INVALID_ARGUMENT, "BAD_PARAMETER");
    };
    manager.Serve({&proxy});
    Client client(To(manager));
    QVERIFY(absl::IsInvalidArgument(client.Submit({}).status()));
    QCOMPARE(calls, 1);
  }

  void Get_AsksTheOtherSetsBeforeNotFound() {
    FakeNodeManager manager;
    FakeProxy stranger("a"), owner("b");
    stranger.get = [](const auto&, auto&) {
      return Refusal(grpc::StatusCode::NOT_FOUND, "JOB_UNKNOWN");
    };
    owner.get = [](const std::string& name, v1::Job& job) {
      job = JobIn(name == "jobs/uid" ? v1::Job::RUNNING : v1::Job::STATE_UNSPECIFIED);
      return grpc::Status::OK;
    };
    manager.Serve({&stranger, &owner});
    ClientOptions options = To(manager);
    options.workflow_set = "a";
    Client client(options);
    const auto job = client.Get("uid");
    QVERIFY(job.ok());
    QCOMPARE(job->state(), v1::Job::RUNNING);
    manager.Serve({&stranger});
    Client lonely(options);
    QVERIFY(absl::IsNotFound(lonely.Get("uid").status()));
  }

  void Get_SilentProxy_IsLeftAfterTheAttemptDeadline() {
    FakeNodeManager manager;
    FakeProxy silent("a"), good("a");
    std::atomic<bool> over{false};
    base::Mutex mutex;
    base::CondVar wake;
    silent.get = [&](const auto&, auto&) {
      base::MutexLock lock(mutex);
      wake.WaitFor(lock, seconds(30), [&] { return over.load(); });
      return grpc::Status::OK;
    };
    good.get = [](const auto&, v1::Job& job) {
      job = JobIn(v1::Job::QUEUED);
      return grpc::Status::OK;
    };
    manager.Serve({&silent, &good});
    ClientOptions options = To(manager);
    options.attempt_timeout = milliseconds(200);
    for (int i = 0; i < 4; ++i) {
      Client client(options);
      const auto job = client.Get("uid");
      QVERIFY(job.ok());
      QCOMPARE(job->state(), v1::Job::QUEUED);
    }
    {
      const base::MutexLock lock(mutex);
      over = true;
    }
    wake.NotifyAll();
  }

  void AnyCall_NobodyAnswers_IsUnavailableInTime() {
    std::string address;
    {
      FakeNodeManager gone;
      address = gone.address();
    }
    ClientOptions options;
    options.nodemanagers = {address};
    options.timeout = milliseconds(300);
    Client client(options);
    const auto job = client.Get("uid");
    QVERIFY(absl::IsUnavailable(job.status()));
    QCOMPARE(base::GetReason(job.status()).reason, std::string("CLUSTER_UNREACHABLE"));
    QVERIFY(absl::IsUnavailable(client.GetCluster().status()));
  }

  void AnyCall_FindsAProxyThatComesLater() {
    FakeNodeManager manager;
    FakeProxy proxy("a");
    proxy.submit = Accept;
    Client client(To(manager));
    std::jthread later([&] {
      while (manager.list_calls < 2) std::this_thread::yield();
      manager.Serve({&proxy});
    });
    QVERIFY(client.Submit({}).ok());
  }

  void AnyCall_Stop_EndsItAtOnce() {
    std::promise<void> asked, release;
    const std::shared_future<void> released(release.get_future());
    FakeNodeManager manager;
    FakeProxy proxy("default");  // Its handler waits for these.
    proxy.get = [&](const std::string&, v1::Job&) {
      asked.set_value();
      released.wait();
      return grpc::Status::OK;
    };
    manager.Serve({&proxy});
    std::stop_source stop;
    ClientOptions options = To(manager);
    options.timeout = options.attempt_timeout = seconds(60);
    options.stop = stop.get_token();
    Client client(options);
    auto silent = std::async(std::launch::async, [&] { return client.Get("uid").status(); });
    asked.get_future().wait();
    manager.Follow("");  // Nobody leads, so the client asks again and again.
    auto leaderless = std::async(std::launch::async, [&] { return client.GetCluster().status(); });
    stop.request_stop();
    const bool ended = silent.wait_for(seconds(5)) == std::future_status::ready &&
                       leaderless.wait_for(seconds(5)) == std::future_status::ready;
    release.set_value();
    QVERIFY(ended);
    QCOMPARE(base::GetReason(silent.get()).reason, std::string("INTERRUPTED"));
    QCOMPARE(base::GetReason(leaderless.get()).reason, std::string("INTERRUPTED"));
    QCOMPARE(base::GetReason(client.Get("uid").status()).reason, std::string("INTERRUPTED"));
  }

  void Watch_ReconnectsUntilTheJobEnds() {
    FakeNodeManager manager;
    FakeProxy proxy("a");
    int streams = 0;
    proxy.watch = [&streams](auto&, grpc::ServerWriter<v1::Job>& writer) {
      ++streams;
      writer.Write(JobIn(v1::Job::RUNNING));
      if (streams == 1) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut");
      writer.Write(JobIn(v1::Job::SUCCEEDED));
      return grpc::Status::OK;
    };
    manager.Serve({&proxy});
    Client client(To(manager));
    int seen = 0;
    const auto job = client.Watch(
        "uid", [&seen](const v1::Job&) { return ++seen < 100; },
        base::SystemClock().Now() + seconds(10));
    QVERIFY2(job.ok(), job.status().ToString().c_str());
    QCOMPARE(job->state(), v1::Job::SUCCEEDED);
    QCOMPARE(seen, 3);
  }

  void Watch_OfAJobThatDoesNotChangeForLong_GoesOn() {
    FakeNodeManager manager;
    FakeProxy proxy("a");
    int streams = 0;
    proxy.watch = [&](grpc::ServerContext& call, grpc::ServerWriter<v1::Job>& writer) {
      writer.Write(JobIn(++streams == 1 ? v1::Job::QUEUED : v1::Job::SUCCEEDED));
      if (streams > 1) return grpc::Status::OK;
      // The client stays for longer than its timeout.
      const bool left = testing::Eventually(milliseconds(1500), [&] { return call.IsCancelled(); });
      return left ? grpc::Status::CANCELLED
                  : grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "the turn is over");
    };
    manager.Serve({&proxy});
    ClientOptions options = To(manager);
    options.timeout = seconds(1);
    Client client(options);
    const auto job = client.Watch(
        "uid", [](const v1::Job&) { return true; }, base::SystemClock().Now() + seconds(30));
    QVERIFY2(job.ok(), job.status().ToString().c_str());
    QCOMPARE(job->state(), v1::Job::SUCCEEDED);
  }

  void Watch_Stop_EndsASilentStream() {
    FakeNodeManager manager;
    FakeProxy proxy("a");
    proxy.watch = [](grpc::ServerContext& context, grpc::ServerWriter<v1::Job>& writer) {
      writer.Write(JobIn(v1::Job::QUEUED));
      while (!context.IsCancelled()) std::this_thread::yield();
      return grpc::Status::CANCELLED;
    };
    manager.Serve({&proxy});
    Client client(To(manager));
    std::stop_source source;
    const auto job = client.Watch(
        "uid",
        [&source](const v1::Job&) {
          source.request_stop();
          return true;
        },
        base::SystemClock().Now() + seconds(30), source.get_token());
    QVERIFY(absl::IsCancelled(job.status()));
    const auto late = client.Watch(
        "uid", [](const v1::Job&) { return true; }, base::SystemClock().Now() + milliseconds(200));
    QVERIFY(absl::IsDeadlineExceeded(late.status()));
  }

  void Fetch_ResumesWhereTheStreamBroke() {
    const std::string bytes(100'000, 'x');
    FakeNodeManager manager;
    FakeProxy proxy("a");
    std::vector<std::int64_t> offsets;
    proxy.fetch = [&](const v1::FetchResultRequest& request,
                      grpc::ServerWriter<v1::FetchResultResponse>& writer) {
      offsets.push_back(request.offset_bytes());
      v1::FetchResultResponse response;
      *response.mutable_artifact() = Describe(bytes);
      response.set_chunk(bytes.substr(static_cast<std::size_t>(request.offset_bytes()), 40'000));
      writer.Write(response);
      const bool complete = request.offset_bytes() + 40'000 >= 100'000;
      return complete ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNAVAILABLE, "cut");
    };
    manager.Serve({&proxy});
    Client client(To(manager));
    std::string received;
    const auto artifact = client.Fetch("uid", "", [&received](std::string_view chunk) {
      received += chunk;
      return absl::OkStatus();
    });
    QVERIFY2(artifact.ok(), artifact.status().ToString().c_str());
    QVERIFY(received == bytes);
    QVERIFY((offsets == std::vector<std::int64_t>{0, 40'000, 80'000}));
    QCOMPARE(artifact->media_type(), std::string("video/mp4"));
  }

  void FetchToFile_DamagedOnce_IsFetchedAgain() {
    const std::string bytes = "the right bytes", damaged = "the wrong bytes";
    FakeNodeManager manager;
    FakeProxy proxy("a");
    int calls = 0;
    bool always = false;
    proxy.fetch = [&](const auto&, grpc::ServerWriter<v1::FetchResultResponse>& writer) {
      v1::FetchResultResponse response;
      *response.mutable_artifact() = Describe(bytes);
      response.set_chunk(++calls == 1 || always ? damaged : bytes);
      writer.Write(response);
      return grpc::Status::OK;
    };
    manager.Serve({&proxy});
    Client client(To(manager));
    const QTemporaryDir dir;
    const std::string path = dir.path().toStdString() + "/out.mp4";
    QVERIFY(client.FetchToFile("uid", "", path).ok());
    QCOMPARE(calls, 2);
    QVERIFY(ReadFile(path) == bytes);
    always = true;
    const std::string other = dir.path().toStdString() + "/other.mp4";
    const auto artifact = client.FetchToFile("uid", "", other);
    QVERIFY(absl::IsDataLoss(artifact.status()));
    QCOMPARE(QDir(dir.path()).entryList(QDir::Files), QStringList{"out.mp4"});
  }

  void FetchToFile_UnwritablePath_NamesIt() {
    FakeNodeManager manager;
    FakeProxy proxy("a");
    manager.Serve({&proxy});
    Client client(To(manager));
    const auto artifact = client.FetchToFile("uid", "", "/nonexistent/out.mp4");
    QCOMPARE(base::GetReason(artifact.status()).reason, std::string("CANNOT_WRITE"));
    QVERIFY(base::Message(artifact.status()).find("/nonexistent/out.mp4") != std::string::npos);
  }
};

}  // namespace onepiece::client

ONEPIECE_TEST(onepiece::client::ClientTest)
#include "client_test.moc"
