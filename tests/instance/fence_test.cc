#include "stages/instance/fence.h"

#include <QtTest>
#include <array>
#include <chrono>
#include <memory>

#include "cluster/base/clock.h"
#include "tests/test_main.h"

namespace onepiece::instance {

class FenceTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // Another branch may have failed, or an earlier attempt may have done the work of the join.
  void BranchesWaitOnlyWhileTheirJobIsOpen_data() {
    QTest::addColumn<int>("state");
    QTest::addColumn<bool>("is_settled");
    QTest::addColumn<quint64>("run");
    QTest::addColumn<bool>("waits");
    QTest::newRow("running") << int{v1::Job::RUNNING} << true << quint64{1} << true;
    QTest::newRow("an end that is only proposed")
        << int{v1::Job::FAILED} << false << quint64{1} << true;
    QTest::newRow("succeeded") << int{v1::Job::SUCCEEDED} << true << quint64{1} << false;
    QTest::newRow("failed") << int{v1::Job::FAILED} << true << quint64{1} << false;
    QTest::newRow("an earlier run ended") << int{v1::Job::FAILED} << true << quint64{0} << true;
  }
  void BranchesWaitOnlyWhileTheirJobIsOpen() {
    QFETCH(const int, state);
    QFETCH(const bool, is_settled);
    QFETCH(const quint64, run);
    base::ManualClock clock;
    runtime::RequestScheduler scheduler({}, std::make_unique<runtime::IndividualMode>(), clock);
    runtime::WorkItem branch;
    message::Header& header = branch.message.header;
    header.uid = base::Uid::GenerateRandom();
    header.run = 1;
    header.stage = "paint";
    header.from = "text";
    header.deadline = clock.Now() + std::chrono::minutes(1);
    v1::JobRecord record;
    record.mutable_job()->set_uid(header.uid.ToString());
    record.set_run(run);
    if (is_settled) {
      record.mutable_job()->set_state(static_cast<v1::Job::State>(state));
    } else {
      record.mutable_proposed()->set_state(static_cast<v1::Job::State>(state));
    }
    const std::array<std::string, 2> both = {"text", "image"};
    QVERIFY(*scheduler.Push(std::move(branch), both) == runtime::PushResult::kHeld);
    FenceBy(record, "node-1", scheduler);
    QTEST(scheduler.joins() == 1, "waits");
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::FenceTest)
#include "fence_test.moc"
