// An embedded cluster whose identities change between two runs: it was insecure, or it has changed
// to another CA.
#include "tests/e2e/cluster_fixture.h"
#include "tests/test_main.h"

namespace onepiece::e2e {

class SecuredTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void AnInsecureCluster_BecomesASecureOne_AndKnowsItsJobs() {
    const ClusterUnderTest cluster;
    QVERIFY(cluster.Up({"--insecure"}));
    QVERIFY(cluster.Status()["tls"].is_null());
    const std::string uid = Serve(cluster);
    QVERIFY(cluster.Down());
    QVERIFY(cluster.Up());
    QVERIFY(cluster.Status()["tls"].is_object());
    // Results live in memory, so its own is gone; the job is not.
    QCOMPARE(cluster.Get(uid).value("uid", ""), uid);
    Serve(cluster);
    QVERIFY(cluster.Down());
  }

  void AfterARotation_TheClusterStartsAgain() {
    const ClusterUnderTest cluster;
    QVERIFY(cluster.Up());
    for (const char* step : {"introduced", "overlap", "none"}) {
      const Outcome next = cluster.Run({"cert", "rotate", "--json"});
      QVERIFY2(next.exit_code == 0, next.err.c_str());
      QCOMPARE(next.Document().value("rotation", ""), std::string(step));
      QVERIFY(Eventually(std::chrono::seconds(30), [&] {
        return cluster.Run({"cert", "authority", "--json"}).Document()["waiting_for"].empty();
      }));
    }
    Serve(cluster);
    QVERIFY(cluster.Down());
    QVERIFY(cluster.Up());
    Serve(cluster);
    QVERIFY(cluster.Down());
  }

 private:
  /// Returns the UID of a job that succeeded.
  static std::string Serve(const ClusterUnderTest& cluster) {
    const std::string uid =
        cluster.Submit({"--prompt", "a red circle moving right", "--steps", "1"});
    const json end = cluster.Watch(uid);
    if (end.value("state", "") != "SUCCEEDED") QTest::qFail(end.dump().c_str(), __FILE__, __LINE__);
    return uid;
  }
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::SecuredTest)
#include "secured_test.moc"
