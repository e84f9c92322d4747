// A proxy that was started with --read-only.
#include "tests/read_only.h"

#include <unistd.h>

#include <QtTest>

#include "cluster/fabric/fabric.h"
#include "cluster/proxy/proxy_service.h"
#include "cluster/rpc/server.h"
#include "onepiece/v1/generation.pb.h"
#include "tests/test_main.h"

namespace onepiece::proxy {

class ReadOnlyTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void EveryChangeIsRefused() {
    const auto fabric = fabric::Fabric::Open("shm://read-only-" + std::to_string(getpid()));
    QVERIFY(fabric.ok());
    node::ClusterView view;
    view.SetCluster("test", "secret");
    node::JobRecords records(view);
    const auto outbox = node::Outbox::Create(**fabric, view, {.node_id = "p"});
    telemetry::Metrics metrics("proxy", "p");
    telemetry::Spans spans("p");
    ProxyService service(view, {.workflow_set = "set", .read_only = true}, records, *outbox,
                         metrics, spans);
    rpc::Server server({});
    server.AddService(service);
    QVERIFY(server.Start().ok());
    const auto channel = rpc::MakeChannel(server.address());
    const auto& file = *v1::SubmitJobRequest::descriptor()->file();
    QCOMPARE(file.service_count(), 1);
    QCOMPARE(
        testing::CheckReadOnly(channel, *file.service(0),
                               {"SubmitJob", "CancelJob", "AcknowledgeResult", "DeleteJob"},
                               {"GetJob", "ListJobs", "WatchJob", "FetchResult", "GetJobTrace"}),
        std::string());
    // validate_only changes nothing, so it is not refused.
    v1::SubmitJobRequest check;
    check.set_validate_only(true);
    v1::GenerationService::Stub stub(channel);
    const auto answer =
        rpc::Call(stub, &v1::GenerationService::Stub::SubmitJob, check, std::chrono::seconds(20));
    QCOMPARE(base::GetReason(answer.status()).reason, std::string("NOT_REGISTERED"));
    service.Stop();
    server.Shutdown(base::Duration::zero());
  }
};

}  // namespace onepiece::proxy

ONEPIECE_TEST(onepiece::proxy::ReadOnlyTest)
#include "read_only_test.moc"
