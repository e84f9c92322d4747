#include <QtTest>

#include "tests/proxy/proxy_cluster.h"
#include "tests/test_main.h"

namespace onepiece::proxy {

class ProxyServiceTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Job_GoesFromSubmissionToAcknowledgedResult() {
    TwoProxies cluster;
    const Job job = cluster.first.Begin(Request());
    QCOMPARE(job.state(), Job::QUEUED);
    QCOMPARE(job.name(), "jobs/" + job.uid());
    const auto received = cluster.instance.Receive();
    QVERIFY(received.ok());
    QCOMPARE(received->message.header.uid.ToString(), job.uid());
    QCOMPARE(std::get<std::string>(received->message.parameters.at("prompt")),
             std::string("a red ball"));
    QVERIFY(cluster.records().Update(cluster.instance.Progress(job.uid(), 3)).ok());
    const auto running = cluster.second.Get(job.name());
    QCOMPARE(running->state(), Job::RUNNING);
    QCOMPARE(running->step(), 3);
    QCOMPARE(Reason(cluster.second.Fetch(job.name()).status()), std::string("JOB_NOT_DONE"));
    QVERIFY(cluster.SendResult(job.uid(), "video").ok());
    QVERIFY(Eventually([&] { return cluster.second.Get(job.name())->state() == Job::SUCCEEDED; }));
    QCOMPARE(*cluster.second.Fetch(job.name()), std::string("video"));
    v1::AcknowledgeResultRequest acknowledge;
    acknowledge.set_name(job.name());
    const auto done =
        cluster.first.Call(&v1::GenerationService::Stub::AcknowledgeResult, acknowledge);
    QVERIFY(done.ok() && done->result().fetched());
    QCOMPARE(Reason(cluster.second.Fetch(job.name()).status()), std::string("RESULT_FETCHED"));
    QCOMPARE(cluster.first.service.jobs_in_flight(), 0);
  }

  void Submit_IsIdempotentOverProxies() {
    TwoProxies cluster;
    v1::SubmitJobRequest request = RequestWithId();
    const auto a = cluster.first.Submit(request);
    const auto b = cluster.second.Submit(request);
    QVERIFY2(a.ok() && b.ok(), (a.status().ToString() + b.status().ToString()).c_str());
    QCOMPARE(a->uid(), b->uid());
    QVERIFY(cluster.instance.Receive().ok());
    QCOMPARE(cluster.instance.Receive(300ms).status().code(), absl::StatusCode::kDeadlineExceeded);
    request.mutable_parameters()->mutable_fields()->at("prompt").set_string_value("another");
    const auto reused = cluster.second.Submit(request);
    QCOMPARE(reused.status().code(), absl::StatusCode::kAlreadyExists);
    QCOMPARE(Reason(reused.status()), std::string("REQUEST_ID_REUSED"));
  }

  void Submit_AtTheSameTimeThroughTwoProxiesStartsOneJob() {
    TwoProxies cluster;
    for (int round = 0; round < 10; ++round) {
      const v1::SubmitJobRequest request = RequestWithId();
      absl::StatusOr<Job> a;
      std::thread other([&] { a = cluster.first.Submit(request); });
      const auto b = cluster.second.Submit(request);
      other.join();
      QVERIFY(a.ok() && b.ok());
      QVERIFY(cluster.instance.Receive().ok());
    }
    QCOMPARE(cluster.instance.Receive(300ms).status().code(), absl::StatusCode::kDeadlineExceeded);
  }

  void Submit_StartsAJobWhoseFirstProxyDiedBeforeItWasSent() {
    ServedCluster cluster;
    const v1::SubmitJobRequest request = RequestWithId();
    const Job job = cluster.proxy.Begin(request);
    QVERIFY(cluster.instance.Receive().ok());
    // A proxy that dies between its two steps leaves the same record without a holder.
    v1::JobRecord orphan = *cluster.records().Get(*base::Uid::Parse(job.uid()));
    ServedCluster fresh;
    orphan.clear_holders();
    QVERIFY(fresh.records().Create(orphan).ok());
    const auto again = fresh.proxy.Submit(request);
    QVERIFY2(again.ok(), again.status().ToString().c_str());
    QCOMPARE(again->uid(), job.uid());
    QVERIFY(fresh.instance.Receive().ok());
  }

  void Submit_SendsTheJobToEveryEntrance() {
    ServedBranches cluster;
    const Job job = cluster.proxy.Begin(RequestWithId());
    QCOMPARE(job.state(), Job::QUEUED);
    const auto to_text = cluster.text.Receive();
    const auto to_image = cluster.image.Receive();
    QVERIFY(to_text.ok() && to_image.ok());
    QCOMPARE(to_text->message.header.stage, std::string("text"));
    QCOMPARE(to_image->message.header.stage, std::string("image"));
    for (const auto& received : {*to_text, *to_image}) {
      QCOMPARE(received.message.header.uid.ToString(), job.uid());
      QVERIFY(received.message.header.from.empty());
      QCOMPARE(std::get<std::string>(received.message.parameters.at("prompt")),
               std::string("a red ball"));
    }
    const auto record = cluster.records().Get(*base::Uid::Parse(job.uid()));
    QCOMPARE(record->holders_size(), 2);
    QCOMPARE(job::LiveHolders(*record).size(), std::size_t{2});
  }

  void Submit_NeedsAnInstanceOfEveryEntrance() {
    BranchedCluster cluster;
    FakeInstance text(cluster, "app", "text", "inst-text");
    Proxy proxy(cluster, "proxy-1");
    const auto job = proxy.Submit(RequestWithId());
    QCOMPARE(Reason(job.status()), std::string("STAGE_UNSERVED"));
    QCOMPARE(base::GetReason(job.status()).metadata.at("stage"), std::string("image"));
    QCOMPARE(text.Receive(100ms).status().code(), absl::StatusCode::kDeadlineExceeded);
  }

  // The record stays, because the client must come back to this set. Other sets must not take the
  // record for a job.
  void Submit_ThatNobodyTakes_IsKnownOnceItHasBegun() {
    ServedCluster cluster;
    v1::SubmitJobRequest request;
    absl::StatusOr<Job> job;
    std::size_t taken = 0;
    for (int i = 0; i == 0 || (job.ok() && i < 100); ++i) {  // Until the ring is full.
      request = RequestWithId();
      job = cluster.proxy.Submit(request);
      if (job.ok()) ++taken;
    }
    QCOMPARE(cluster.proxy.kept.items(), taken);
    QCOMPARE(job.status().code(), absl::StatusCode::kUnavailable);
    QCOMPARE(Reason(job.status()), std::string("NOT_STARTED"));
    const std::string name = std::string(rpc::kRequestNamePrefix) + request.request_id();
    QCOMPARE(cluster.proxy.Get(name).status().code(), absl::StatusCode::kNotFound);
    while (cluster.instance.Receive(300ms).ok()) {
    }
    const auto begun = cluster.proxy.Submit(request);
    QVERIFY2(begun.ok(), begun.status().ToString().c_str());
    QVERIFY(cluster.proxy.Get(name).ok());
  }

  // The work that has begun is worth something: the client's retry starts only the rest.
  void Submit_WhenOneEntranceTakesNothing_TheRetryStartsTheRestInTheSameRun() {
    BranchedCluster cluster;
    FakeInstance text(cluster, "app", "text", "inst-text");
    auto dead = std::make_unique<FakeInstance>(cluster, "app", "image", "inst-dead");
    dead->Close();
    Proxy proxy(cluster, "proxy-1");
    const v1::SubmitJobRequest request = RequestWithId();
    const auto refused = proxy.Submit(request);
    QCOMPARE(refused.status().code(), absl::StatusCode::kUnavailable);
    QCOMPARE(Reason(refused.status()), std::string("NOT_STARTED"));
    // The rest is kept too: a run that has begun is completed, though no client asks again.
    QCOMPARE(proxy.kept.items(), std::size_t{2});
    const auto first = text.Receive();
    QVERIFY(first.ok());
    const base::Uid uid = first->message.header.uid;
    QVERIFY(!text.WasCancelled(uid.ToString()));
    const auto record = cluster.records().Get(uid);
    QVERIFY(record.ok());
    QCOMPARE(record->job().state(), Job::QUEUED);
    QCOMPARE(record->holders_size(), 1);
    // Nothing but another instance of the entrance is missing.
    cluster.ChangeTable([](v1::RoutingTable& table) {
      for (v1::Route& route : *table.mutable_routes()) {
        if (route.stage() == "image") route.clear_instances();
      }
    });
    FakeInstance image(cluster, "app", "image", "inst-image");
    const auto again = proxy.Submit(request);
    QVERIFY2(again.ok(), again.status().ToString().c_str());
    const auto second = image.Receive();
    QVERIFY(second.ok());
    QCOMPARE(second->message.header.run, first->message.header.run);
    QVERIFY(second->message.header.run != 0);
    QCOMPARE(text.Receive(100ms).status().code(), absl::StatusCode::kDeadlineExceeded);
    QCOMPARE(cluster.records().Get(uid)->holders_size(), 2);
  }

  // Without a request_id nobody can ask for the job again, so it must not go on for nothing.
  void Submit_WhenOneEntranceTakesNothing_WithoutARequestId_CallsTheOtherBack() {
    ServedBranches cluster;
    cluster.image.Close();
    const auto refused = cluster.proxy.Submit(Request());
    QCOMPARE(refused.status().code(), absl::StatusCode::kUnavailable);
    const auto received = cluster.text.Receive();
    QVERIFY(received.ok());
    QVERIFY(cluster.text.WasCancelled(received->message.header.uid.ToString()));
    QVERIFY(!cluster.records().Get(received->message.header.uid).ok());
  }

  void Submit_AgainSendsOnlyToTheEntranceThatHasNothing() {
    ServedBranches cluster;
    const v1::SubmitJobRequest request = RequestWithId();
    const Job job = cluster.proxy.Begin(request);
    QVERIFY(cluster.text.Receive().ok() && cluster.image.Receive().ok());
    // A proxy that dies after the first of its two messages leaves this. "text" is computing.
    v1::JobRecord orphan = *cluster.records().Get(*base::Uid::Parse(job.uid()));
    orphan.clear_holders();
    v1::WorkHolder holder;
    holder.set_node_id("inst-text");
    holder.set_incarnation(77);
    holder.set_stage("text");
    holder.set_successors(1);
    *orphan.add_holders() = holder;
    ServedBranches fresh;
    QVERIFY(fresh.records().Create(orphan).ok());
    v1::UpdateJobRequest progress;
    progress.set_uid(job.uid());
    *progress.mutable_progress()->mutable_holder() = holder;
    QVERIFY(fresh.records().Update(progress).ok());
    // Another set must not begin it.
    QVERIFY(fresh.proxy.Get(std::string(rpc::kRequestNamePrefix) + request.request_id()).ok());
    const auto again = fresh.proxy.Submit(request);
    QVERIFY2(again.ok(), again.status().ToString().c_str());
    QVERIFY(fresh.image.Receive().ok());
    QCOMPARE(fresh.text.Receive(100ms).status().code(), absl::StatusCode::kDeadlineExceeded);
    QCOMPARE(fresh.records().Get(*base::Uid::Parse(job.uid()))->holders_size(), 2);
  }

  void Submit_RefusesBadInput_data() {
    QTest::addColumn<QString>("app");
    QTest::addColumn<QString>("parameter");
    QTest::addColumn<QString>("value");
    QTest::addColumn<int>("code");
    QTest::addColumn<QString>("reason");
    const int invalid = static_cast<int>(absl::StatusCode::kInvalidArgument);
    QTest::newRow("unknown application")
        << "nope"
        << "prompt"
        << "x" << static_cast<int>(absl::StatusCode::kNotFound) << "APP_UNKNOWN";
    QTest::newRow("unknown parameter") << "app"
                                       << "colour"
                                       << "x" << invalid << "INVALID_PARAMETERS";
    QTest::newRow("empty prompt") << "app"
                                  << "prompt"
                                  << "" << invalid << "INVALID_PARAMETERS";
    QTest::newRow("blank prompt") << "app"
                                  << "prompt"
                                  << " \n"
                                  << invalid << "INVALID_PARAMETERS";
    QTest::newRow("prompt of 100 kB")
        << "app"
        << "prompt" << QString(100'000, 'x') << invalid << "INVALID_PARAMETERS";
  }
  void Submit_RefusesBadInput() {
    QFETCH(QString, app);
    QFETCH(QString, parameter);
    QFETCH(QString, value);
    QFETCH(int, code);
    QFETCH(QString, reason);
    ServedCluster cluster;
    v1::SubmitJobRequest request;
    request.set_app_id(app.toStdString());
    (*request.mutable_parameters()->mutable_fields())[parameter.toStdString()].set_string_value(
        value.toStdString());
    for (const bool validate_only : {true, false}) {
      request.set_validate_only(validate_only);
      const auto job = cluster.proxy.Submit(request);
      QCOMPARE(static_cast<int>(job.status().code()), code);
      QCOMPARE(QString::fromStdString(Reason(job.status())), reason);
    }
    QCOMPARE(cluster.proxy.service.jobs_in_flight(), 0);
    QCOMPARE(cluster.records().List({})->jobs_size(), 0);
  }

  void Inputs_ReachTheEntranceAndTheRecordKeepsTheirDigest() {
    ServedCluster cluster;
    v1::SubmitJobRequest request = RequestWithId();
    v1::JobInput& image = AddImage(request, 100'000);
    const Job job = cluster.proxy.Begin(request);
    const auto received = cluster.instance.Receive();
    QVERIFY(received.ok());
    const auto* artifact = message::FindArtifact(received->message.artifacts, "image");
    QVERIFY(artifact != nullptr);
    QCOMPARE(artifact->media_type, std::string("image/png"));
    QVERIFY(artifact->data.text() == image.data());
    const auto later = cluster.proxy.Get(job.name());
    QVERIFY(later.ok());
    QCOMPARE(later->inputs_size(), 1);
    QCOMPARE(later->inputs(0).size_bytes(), 100'000);
    QVERIFY(later->ByteSizeLong() < 2000);
    // The same request id with other bytes is another job.
    image.mutable_data()->back() = 'y';
    QCOMPARE(Reason(cluster.proxy.Submit(request).status()), std::string("REQUEST_ID_REUSED"));
  }

  void Inputs_ThatTheApplicationDoesNotTakeAreRefused() {
    ServedCluster cluster;
    v1::SubmitJobRequest request = Request();
    request.add_inputs()->set_name("mask");
    for (const bool validate_only : {true, false}) {
      request.set_validate_only(validate_only);
      const auto job = cluster.proxy.Submit(request);
      QCOMPARE(job.status().code(), absl::StatusCode::kInvalidArgument);
      QCOMPARE(Reason(job.status()), std::string("INVALID_INPUTS"));
    }
    QCOMPARE(cluster.records().List({})->jobs_size(), 0);
  }

  void Inputs_TooLargeForTheInstanceAreAClearErrorAndLeaveNoJob() {
    ServedCluster cluster;  // The instance takes messages of at most 512 KiB.
    v1::SubmitJobRequest request = RequestWithId();
    AddImage(request, 1 << 20);
    const auto job = cluster.proxy.Submit(request);
    QCOMPARE(job.status().code(), absl::StatusCode::kInvalidArgument);
    QCOMPARE(Reason(job.status()), std::string("MESSAGE_TOO_LARGE"));
    QCOMPARE(cluster.proxy.service.jobs_in_flight(), 0);
    QCOMPARE(cluster.records().List({})->jobs_size(), 0);
  }

  void InputBudget_RefusesWhatDoesNotFitAndTakesItLater() {
    InputBudget budget(100);
    {
      const InputBudget::Share first(budget, 60);
      QVERIFY(first.status().ok());
      const InputBudget::Share second(budget, 50);
      QCOMPARE(second.status().code(), absl::StatusCode::kResourceExhausted);
      QCOMPARE(Reason(second.status()), std::string("INPUTS_BUSY"));
      const InputBudget::Share third(budget, 40);
      QVERIFY(third.status().ok());
    }
    QVERIFY(InputBudget::Share(budget, 100).status().ok());
    QVERIFY(InputBudget::Share(budget, 0).status().ok());
  }

  void Submit_ValidateOnlyStartsNothing() {
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1");
    v1::SubmitJobRequest request = Request("ein roter Ball 🔴 赤い玉");
    request.set_validate_only(true);
    const auto job = proxy.Submit(request);
    QVERIFY2(job.ok(), job.status().ToString().c_str());
    QVERIFY(job->uid().empty() && job->name().empty());
    QCOMPARE(cluster.records().List({})->jobs_size(), 0);
  }

  void Submit_IsRefusedAtTheQuotaAndTakenAgainAfterAnEnd() {
    Cluster cluster;
    FakeInstance instance(cluster);
    Proxy proxy(cluster, "proxy-1", 1);
    const auto job = proxy.Submit(Request());
    QVERIFY(job.ok());
    const auto refused = proxy.Submit(Request());
    QCOMPARE(refused.status().code(), absl::StatusCode::kResourceExhausted);
    QCOMPARE(Reason(refused.status()), std::string("QUOTA"));
    QVERIFY(base::GetReason(refused.status()).metadata.contains("retry_after_ms"));
    // No client asks this proxy for the job. It finds out by itself.
    v1::UpdateJobRequest failed;
    failed.set_uid(job->uid());
    failed.mutable_failed()->set_reason("STAGE_FAILED");
    QVERIFY(cluster.records().Update(failed).ok());
    QVERIFY(Eventually([&] { return proxy.service.jobs_in_flight() == 0; }));
    QVERIFY(proxy.Submit(Request()).ok());
  }

  /// An id that can be guessed must not give a job's uid away.
  void Get_ByRequestId_SaysOnlyWhetherItIsKnown() {
    TwoProxies cluster;
    const v1::SubmitJobRequest request = RequestWithId();
    const std::string name = std::string(rpc::kRequestNamePrefix) + request.request_id();
    QCOMPARE(Reason(cluster.second.Get(name).status()), std::string("JOB_UNKNOWN"));
    const Job job = cluster.first.Begin(request);
    const auto known = cluster.second.Get(name);
    QVERIFY2(known.ok(), known.status().ToString().c_str());
    Job expected;
    expected.set_request_id(request.request_id());
    expected.set_workflow_set(job.workflow_set());
    QCOMPARE(known->SerializeAsString(), expected.SerializeAsString());
    // A deleted job is known. If it were not, another set would make it again.
    QVERIFY(cluster.first.Delete(job.name()).ok());
    QVERIFY(cluster.second.Get(name).ok());
    QCOMPARE(Reason(cluster.second.Get("requests/mine").status()), std::string("BAD_NAME"));
  }

  void Submit_WithoutInstanceIsUnavailable() {
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1");
    const auto job = proxy.Submit(Request());
    QCOMPARE(job.status().code(), absl::StatusCode::kUnavailable);
    QCOMPARE(Reason(job.status()), std::string("STAGE_UNSERVED"));
    QCOMPARE(proxy.service.jobs_in_flight(), 0);
    QCOMPARE(cluster.records().List({})->jobs_size(), 0);
  }

  void Cancel_TellsTheInstances() {
    ServedCluster cluster;
    const Job job = cluster.proxy.Begin(Request());
    v1::CancelJobRequest request;
    request.set_name(job.name());
    const auto cancelled = cluster.proxy.Call(&v1::GenerationService::Stub::CancelJob, request);
    QVERIFY(cancelled.ok());
    QCOMPARE(cancelled->state(), Job::CANCELLED);
    QVERIFY(cluster.instance.WasCancelled(job.uid()));
    QVERIFY(cluster.SendResult(job.uid(), "late").ok());
    QCOMPARE(Reason(cluster.proxy.Fetch(job.name()).status()), std::string("JOB_CANCELLED"));
  }

  void Watch_EndsWithTheJob() {
    ServedCluster cluster;
    const Job job = cluster.proxy.Begin(Request());
    grpc::ClientContext context;
    rpc::SetTimeout(context, 15s);
    v1::WatchJobRequest request;
    request.set_name(job.name());
    const auto stream = cluster.proxy.stub->WatchJob(&context, request);
    Job seen;
    QVERIFY(stream->Read(&seen));
    QVERIFY(cluster.SendResult(job.uid(), "video").ok());
    while (stream->Read(&seen)) {
    }
    const grpc::Status status = stream->Finish();
    QVERIFY2(status.ok(), status.error_message().c_str());
    QCOMPARE(seen.state(), Job::SUCCEEDED);
  }

  void Everything_WorksWithOneDatabaseDead() {
    ServedCluster cluster;
    const Job job = cluster.proxy.Begin(Request());
    const auto sent = cluster.SendResult(job.uid(), "video");
    QVERIFY(sent.ok());
    const std::string first = sent->endpoint.node_id();
    const std::string second = first == "db-1" ? "db-2" : "db-1";
    QVERIFY(Eventually(
        [&] { return cluster.at(second).node->store().FindArtifact(job.uid(), "").ok(); }));
    cluster.Kill(first);
    QCOMPARE(cluster.proxy.Get(job.name())->state(), Job::SUCCEEDED);
    QCOMPARE(*cluster.proxy.Fetch(job.name()), std::string("video"));
    cluster.Forget(first);
    const auto next = cluster.proxy.Submit(Request());
    QVERIFY2(next.ok(), next.status().ToString().c_str());
    QCOMPARE(cluster.proxy.Get(next->name())->state(), Job::QUEUED);
    v1::ListJobsRequest list;
    QCOMPARE(cluster.proxy.Call(&v1::GenerationService::Stub::ListJobs, list)->jobs_size(), 2);
  }

  void Result_ExpiresUnfetched() {
    ServedCluster cluster(1);
    const Job job = cluster.proxy.Begin(Request());
    QVERIFY(cluster.SendResult(job.uid(), "video").ok());
    QVERIFY(Eventually([&] { return cluster.proxy.Get(job.name())->state() == Job::EXPIRED; }));
    QCOMPARE(Reason(cluster.proxy.Fetch(job.name()).status()), std::string("RESULT_EXPIRED"));
  }

  void Delete_CancelsAndForgets() {
    ServedCluster cluster;
    const Job job = cluster.proxy.Begin(Request());
    QVERIFY(cluster.proxy.Delete(job.name()).ok());
    QVERIFY(cluster.instance.WasCancelled(job.uid()));
    const auto gone = cluster.proxy.Get(job.name());
    QCOMPARE(gone.status().code(), absl::StatusCode::kNotFound);
    QCOMPARE(Reason(gone.status()), std::string("JOB_UNKNOWN"));
    QCOMPARE(cluster.proxy.service.jobs_in_flight(), 0);
  }

  void Names_ThatAreMalformedAreRefused() {
    Cluster cluster;
    Proxy proxy(cluster, "proxy-1");
    for (const char* name : {"", "jobs/", "jobs/x", "job/018f2b1c-0000-4000-8000-0123456789ab",
                             "018f2b1c-0000-4000-8000-0123456789ab"}) {
      QCOMPARE(proxy.Get(name).status().code(), absl::StatusCode::kInvalidArgument);
      QCOMPARE(proxy.Fetch(name).status().code(), absl::StatusCode::kInvalidArgument);
    }
    QCOMPARE(Reason(proxy.Get("jobs/018f2b1c-0000-4000-8000-0123456789ab").status()),
             std::string("JOB_UNKNOWN"));
  }

  void GetJobTrace_JoinsSpansAndNamesWhoIsAway() {
    ServedCluster cluster;
    const Job job = cluster.proxy.Begin(Request());
    v1::GetJobTraceRequest request;
    request.set_name(job.name());
    const auto trace = cluster.proxy.Call(&v1::GenerationService::Stub::GetJobTrace, request);
    QVERIFY(trace.ok());
    bool admitted = false;
    for (const v1::Span& span : trace->spans()) admitted = admitted || span.operation() == "admit";
    QVERIFY(admitted);
    // The instance and the databases of this test serve no telemetry.
    QCOMPARE(trace->unreachable_nodes_size(), 3);
    QCOMPARE(trace->unreachable_nodes(0), std::string("db-1"));
  }
};

}  // namespace onepiece::proxy

ONEPIECE_TEST(onepiece::proxy::ProxyServiceTest)
#include "proxy_service_test.moc"
