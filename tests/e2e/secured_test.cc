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

  void AFullTenant_IsRefused_UntilItDeletes() {
    const ClusterUnderTest cluster;
    QVERIFY(cluster.Up());
    const QString folder = QString::fromStdString(cluster.Path("ci"));
    QCOMPARE(cluster
                 .Run({"token", "create", "--name", "ci", "--tenant", "films", "--scope", "submit",
                       "--quota", "bytes=1K"})
                 .exit_code,
             0);
    QCOMPARE(testing::RunProgram(
                 ONEPIECE_BINARY_DIR "/bin/onepiece",
                 {"cert", "create-client", "ci", "--tenant", "films", "--scope",
                  "submit,read-own,cancel-own", "--ca-dir",
                  QString::fromStdString(cluster.Path("data/identity")), "--out", folder})
                 .exit_code,
             0);
    const QStringList as_ci = {"--identity", folder, "--json"};
    const QStringList submit =
        QStringList{"submit", "--prompt", "a red circle moving right", "--steps", "1"} + as_ci;
    const auto submitted = [&] { return cluster.Run(submit + QStringList{"--wait"}); };
    QVERIFY(Eventually(std::chrono::seconds(20), [&] { return submitted().exit_code == 0; }));
    QVERIFY(
        Eventually(std::chrono::seconds(20), [&] { return cluster.Run(submit).exit_code != 0; }));
    const Outcome full = cluster.Run(submit);
    QVERIFY2(full.Says("QUOTA_EXCEEDED") && full.Says("stored_bytes"), full.err.c_str());
    // Others have room.
    Serve(cluster);
    const json listed = cluster.Run(QStringList{"jobs"} + as_ci).Document();
    QVERIFY(!listed["jobs"].empty());
    for (const json& job : listed["jobs"]) {
      const QString uid = QString::fromStdString(job.value("uid", ""));
      QCOMPARE(cluster.Run(QStringList{"delete", uid} + as_ci).exit_code, 0);
    }
    // The other database hears of it a moment later.
    QVERIFY(Eventually(std::chrono::seconds(20), [&] { return submitted().exit_code == 0; }));
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
