// Cancelling a job while its databases have not agreed on the end.
#include <QtTest>
#include <thread>

#include "tests/proxy/plain_database.h"
#include "tests/test_main.h"

namespace onepiece::proxy {
namespace {

struct SettlingCluster : Cluster {
  SettlingCluster() { TakePlace(*this, {&database}); }
  absl::StatusOr<Job> Cancel(const Job& job) {
    v1::CancelJobRequest request;
    request.set_name(job.name());
    return proxy.Call(&v1::GenerationService::Stub::CancelJob, request);
  }
  /// Returns once the proxy has looked again and found the end proposed.
  bool IsAwaited(const Job& job) {
    if (!Eventually([&] { return database.IsEnding(job.uid()); })) return false;
    const int before = database.gets();
    return Eventually([&] { return database.gets() > before + 1; });
  }

  PlainDatabase database{{}, /*settles=*/true};
  FakeInstance instance{*this};
  Proxy proxy{*this, "proxy-1"};
};

}  // namespace

class CancelTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // A job whose work was dropped for an end that nobody knows any more would wait for its deadline.
  void Cancel_DropsWorkOnlyForAnEnd_AndProposesALostEndAgain() {
    SettlingCluster cluster;
    const Job job = cluster.proxy.Begin(Request());
    absl::StatusOr<Job> cancelled;
    std::jthread client([&] { cancelled = cluster.Cancel(job); });
    QVERIFY(cluster.IsAwaited(job));
    QVERIFY(!cluster.instance.WasCancelled(job.uid()));
    cluster.database.Restart(job.uid());
    QVERIFY(cluster.IsAwaited(job));
    QVERIFY(!cluster.instance.WasCancelled(job.uid()));
    cluster.database.Confirm(job.uid());
    client.join();
    QVERIFY2(cancelled.ok(), cancelled.status().ToString().c_str());
    QCOMPARE(cancelled->state(), Job::CANCELLED);
    QVERIFY(cluster.instance.WasCancelled(job.uid()));
  }
};

}  // namespace onepiece::proxy

ONEPIECE_TEST(onepiece::proxy::CancelTest)
#include "cancel_test.moc"
