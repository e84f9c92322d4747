// The workers of a TaskManager: one for each device, and what becomes of a job whose worker dies.
#include <algorithm>
#include <set>

#include "stages/runtime/stage_runner.h"
#include "tests/runtime/tasks_fixture.h"
#include "tests/test_main.h"

namespace onepiece::runtime {

class WorkersTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Run_WhoseWorkerDied_IsRunAgain_ButNotForEver_data() {
    QTest::addColumn<int>("deaths");
    QTest::addColumn<QString>("reason");
    QTest::newRow("once") << 1 << "";
    QTest::newRow("twice") << 2 << "";
    QTest::newRow("always") << 3 << "QUARANTINED";
  }
  void Run_WhoseWorkerDied_IsRunAgain_ButNotForEver() {
    QFETCH(int, deaths);
    QFETCH(QString, reason);
    TasksFixture f;
    int runs = 0;
    f.script.run = [&](sdk::StageContext&) -> absl::StatusOr<std::vector<message::Artifact>> {
      if (++runs <= deaths)
        return base::MakeError(absl::StatusCode::kUnavailable, kWorkerLost, "signal 9");
      return std::vector{message::BytesArtifact("out", "", "x")};
    };
    f.manager.Assign(Echo());
    (void)f.scheduler.Push(f.Item());
    const FinishedWork work = f.events.Next();
    QCOMPARE(base::GetReason(work.outputs.status()).reason, reason.toStdString());
    QCOMPARE(work.item.message.header.deaths, static_cast<std::uint32_t>(deaths));
    QCOMPARE(runs, std::min(deaths + 1, 3));
    QCOMPARE(f.events.started.load(), 1);
  }

  void Devices_HaveAWorkerEach() {
    TasksFixture f;
    base::Mutex mutex;
    std::multiset<std::string> devices;
    f.script.load = [&](const sdk::LoadOptions& load) {
      const base::MutexLock lock(mutex);
      devices.insert(load.device);
      return absl::OkStatus();
    };
    StageAssignment assignment = Echo("p", 2);
    assignment.devices = {"cpu:0", "cpu:1"};
    f.manager.Assign(assignment);
    QVERIFY(f.WaitFor(TaskState::kServing));
    QCOMPARE(devices, (std::multiset<std::string>{"cpu:0", "cpu:1"}));
    assignment.devices = {"cpu:1", "cpu:2"};
    assignment.epoch = 1;
    f.manager.Assign(assignment);
    QVERIFY(f.WaitFor(TaskState::kServing, 1));
    QCOMPARE(devices, (std::multiset<std::string>{"cpu:0", "cpu:1", "cpu:1", "cpu:2"}));
  }
};

}  // namespace onepiece::runtime

ONEPIECE_TEST(onepiece::runtime::WorkersTest)
#include "workers_test.moc"
