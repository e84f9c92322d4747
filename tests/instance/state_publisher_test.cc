#include "stages/instance/state_publisher.h"

#include <QtTest>
#include <vector>

#include "cluster/base/status.h"
#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

/// A publisher whose statuses the test reads.
struct PublisherFixture {
  void RouteSet(const std::string& workflow_set) {
    v1::RoutingTable table;
    table.set_epoch(1);
    table.set_workflow_set(workflow_set);
    view.SetRouting(std::make_shared<const node::Routing>(table));
  }

  base::ManualClock clock;
  node::ClusterView view;
  Drain drain{clock, std::chrono::seconds(30)};
  std::atomic<bool> leaving = false;
  std::vector<node::NodeStatus> told;
  StatePublisher publisher{"set-1", view, drain, leaving,
                           [this](node::NodeStatus status) { told.push_back(status); }};
};

runtime::TaskStatus Serving() {
  return {.state = runtime::TaskState::kServing, .epoch = 7, .apps = {"app"}, .error = {}};
}

}  // namespace

class StatePublisherTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Serving_IsReadyOnlyWithTheRoutingOfItsSet() {
    PublisherFixture f;
    f.publisher.StatusChanged(Serving());
    QCOMPARE(f.told.back().state, v1::Node::STARTING);
    QCOMPARE(f.told.back().detail, std::string("waits for the routing of workflow set set-1"));
    f.RouteSet("set-2");
    f.publisher.Publish();
    QCOMPARE(f.told.back().state, v1::Node::STARTING);
    f.RouteSet("set-1");
    f.publisher.Publish();
    QCOMPARE(f.told.back().state, v1::Node::READY);
    QCOMPARE(f.told.back().served_apps, std::vector<std::string>{"app"});
    QCOMPARE(f.told.back().assignment_epoch, std::uint64_t{7});
  }

  void LoadingFailed_IsSaid() {
    PublisherFixture f;
    f.publisher.StatusChanged({.state = runtime::TaskState::kFailed,
                               .epoch = 3,
                               .apps = {},
                               .error = absl::NotFoundError("no file")});
    QVERIFY(f.told.back().load_failed);
    QCOMPARE(f.told.back().detail, std::string("loading failed: no file"));
  }

  void Drained_NamesTheDrainingAssignment() {
    PublisherFixture f;
    f.RouteSet("set-1");
    f.publisher.StatusChanged(Serving());
    f.drain.Begin(9);
    f.drain.Look(0, true);
    f.drain.Look(0, true);
    f.publisher.Publish();
    QVERIFY(f.told.back().drained);
    QCOMPARE(f.told.back().assignment_epoch, std::uint64_t{9});
  }

  void LeavingASet_IsNeitherReadyNorDrained() {
    PublisherFixture f;
    f.RouteSet("set-1");
    f.publisher.StatusChanged(Serving());
    f.drain.Begin(9);
    f.drain.Look(0, true);
    f.drain.Look(0, true);
    f.publisher.SetLeavingSet(true);
    f.publisher.Publish();
    QCOMPARE(f.told.back().state, v1::Node::STARTING);
    QVERIFY(!f.told.back().drained);
    QCOMPARE(f.told.back().detail, std::string("leaves workflow set set-1"));
    f.publisher.SetWorkflowSet("set-2");
    f.publisher.SetLeavingSet(false);
    QCOMPARE(f.publisher.workflow_set(), std::string("set-2"));
  }

  void Leaving_IsTheLastThatIsTold() {
    PublisherFixture f;
    f.RouteSet("set-1");
    f.publisher.StatusChanged(Serving());
    f.leaving = true;
    f.publisher.PublishLeaving();
    QCOMPARE(f.told.back().detail, std::string("leaving"));
    QCOMPARE(f.told.back().state, v1::Node::STARTING);
    QCOMPARE(f.told.back().assignment_epoch, std::uint64_t{7});
    const std::size_t before = f.told.size();
    f.publisher.StatusChanged({});
    f.publisher.Publish();
    QCOMPARE(f.told.size(), before);
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::StatePublisherTest)
#include "state_publisher_test.moc"
