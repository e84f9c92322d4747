// Artifacts and saved states that are larger than a ring, on a real cluster with rings of the
// default size.
#include <signal.h>

#include <algorithm>
#include <fstream>

#include "cluster/local/data_dir.h"
#include "tests/chaos/ledger_bytes.h"
#include "tests/e2e/cluster_fixture.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

constexpr char kLargeWorkflow[] =
    "app_id: large\n"
    "stages:\n"
    "  - {stage: large_fill, plugin: large}\n"
    "  - {stage: large_pass, plugin: large}\n"
    "parameters:\n"
    "  - {name: seed, type: INTEGER, default_value: \"0\", minimum: 0, maximum: 1000000}\n"
    "  - {name: mib, type: INTEGER, default_value: \"0\", minimum: 0, maximum: 2047}\n"
    "  - {name: seconds, type: NUMBER, default_value: \"0\", minimum: 0, maximum: 600}\n"
    "  - {name: state_mib, type: INTEGER, default_value: \"0\", minimum: 0, maximum: 2047}\n";
constexpr char kLargeCluster[] =
    "workflow_files: [large.yaml]\n"
    "databases: 1\n"
    "database_budget_bytes: 3221225472\n"
    "instances:\n"
    "  - {stage: large_fill}\n"
    "  - {stage: large_pass, count: 2}\n";

QStringList LargeJob(std::initializer_list<std::pair<QString, int>> parameters) {
  QStringList arguments = {"--app", "large", "--deadline", "300"};
  for (const auto& [name, value] : parameters)
    arguments << "--param" << QString("%1=%2").arg(name).arg(value);
  return arguments;
}

/// Whether a file holds the bytes of `seed`. Reads it piece by piece.
bool HoldsBytesOf(const std::string& path, std::uint64_t seed, std::size_t size) {
  std::ifstream file(path, std::ios::binary);
  ledger::Bytes expected(seed);
  std::string want(1 << 20, '\0'), got(want.size(), '\0');
  for (std::size_t at = 0; at < size; at += want.size()) {
    expected.Next(want);
    if (!file.read(got.data(), static_cast<std::streamsize>(got.size())) || got != want)
      return false;
  }
  return file.peek() == std::ifstream::traits_type::eof();
}

}  // namespace

class LargeMessagesTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    qputenv("ONEPIECE_PLUGIN_DIR", ONEPIECE_BINARY_DIR "/tests/plugins/large");
    std::ofstream(cluster_.Path("large.yaml")) << kLargeWorkflow;
    QVERIFY(cluster_.UpWith(kLargeCluster));
  }

  void LargeArtifact_GoesFromStageToStage_data() {
    QTest::addColumn<int>("mib");
    QTest::newRow("100 MiB") << 100;
    if (qEnvironmentVariableIsSet("ONEPIECE_LONG")) QTest::newRow("1 GiB") << 1024;
  }
  void LargeArtifact_GoesFromStageToStage() {
    QFETCH(int, mib);
    const std::string out = cluster_.Path("out");
    const Outcome done =
        cluster_.Run(QStringList{"submit", "--wait", "--json", "-o", QString::fromStdString(out)} +
                         LargeJob({{"seed", mib}, {"mib", mib}}),
                     300);
    QVERIFY2(done.exit_code == 0, (done.out + done.err).c_str());
    QVERIFY(
        HoldsBytesOf(out, static_cast<std::uint64_t>(mib), static_cast<std::size_t>(mib) << 20));
  }

  // The state of a job that goes on elsewhere does not fit into a ring either.
  void StoppedInstance_HandsALargeStateOver() {
    // One job for each of the two instances.
    const QStringList job =
        LargeJob({{"seed", 5}, {"mib", 1}, {"seconds", 20}, {"state_mib", 100}});
    const std::vector<std::string> uids = {cluster_.Submit(job), cluster_.Submit(job)};
    QVERIFY(Eventually(std::chrono::seconds(60), [&] {
      return std::ranges::all_of(uids, [&](const std::string& uid) {
        const json state = cluster_.Get(uid);
        return state.value("stage", "") == "large_pass" && state.value("step", 0) > 2;
      });
    }));
    const int pid = cluster_.PidOf("instance-large_pass-1");
    QVERIFY(pid > 0);
    QCOMPARE(kill(pid, SIGTERM), 0);
    for (const std::string& uid : uids) {
      const Outcome watched = cluster_.Run({"watch", QString::fromStdString(uid), "--json"}, 300);
      const json state = cluster_.Get(uid);
      QVERIFY2(state.value("state", "") == "SUCCEEDED", (state.dump() + watched.err).c_str());
    }
    const std::string log = local::ReadFile(cluster_.Path("data/logs/instance-large_pass-1.log"));
    QVERIFY2(log.find("goes on elsewhere") != std::string::npos, "no job was handed over");
  }
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::LargeMessagesTest)
#include "large_messages_test.moc"
