#include "stages/instance/job_updates.h"

#include <QtTest>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

constexpr auto kUpdatesLimit = std::chrono::seconds(20);  // Only reached when a test fails.

/// Updates of one instance "i1", whose routing has a workflow of "first" and "last".
struct UpdatesFixture {
  UpdatesFixture() {
    v1::RoutingTable table;
    table.set_epoch(3);
    v1::Workflow& workflow = *table.add_workflows();
    workflow.set_app_id("app");
    workflow.add_stages()->set_stage("first");
    workflow.add_stages()->set_stage("last");
    view.SetRouting(std::make_shared<const node::Routing>(table));
    v1::Endpoint self;
    self.set_node_id("i1");
    self.set_incarnation(5);
    view.SetSelf(self);
    header.uid = base::Uid::GenerateRandom();
    header.app = "app";
    header.stage = "last";
    header.from = "first";
    header.attempt = 2;
  }
  absl::StatusOr<v1::JobRecord> Note(const v1::UpdateJobRequest& request) {
    const base::MutexLock lock(mutex);
    requests.push_back(request);
    changed.NotifyAll();
    return v1::JobRecord();
  }
  /// The first request that the records were sent.
  v1::UpdateJobRequest Request() {
    base::MutexLock lock(mutex);
    const auto came = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return !requests.empty(); };
    return changed.WaitFor(lock, kUpdatesLimit, came) ? requests.front() : v1::UpdateJobRequest();
  }

  node::ClusterView view;
  message::Header header;
  std::atomic<bool> leaving = false;
  base::Mutex mutex;
  base::CondVar changed;
  std::vector<v1::UpdateJobRequest> requests ABSL_GUARDED_BY(mutex);
  JobReporter reporter{[this](const v1::UpdateJobRequest& request) { return Note(request); },
                       [](const base::Uid&) {}, base::SystemClock()};
  JobUpdates updates{"i1", view, reporter, leaving};
};

}  // namespace

class JobUpdatesTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Placed_NamesThisInstanceAsTheHolder() {
    UpdatesFixture f;
    f.updates.Placed(f.header);
    const v1::UpdateJobRequest request = f.Request();
    QCOMPARE(request.uid(), f.header.uid.ToString());
    QCOMPARE(request.placed_size(), 1);
    const v1::WorkHolder& holder = request.placed(0);
    QCOMPARE(holder.node_id(), std::string("i1"));
    QCOMPARE(holder.incarnation(), std::uint64_t{5});
    QCOMPARE(holder.stage(), std::string("last"));
    QCOMPARE(holder.stage_index(), 1);
    QCOMPARE(holder.from(), std::string("first"));
    QCOMPARE(holder.attempt(), std::uint32_t{2});
    QCOMPARE(holder.successors(), 1);  // The last stage hands on to a database.
    QCOMPARE(holder.routing_epoch(), std::uint64_t{3});
  }

  // This node's table is older, and need not name this instance yet.
  void Placed_ByANewerTable_KeepsItsEpoch() {
    UpdatesFixture f;
    f.header.routing_epoch = 8;
    f.updates.Placed(f.header);
    QCOMPARE(f.Request().placed(0).routing_epoch(), std::uint64_t{8});
  }

  void Fail_SaysWhatHappened_data() {
    QTest::addColumn<int>("code");
    QTest::addColumn<QString>("given");
    QTest::addColumn<bool>("leaving");
    QTest::addColumn<QString>("reason");  // Empty: the job counts as cancelled.
    const auto row = [](absl::StatusCode code) { return static_cast<int>(code); };
    QTest::newRow("with a reason")
        << row(absl::StatusCode::kInternal) << "BAD_PIXELS" << false << "BAD_PIXELS";
    QTest::newRow("without a reason")
        << row(absl::StatusCode::kInternal) << "" << false << "STAGE_FAILED";
    QTest::newRow("cancelled") << row(absl::StatusCode::kCancelled) << "" << false << "";
    QTest::newRow("stopped") << row(absl::StatusCode::kCancelled) << "" << true
                             << "INSTANCE_STOPPED";
  }
  void Fail_SaysWhatHappened() {
    QFETCH(int, code);
    QFETCH(QString, given);
    QFETCH(bool, leaving);
    QFETCH(QString, reason);
    UpdatesFixture f;
    f.leaving = leaving;
    const auto status_code = static_cast<absl::StatusCode>(code);
    f.header.run = 7;
    f.header.stage = "last";
    f.updates.Fail(f.header, given.isEmpty()
                                 ? absl::Status(status_code, "why")
                                 : base::MakeError(status_code, given.toStdString(), "why"));
    const v1::UpdateJobRequest request = f.Request();
    QCOMPARE(request.ended_by().run(), std::uint64_t{7});
    QCOMPARE(request.cancelled(), reason.isEmpty());
    QCOMPARE(request.failed().reason(), reason.toStdString());
    QCOMPARE(request.ended_by().attempt(), std::uint32_t{2});
    QCOMPARE(request.ended_by().from(), std::string("first"));
  }

  // A job that ends its instance must have said that it began, or it would go round.
  void Begun_OfASecondAttempt_WaitsUntilItIsRecorded() {
    UpdatesFixture f;
    message::Message left{.header = f.header, .parameters = {}, .artifacts = {}};
    message::Message right = left;
    right.header.from = "other";
    f.updates.Begun(f.header, std::vector{left, right});
    const base::MutexLock lock(f.mutex);
    std::set<std::string> begun;
    for (const v1::UpdateJobRequest& request : f.requests) {
      for (const v1::WorkHolder& holder : request.placed()) {
        if (holder.begun()) begun.insert(holder.from());
      }
    }
    QCOMPARE(begun, (std::set<std::string>{"first", "other"}));
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::JobUpdatesTest)
#include "job_updates_test.moc"
