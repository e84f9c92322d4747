// Tests the client library in a cluster of several workflow sets.
#include <QtTest>
#include <array>
#include <atomic>
#include <map>

#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "tests/client/fake_cluster.h"
#include "tests/test_main.h"

namespace onepiece::client {
namespace {

using std::chrono::seconds;

grpc::Status Full(std::map<std::string, std::string> metadata = {}) {
  return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "OVERLOADED", 20, std::move(metadata));
}
grpc::Status TooShort() {
  return Refusal(grpc::StatusCode::FAILED_PRECONDITION, "DEADLINE_TOO_SHORT");
}
grpc::Status Unknown() { return Refusal(grpc::StatusCode::NOT_FOUND, "JOB_UNKNOWN"); }
v1::SubmitJobRequest WithOwnId() {
  v1::SubmitJobRequest request;
  request.set_request_id(base::Uid::GenerateRandom().ToString());
  return request;
}
grpc::Status Gone() { return {grpc::StatusCode::UNAVAILABLE, "going away"}; }

std::size_t Calls(FakeProxy& proxy) {
  const base::MutexLock lock(proxy.mutex);
  return proxy.request_ids.size();
}

}  // namespace

class SetsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Submit_SpreadsJobsOverSetsEqually() {
    FakeNodeManager manager;
    // Set b has three proxies and gets no more jobs for that.
    FakeProxy a("a"), b1("b"), b2("b"), b3("b");
    for (FakeProxy* proxy : {&a, &b1, &b2, &b3}) proxy->submit = Accept;
    manager.Serve({&a, &b1, &b2, &b3});
    Client client(To(manager));
    for (int i = 0; i < 200; ++i) QVERIFY(client.Submit({}).ok());
    const auto of_a = Calls(a);
    QVERIFY2(of_a > 60 && of_a < 140, std::to_string(of_a).c_str());  // Within 5.6 σ.
    QCOMPARE(of_a + Calls(b1) + Calls(b2) + Calls(b3), std::size_t{200});
  }

  void Submit_NamedSet_IsAskedFirst() {
    FakeNodeManager manager;
    FakeProxy a("a"), b("b");
    a.submit = b.submit = Accept;
    manager.Serve({&a, &b});
    ClientOptions options = To(manager);
    options.workflow_set = "b";
    Client client(options);
    for (int i = 0; i < 20; ++i) QVERIFY(client.Submit({}).ok());
    QCOMPARE(Calls(b), std::size_t{20});
  }

  void Submit_Refused_GoesWhereThereIsRoom() {
    FakeNodeManager manager;
    FakeProxy a("a"), b("b"), c("c");
    a.submit = [](const auto&, auto&) { return Full({{"headroom", "c=0.90,b=0.10,nonsense"}}); };
    b.submit = c.submit = Accept;
    manager.Serve({&a, &b, &c});
    ClientOptions options = To(manager);
    options.workflow_set = "a";
    Client client(options);
    for (int i = 0; i < 20; ++i) QVERIFY(client.Submit({}).ok());
    QCOMPARE(Calls(a), std::size_t{20});
    QCOMPARE(Calls(c), std::size_t{20});
  }

  /// Every set has its own databases, so one id in two sets would be two jobs.
  void Submit_SameId_MeetsTheSameSet() {
    FakeNodeManager manager;
    FakeProxy a("a"), b("b");
    a.Remember();
    b.Remember();
    a.get = b.get = [](const auto&, auto&) { return Unknown(); };
    manager.Serve({&a, &b});
    for (int id = 0; id < 20; ++id) {
      const v1::SubmitJobRequest own = WithOwnId();
      for (int i = 0; i < 4; ++i) QVERIFY(Client(To(manager)).Submit(own).ok());
    }
    QCOMPARE(a.made.size() + b.made.size(), std::size_t{20});
    QVERIFY2(!a.made.empty() && !b.made.empty(), std::to_string(a.made.size()).c_str());
  }

  void Submit_SameId_GoesWhereItIs_WhateverIsAskedFor() {
    FakeNodeManager manager;
    FakeProxy a("a"), b("b"), c("c");
    for (FakeProxy* proxy : {&a, &b, &c}) proxy->Remember();
    manager.Serve({&a, &b, &c});
    const v1::SubmitJobRequest own = WithOwnId();
    for (int i = 0; i < 20; ++i) {
      ClientOptions options = To(manager);
      options.workflow_set = std::array{"c", "a", "b"}[static_cast<std::size_t>(i % 3)];
      QVERIFY(Client(options).Submit(own).ok());
    }
    QCOMPARE(Calls(c), std::size_t{20});
    QCOMPARE(Calls(a) + Calls(b), std::size_t{0});
    // No set can have a fresh id, so nobody is asked.
    const auto asked = a.asked_for.size();
    QVERIFY(Client(To(manager)).Submit({}).ok());
    QCOMPARE(a.asked_for.size(), asked);
  }

  void Submit_SameId_IsNotMadeWhileASetDoesNotSay() {
    FakeNodeManager manager;
    FakeProxy a("a"), b("b");
    a.Remember();
    b.Remember();
    manager.Serve({&a, &b});
    ClientOptions options = To(manager);
    options.workflow_set = "b";
    options.timeout = seconds(1);
    for (const auto code : {grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::CANCELLED,
                            grpc::StatusCode::INVALID_ARGUMENT}) {
      a.get = [&](const auto&, auto&) { return grpc::Status(code, "neither yes nor no"); };
      const auto refused = Client(options).Submit(WithOwnId());
      QCOMPARE(base::GetReason(refused.status()).reason, std::string("SET_SILENT"));
      QVERIFY(b.made.empty());
    }
    options.timeout = seconds(10);
    std::atomic<int> silent_for{3};
    a.get = [&](const auto&, auto&) { return silent_for-- > 0 ? Gone() : Unknown(); };
    QVERIFY(Client(options).Submit(WithOwnId()).ok());
    QVERIFY(silent_for < 0);
    QCOMPARE(b.made.size(), std::size_t{1});
    // Once set a is gone, its jobs are lost.
    a.get = [&](const auto&, auto&) {
      manager.Serve({&b});
      return Gone();
    };
    QVERIFY(Client(options).Submit(WithOwnId()).ok());
    QCOMPARE(b.made.size(), std::size_t{2});
    QVERIFY(a.made.empty());
  }

  void Submit_IdThatIsNoUuid_IsRefusedByWhoIsAskedToMakeIt() {
    FakeNodeManager manager;
    FakeProxy a("a"), b("b");
    a.submit = b.submit = [](const auto&, auto&) {
      return Refusal(grpc::StatusCode::INVALID_ARGUMENT, "BAD_REQUEST_ID");
    };
    a.get = b.get = [](const auto&, auto&) {
      return Refusal(grpc::StatusCode::INVALID_ARGUMENT, "BAD_NAME");
    };
    manager.Serve({&a, &b});
    v1::SubmitJobRequest request;
    request.set_request_id("mine");
    const auto refused = Client(To(manager)).Submit(request);
    QCOMPARE(base::GetReason(refused.status()).reason, std::string("BAD_REQUEST_ID"));
  }

  /// A set that was not asked for lack of time has not failed to answer.
  void Submit_SameId_AsksNobodyAfterItsTime() {
    FakeNodeManager manager;
    FakeProxy a("a"), b("b");
    base::ManualClock clock;
    ClientOptions options = To(manager);
    options.workflow_set = "a";
    options.clock = &clock;
    a.submit = b.submit = Accept;
    a.get = [&](const auto&, auto&) {
      clock.Advance(options.timeout);
      return Gone();
    };
    b.get = [](const auto&, auto&) { return Unknown(); };
    manager.Serve({&a, &b});
    Client client(options);
    const auto refused = client.Submit(WithOwnId());
    QCOMPARE(base::GetReason(refused.status()).reason, std::string("SET_SILENT"));
    QVERIFY(client.Submit({}).ok());
    QCOMPARE(Calls(a), std::size_t{0});
    QCOMPARE(Calls(b), std::size_t{1});
  }

  void Submit_LostAnswer_IsFoundByAnotherClient() {
    FakeNodeManager manager;
    FakeProxy a("a"), b("b");
    a.Remember();
    b.Remember();
    std::atomic<bool> lost{true};
    a.submit = [&, take = a.submit](const auto& request, auto& job) {
      const grpc::Status answer = take(request, job);
      return lost ? Gone() : answer;
    };
    manager.Serve({&a, &b});
    ClientOptions options = To(manager);
    options.workflow_set = "a";
    options.timeout = seconds(1);
    const v1::SubmitJobRequest own = WithOwnId();
    QVERIFY(!Client(options).Submit(own).ok());
    QCOMPARE(a.made.size(), std::size_t{1});
    lost = false;
    options.workflow_set = "b";
    options.timeout = seconds(10);
    QVERIFY(Client(options).Submit(own).ok());
    QCOMPARE(Calls(b), std::size_t{0});
  }

  void Submit_LostAnswer_StaysWithTheSetThatMayHaveIt() {
    FakeNodeManager manager;
    FakeProxy a("a"), b("b");
    std::atomic<int> asked{0};
    a.submit = [&](const auto& request, auto& job) {
      // The set has a record of the job by then.
      if (++asked == 2) return Refusal(grpc::StatusCode::UNAVAILABLE, "NOT_STARTED");
      return asked < 4 ? Gone() : Accept(request, job);
    };
    b.submit = Accept;
    manager.Serve({&a, &b});
    ClientOptions options = To(manager);
    options.workflow_set = "a";
    Client client(options);
    QVERIFY(client.Submit({}).ok());
    QCOMPARE(asked.load(), 4);
    QCOMPARE(Calls(b), std::size_t{0});
    // Set a is gone, and its jobs are lost.
    a.submit = [&](const auto&, auto&) {
      manager.Serve({&b});
      return Gone();
    };
    QVERIFY(Client(options).Submit({}).ok());
    QCOMPARE(Calls(b), std::size_t{1});
  }

  void Submit_UnreachableSet_IsLeftAtOnce() {
    FakeNodeManager manager;
    FakeProxy a("a"), b("b");
    b.submit = Accept;
    manager.Serve({&a, &b});
    a.Stop();
    ClientOptions options = To(manager);
    options.workflow_set = "a";
    QVERIFY(Client(options).Submit({}).ok());
    QCOMPARE(Calls(b), std::size_t{1});
  }

  void Submit_BusyProxy_SpeaksForItselfAlone() {
    for (const char* reason : {"QUOTA", "INPUTS_BUSY"}) {
      FakeNodeManager manager;
      FakeProxy busy("a"), other("a"), b("b");
      busy.submit = [&](const auto&, auto&) {
        return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, reason, 20);
      };
      other.submit = b.submit = Accept;
      manager.Serve({&busy, &other, &b});
      ClientOptions options = To(manager);
      options.workflow_set = "a";
      Client client(options);
      for (int i = 0; i < 20; ++i) QVERIFY(client.Submit({}).ok());
      QVERIFY(Calls(busy) > 0);
      QCOMPARE(Calls(other), std::size_t{20});
      QCOMPARE(Calls(b), std::size_t{0});
    }
  }

  void Submit_DeadSet_IsLeftOutForAWhile() {
    FakeNodeManager manager;
    FakeProxy dead1("a"), dead2("a"), good("b");
    dead1.submit = dead2.submit = [](const auto&, auto&) {
      return Refusal(grpc::StatusCode::UNAVAILABLE, "NOT_REGISTERED");
    };
    good.submit = Accept;
    manager.Serve({&dead1, &dead2, &good});
    Client client(To(manager));
    for (int i = 0; i < 50; ++i) QVERIFY(client.Submit({}).ok());
    QCOMPARE(Calls(good), std::size_t{50});
    QVERIFY(Calls(dead1) <= 1 && Calls(dead2) <= 1);
    // When no other set takes the job, the dead set is asked nevertheless.
    std::atomic<bool> back{false};
    dead1.submit = dead2.submit = [&](const auto& request, auto& job) {
      back = true;
      return Accept(request, job);
    };
    good.submit = [](const auto&, auto&) { return Full(); };
    QVERIFY(client.Submit({}).ok());
    QVERIFY(back);
  }

  void Submit_DeadlineTooShort_IsAskedOfEverySetOnce() {
    FakeNodeManager manager;
    FakeProxy a("a"), b("b");
    a.submit = b.submit = [](const auto&, auto&) { return TooShort(); };
    manager.Serve({&a, &b});
    Client client(To(manager));
    const auto refused = client.Submit({});
    QCOMPARE(refused.status().code(), absl::StatusCode::kFailedPrecondition);
    QCOMPARE(base::GetReason(refused.status()).reason, std::string("DEADLINE_TOO_SHORT"));
    QCOMPARE(Calls(a), std::size_t{1});
    QCOMPARE(Calls(b), std::size_t{1});
    // Another set may finish the job in time, although it has no room now.
    std::atomic<int> asked{0};
    b.submit = [&](const auto& request, auto& job) {
      return ++asked < 3 ? Full() : Accept(request, job);
    };
    QVERIFY(client.Submit({}).ok());
    QCOMPARE(asked.load(), 3);
    QVERIFY(Calls(a) <= 2);
  }

  void Submit_DeadlineTooShort_IsNotSuccessWhenTheOthersVanish() {
    FakeNodeManager manager;
    FakeProxy a("a"), b("b");
    a.submit = [](const auto&, auto&) { return TooShort(); };
    b.submit = [&](const auto&, auto&) {
      manager.Serve({&a});
      return Gone();
    };
    manager.Serve({&a, &b});
    Client client(To(manager));
    const auto refused = client.Submit({});
    QCOMPARE(base::GetReason(refused.status()).reason, std::string("DEADLINE_TOO_SHORT"));
    QCOMPARE(Calls(a), std::size_t{1});
  }

  void Submit_SaysWhenItMayBeRepeated() {
    FakeNodeManager manager;
    FakeProxy proxy("a");
    std::atomic<int> calls{0};
    proxy.submit = [&](const auto& request, auto& job) {
      switch (++calls) {
        case 1:
          return Full();
        case 2:
          return Gone();
        case 3:
          return Full();
        default:
          return Accept(request, job);
      }
    };
    manager.Serve({&proxy});
    Client client(To(manager));
    QVERIFY(client.Submit({}).ok());
    QVERIFY((proxy.repeated == std::vector<bool>{false, false, true, true}));
    v1::SubmitJobRequest own;
    own.set_request_id("5f0c2a1e-0000-4000-8000-000000000001");
    QVERIFY(client.Submit(own).ok());
    QVERIFY(proxy.repeated.back());
  }

  void Get_FindsTheJobInWhicheverSetItIs() {
    FakeNodeManager manager;
    FakeProxy a("a"), b("b"), c("c");
    const auto knows = [](const std::string& own) {
      return [own](const std::string& name, v1::Job& job) {
        if (name != "jobs/" + own) return Refusal(grpc::StatusCode::NOT_FOUND, "JOB_UNKNOWN");
        job.set_uid(own);
        return grpc::Status::OK;
      };
    };
    a.get = knows("1");
    b.get = knows("2");
    c.get = knows("3");
    manager.Serve({&a, &b, &c});
    Client client(To(manager));
    for (const char* uid : {"1", "2", "3", "1", "3", "2"}) {
      const auto job = client.Get(uid);
      QVERIFY2(job.ok(), job.status().ToString().c_str());
      QCOMPARE(job->uid(), std::string(uid));
    }
    QVERIFY(absl::IsNotFound(client.Get("4").status()));
  }

  void Watch_WaitsForASetThatDoesNotAnswer() {
    FakeNodeManager manager;
    FakeProxy stranger("a"), owner("b");
    stranger.watch = [](auto&, auto&) {
      return Refusal(grpc::StatusCode::NOT_FOUND, "JOB_UNKNOWN");
    };
    std::atomic<int> calls{0};
    owner.watch = [&](auto&, grpc::ServerWriter<v1::Job>& writer) {
      if (++calls < 4) return Gone();
      v1::Job job;
      job.set_state(v1::Job::SUCCEEDED);
      writer.Write(job);
      return grpc::Status::OK;
    };
    manager.Serve({&owner, &stranger});
    for (const char* first : {"a", "b"}) {
      calls = 0;
      ClientOptions options = To(manager);
      options.workflow_set = first;
      Client client(options);
      const auto job = client.Watch(
          "uid", [](const v1::Job&) { return true; }, base::SystemClock().Now() + seconds(10));
      QVERIFY2(job.ok(), job.status().ToString().c_str());
      QCOMPARE(job->state(), v1::Job::SUCCEEDED);
    }
  }

  void Fetch_FindsTheResultInWhicheverSetItIs() {
    FakeNodeManager manager;
    FakeProxy stranger("a"), owner("b");
    const std::string bytes = "the video";
    stranger.fetch = [](const auto&, auto&) {
      return Refusal(grpc::StatusCode::NOT_FOUND, "JOB_UNKNOWN");
    };
    owner.fetch = [&](const auto&, grpc::ServerWriter<v1::FetchResultResponse>& writer) {
      v1::FetchResultResponse response;
      *response.mutable_artifact() = Describe(bytes);
      response.set_chunk(bytes);
      writer.Write(response);
      return grpc::Status::OK;
    };
    manager.Serve({&stranger, &owner});
    ClientOptions options = To(manager);
    options.workflow_set = "a";
    Client client(options);
    std::string received;
    const auto artifact = client.Fetch("uid", "", [&](std::string_view chunk) {
      received += chunk;
      return absl::OkStatus();
    });
    QVERIFY2(artifact.ok(), artifact.status().ToString().c_str());
    QCOMPARE(received, bytes);
  }
};

}  // namespace onepiece::client

ONEPIECE_TEST(onepiece::client::SetsTest)
#include "sets_test.moc"
