#include "stages/instance/work_delivery.h"

#include <QtTest>
#include <deque>
#include <vector>

#include "cluster/base/status.h"
#include "stages/runtime/stage_runner.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

using std::chrono::seconds;

struct FakeOpen final : node::OpenDelivery {};

/// Answers as a test says, and keeps what it was given.
class FakeOutbox final : public node::Outbox {
 public:
  absl::StatusOr<node::Delivered> Deliver(const message::Message&, const node::Destination&,
                                          base::MonotonicTime) override {
    return absl::InternalError("the delivery is to go in turns");
  }
  absl::StatusOr<node::Delivered> DeliverInTurns(
      const message::Message& message, const node::Destination& target, base::MonotonicTime,
      std::shared_ptr<node::OpenDelivery>& open) override {
    sent.push_back(message.header);
    given.push_back(open);
    patience.push_back(target.patience);
    open = open_next ? std::make_shared<FakeOpen>() : nullptr;
    if (open != nullptr) return base::MakeError(absl::StatusCode::kUnavailable, "OUTCOME_OPEN", "");
    node::Delivered delivered{.routing_epoch = 7};
    delivered.endpoint.set_node_id("taker");
    return delivered;
  }
  void Close() override {}
  [[nodiscard]] node::OutboxCounters counters() const override { return {}; }

  bool open_next = false;
  std::vector<message::Header> sent;
  std::vector<std::shared_ptr<node::OpenDelivery>> given;
  std::vector<base::Duration> patience;
};

/// An instance "i1" of stage "make" of two applications. Application "a" goes on to "show", "b" to
/// "left" and "right", which meet at "join".
struct DeliveryFixture {
  DeliveryFixture() {
    settler->Start();
    v1::RoutingTable table;
    table.set_epoch(3);
    const auto add = [&](const std::string& app, const std::string& stage,
                         const std::vector<std::string>& after) {
      if (table.workflows_size() == 0 || table.workflows().rbegin()->app_id() != app)
        table.add_workflows()->set_app_id(app);
      v1::StageSpec& spec = *table.mutable_workflows()->rbegin()->add_stages();
      spec.set_stage(stage);
      for (const std::string& before : after) spec.add_after(before);
      v1::Route& route = *table.add_routes();
      route.set_app_id(app);
      route.set_stage(stage);
      for (const char* id : {"j1", "j2"}) route.add_instances()->set_node_id(id);
    };
    add("a", "make", {});
    add("a", "show", {"make"});
    add("b", "make", {});
    add("b", "left", {"make"});
    add("b", "right", {"make"});
    add("b", "join", {"left", "right"});
    for (const char* id : {"db1", "db2"}) table.add_databases()->set_node_id(id);
    table.add_alive()->set_node_id("p1");
    v1::Endpoint self;
    self.set_node_id("i1");
    view.SetSelf(self);
    view.SetRouting(std::make_shared<const node::Routing>(table));
  }
  /// The reporter's last answers reach the settler.
  ~DeliveryFixture() { reporter.reset(); }
  DeliveryFixture(const DeliveryFixture&) = delete;
  DeliveryFixture& operator=(const DeliveryFixture&) = delete;
  /// While `hold` is true, no update is answered.
  void HoldUpdates(bool hold) {
    const base::MutexLock lock(mutex);
    held = hold;
    changed.NotifyAll();
  }
  /// Outputs of a stage for the next one.
  static runtime::FinishedWork Made(const std::string& app, const std::string& stage) {
    runtime::FinishedWork work{
        .item = {}, .timing = {}, .outputs = std::vector<message::Artifact>{}};
    message::Header& header = work.item.message.header;
    header.uid = base::Uid::GenerateRandom();
    header.app = app;
    header.stage = stage;
    header.deadline = base::SystemClock().Now() + seconds(60);
    return work;
  }

  base::Clock& clock = base::SystemClock();
  node::ClusterView view;
  FakeOutbox outbox;
  std::unique_ptr<fabric::Fabric> fabric =
      *fabric::Fabric::Open("shm://" + base::Uid::GenerateRandom().ToString().substr(0, 12));
  values::ValuePeers values{*fabric, "i1"};
  node::JobRecords records{view};
  runtime::RequestScheduler scheduler{{}, std::make_unique<runtime::IndividualMode>(), clock};
  Drain drain{clock, seconds(30)};
  FormerSetFilter former{"i1", view};
  std::atomic<bool> leaving = false;
  base::Mutex mutex;
  base::CondVar changed;
  bool held ABSL_GUARDED_BY(mutex) = false;
  std::vector<v1::UpdateJobRequest> updates_made ABSL_GUARDED_BY(mutex);
  std::unique_ptr<JobReporter> reporter = std::make_unique<JobReporter>(
      [this](const v1::UpdateJobRequest& request) -> absl::StatusOr<v1::JobRecord> {
        base::MutexLock lock(mutex);
        changed.Wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return !held; });
        updates_made.push_back(request);
        return v1::JobRecord();
      },
      [](const base::Uid&) {}, clock);
  JobUpdates updates{"i1", view, *reporter, leaving};
  telemetry::Spans spans{"i1"};
  node::KeptWork kept{view, {}};
  base::Mutex settled_mutex;
  std::vector<v1::WorkSettled> settled ABSL_GUARDED_BY(settled_mutex);
  std::unique_ptr<node::Settler> settler = std::make_unique<node::Settler>(
      view, [this](const v1::Endpoint&, const v1::SettleWorkRequest& request) {
        const base::MutexLock lock(settled_mutex);
        settled.insert(settled.end(), request.works().begin(), request.works().end());
        return absl::OkStatus();
      });
  WorkDelivery delivery{"i1",
                        {view, outbox, values, records, scheduler, drain, former, updates, kept,
                         *settler, spans, clock, leaving},
                        [](const std::string&, const std::string&) { return true; }};
};

}  // namespace

class WorkDeliveryTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void DestinationOf_TellsApartWhatMayBeStuckAlone() {
    DeliveryFixture f;
    const auto of = [&](const runtime::FinishedWork& work) {
      return f.delivery.DestinationOf(work);
    };
    QCOMPARE(of(f.Made("a", "make")), of(f.Made("a", "make")));
    QVERIFY(of(f.Made("a", "make")) != of(f.Made("b", "make")));
    // Results go to the database of the job, and branches to the instance where the job meets.
    for (const char* const stage : {"show", "left"}) {
      const std::string app = stage == std::string("show") ? "a" : "b";
      std::set<std::string> places;
      for (int i = 0; i < 50; ++i) places.insert(of(f.Made(app, stage)));
      QCOMPARE(places.size(), std::size_t{2});
    }
    // Work that belongs elsewhere goes to its own stage, and a failure to nobody.
    runtime::FinishedWork wrong = f.Made("a", "make");
    wrong.outputs = runtime::WrongStage();
    QVERIFY(of(wrong) != of(f.Made("a", "make")));
    wrong.outputs = absl::InternalError("broken");
    QVERIFY(of(wrong).empty());
  }

  // The message may be somewhere, so nothing else may happen to the work until the outbox knows.
  void Deliver_OutcomeOpen_GoesOnWithTheSameSend() {
    DeliveryFixture f;
    f.outbox.open_next = true;
    auto again = f.delivery.Deliver(f.Made("b", "make"));
    QVERIFY(again.has_value());
    QCOMPARE(f.outbox.sent.size(), std::size_t{2});  // One for each successor.
    QVERIFY(f.outbox.given[0] == nullptr && f.outbox.given[1] == nullptr);
    QCOMPARE(again->open.size(), std::size_t{2});
    const std::map<std::string, std::shared_ptr<void>> open = again->open;
    f.outbox.open_next = false;
    QVERIFY(!f.delivery.Deliver(*std::move(again)).has_value());
    QCOMPARE(f.outbox.sent.size(), std::size_t{4});
    for (int i : {2, 3}) {
      const message::Header& header = f.outbox.sent[static_cast<std::size_t>(i)];
      QVERIFY(f.outbox.given[static_cast<std::size_t>(i)] == open.at("make>" + header.stage));
      // A send that is only asked for again does not take a whole turn.
      QVERIFY(f.outbox.patience[static_cast<std::size_t>(i)] < f.outbox.patience[0]);
    }
    f.reporter.reset();
    const base::MutexLock lock(f.mutex);
    QCOMPARE(f.updates_made.size(), std::size_t{1});
    QCOMPARE(f.updates_made[0].placed_size(), 2);
    QCOMPARE(f.updates_made[0].placed(0).routing_epoch(), std::uint64_t{7});
  }

  // What goes on is kept here, and the one who kept the inputs is told that nobody needs them.
  void Deliver_HandedOn_IsKeptHereAndNoLongerBefore() {
    DeliveryFixture f;
    runtime::FinishedWork work = f.Made("b", "make");
    work.item.message.header.keeper = "p1";
    work.item.message.header.deaths = 1;
    QVERIFY(!f.delivery.Deliver(work).has_value());
    QCOMPARE(f.outbox.sent.size(), std::size_t{2});
    for (const message::Header& header : f.outbox.sent) {
      QCOMPARE(header.keeper, std::string("i1"));
      QCOMPARE(header.deaths, 0u);  // The next stage has ended nobody.
    }
    QCOMPARE(f.kept.items(), std::size_t{2});
    f.reporter.reset();
    f.settler->Close();
    const base::MutexLock lock(f.settled_mutex);
    QCOMPARE(f.settled.size(), std::size_t{1});
    QCOMPARE(f.settled[0].stage(), std::string("make"));
    QVERIFY(!f.settled[0].has_moved_to());
  }

  // If this instance dies before the record names the next holder, the keeper must have the inputs.
  void Deliver_HandedOn_ItsKeepersHearItWhenTheRecordSaysSo() {
    DeliveryFixture f;
    f.HoldUpdates(true);
    runtime::FinishedWork work = f.Made("b", "make");
    for (const char* const from : {"left", "right"}) {
      message::Message& part = work.item.parts.emplace_back();
      part.header = work.item.message.header;
      part.header.from = from;
      part.header.keeper = "p1";
    }
    QVERIFY(!f.delivery.Deliver(work).has_value());
    QCOMPARE(f.outbox.sent.size(), std::size_t{2});
    f.settler->Close();  // It tells all that it has to.
    {
      const base::MutexLock lock(f.settled_mutex);
      QVERIFY(f.settled.empty());
    }
    f.HoldUpdates(false);
    f.reporter.reset();
    QVERIFY(f.settler->TellAll());
    const base::MutexLock lock(f.settled_mutex);
    QCOMPARE(f.settled.size(), std::size_t{2});
    QCOMPARE(f.settled[0].from(), std::string("left"));
  }

  void Deliver_PassedOn_ItsKeeperLearnsWhoHasIt() {
    DeliveryFixture f;
    runtime::FinishedWork work = f.Made("a", "make");
    work.item.message.header.keeper = "p1";
    work.outputs = runtime::WrongStage();
    QVERIFY(!f.delivery.Deliver(work).has_value());
    QCOMPARE(f.outbox.sent.at(0).keeper, std::string("p1"));
    QCOMPARE(f.kept.items(), std::size_t{0});
    f.settler->Close();
    const base::MutexLock lock(f.settled_mutex);
    QCOMPARE(f.settled.size(), std::size_t{1});
    QCOMPARE(f.settled[0].attempt(), 0u);
    QCOMPARE(f.settled[0].moved_to().node_id(), std::string("taker"));
  }

  // Until a database knows of the failure, this instance may die and take the word with it.
  void Deliver_OfWorkThatFailed_SettlesNothing() {
    DeliveryFixture f;
    runtime::FinishedWork work = f.Made("a", "make");
    work.item.message.header.keeper = "p1";
    work.outputs = absl::InternalError("broken");
    QVERIFY(!f.delivery.Deliver(std::move(work)).has_value());
    f.settler->Close();
    const base::MutexLock lock(f.settled_mutex);
    QVERIFY(f.settled.empty());
  }

  // It was taken for dead, and its work is done again elsewhere.
  void Deliver_Fenced_SaysNothing() {
    DeliveryFixture f;
    for (const bool failed : {false, true}) {
      runtime::FinishedWork work = f.Made("a", "make");
      const message::Header& header = work.item.message.header;
      QVERIFY(f.scheduler.Push(work.item).ok());
      f.scheduler.Fence(header, 1);
      if (failed) work.outputs = absl::CancelledError("fenced");
      QVERIFY(!f.delivery.Deliver(work).has_value());
    }
    QVERIFY(f.outbox.sent.empty());
    f.reporter.reset();
    const base::MutexLock lock(f.mutex);
    QVERIFY(f.updates_made.empty());
  }

  void Deliver_OutcomeOpen_TheWorkDoesNotStayHere() {
    DeliveryFixture f;
    runtime::FinishedWork work = f.Made("a", "make");
    work.outputs = runtime::WrongStage();
    f.outbox.open_next = true;
    auto again = f.delivery.Deliver(std::move(work));
    QVERIFY(again.has_value());
    // The others are gone, and this instance could compute the work: but so may the one that was
    // sent it.
    v1::RoutingTable table = f.view.routing()->table();
    table.set_epoch(4);
    for (v1::Route& route : *table.mutable_routes()) route.clear_instances();
    f.view.SetRouting(std::make_shared<const node::Routing>(table));
    f.drain.Begin(4);
    again = f.delivery.Deliver(*std::move(again));
    QVERIFY(again.has_value());
    QCOMPARE(f.scheduler.queued(), std::size_t{0});
    // Once nothing is open any more it stays.
    again->open.clear();
    QVERIFY(!f.delivery.Deliver(*std::move(again)).has_value());
    QCOMPARE(f.scheduler.queued(), std::size_t{1});
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::WorkDeliveryTest)
#include "work_delivery_test.moc"
