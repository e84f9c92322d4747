#include "stages/instance/work_intake.h"

#include <QtTest>
#include <algorithm>
#include <deque>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "tests/node/transport_world.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

constexpr auto kIntakeLimit = std::chrono::seconds(20);  // Only reached when a test fails.

/// A ring that a test fills by hand.
class FakeInbox final : public node::Inbox {
 public:
  grpc::Service* service() override { return nullptr; }
  absl::StatusOr<node::Received> Receive(base::MonotonicTime deadline) override {
    base::MutexLock lock(mutex_);
    base::SystemClock().WaitUntil(
        changed_, lock, {}, deadline,
        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || !ring_.empty(); });
    if (closed_) return absl::CancelledError("closed");
    if (ring_.empty()) return absl::DeadlineExceededError("empty");
    node::Received received{.message = std::move(ring_.front())};
    ring_.pop_front();
    return received;
  }
  void SetAdmission(Admission) override {}
  void SetDoor(const rpc::Door*) override {}
  void Shut() override {}
  void Close() override {
    const base::MutexLock lock(mutex_);
    closed_ = true;
    changed_.NotifyAll();
  }
  [[nodiscard]] node::RingStats stats() const override { return {}; }
  void Put(message::Message message) {
    const base::MutexLock lock(mutex_);
    ring_.push_back(std::move(message));
    changed_.NotifyAll();
  }
  std::size_t size() {
    const base::MutexLock lock(mutex_);
    return ring_.size();
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<message::Message> ring_ ABSL_GUARDED_BY(mutex_);
};

class NoEvents final : public runtime::WorkEvents {
  void Started(const runtime::WorkItem&) override {}
  void Progressed(const runtime::WorkItem&, int, int) override {}
  void Finished(runtime::FinishedWork) override {}
  void ModelLoaded(const std::string&, const std::string&, base::Duration) override {}
};

/// An instance of stage "paint", which joins "text" and "image". It computes nothing.
struct IntakeFixture {
  explicit IntakeFixture(runtime::JoinLimits joins, node::Inbox* real = nullptr)
      : ring(real != nullptr ? *real : inbox),
        scheduler({.max_queued = 100, .joins = joins}, std::make_unique<runtime::IndividualMode>(),
                  clock) {
    v1::RoutingTable table;
    table.set_epoch(1);
    v1::Workflow& workflow = *table.add_workflows();
    workflow.set_app_id("app");
    for (const char* stage : {"text", "image", "paint"}) workflow.add_stages()->set_stage(stage);
    workflow.mutable_stages(2)->add_after("text");
    workflow.mutable_stages(2)->add_after("image");
    view.SetRouting(std::make_shared<const node::Routing>(table));
    tasks.Assign({.stage = "paint", .plugin = "p", .models = {{"app", ""}}, .workers = 1});
  }
  void Put(const base::Uid& uid, const std::string& from) { inbox.Put(Branch(uid, from)); }
  message::Message Branch(const base::Uid& uid, const std::string& from) {
    message::Message message;
    message.header.uid = uid;
    message.header.app = "app";
    message.header.stage = "paint";
    message.header.from = from;
    message.header.deadline = clock.Now() + std::chrono::hours(1);
    return message;
  }
  std::size_t failures() {
    const base::MutexLock lock(mutex);
    return failures_;
  }

  base::Clock& clock = base::SystemClock();
  node::ClusterView view;
  FakeInbox inbox;
  node::Inbox& ring;  ///< `inbox`, or a real one.
  runtime::RequestScheduler scheduler;
  Drain drain{clock, std::chrono::seconds(30)};
  FormerSetFilter former{"i1", view};
  std::atomic<bool> leaving = false;
  base::Mutex mutex;
  std::size_t failures_ ABSL_GUARDED_BY(mutex) = 0;
  std::unique_ptr<JobReporter> reporter = std::make_unique<JobReporter>(
      [this](const v1::UpdateJobRequest& request) -> absl::StatusOr<v1::JobRecord> {
        const base::MutexLock lock(mutex);
        if (request.has_failed()) ++failures_;
        return v1::JobRecord();
      },
      [](const base::Uid&) {}, clock);
  JobUpdates updates{"i1", view, *reporter, leaving};
  runtime::ResultDeliver deliver{
      2, [](const runtime::FinishedWork&) { return std::string(); },
      [](runtime::FinishedWork) { return std::optional<runtime::FinishedWork>(); }, clock};
  NoEvents events;
  runtime::TaskManager tasks{
      [](const std::string&, const std::string&) -> absl::StatusOr<std::unique_ptr<sdk::Stage>> {
        return absl::UnavailableError("this instance computes nothing");
      },
      scheduler,
      events,
      [](const runtime::TaskStatus&) {},
      clock,
      0};
  WorkIntake intake{{view, ring, scheduler, deliver, tasks, drain, former, updates, clock}};
};

}  // namespace

class WorkIntakeTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // Branches of new jobs come first, more than there is room for. Those that the older jobs wait
  // for are behind them in the ring.
  void Pump_MoreJoinsThanRoom_CompletesTheOlderOnesAndFailsNone() {
    IntakeFixture f({.max_joins = 8});
    std::vector<base::Uid> jobs;
    for (int i = 0; i < 6; ++i) {
      jobs.push_back(base::Uid::GenerateRandom());
      f.Put(jobs.back(), "text");
    }
    for (const base::Uid& uid : jobs) f.Put(uid, "image");
    f.intake.Start();
    QTRY_COMPARE_WITH_TIMEOUT(f.scheduler.queued(), jobs.size(), 20000);
    QCOMPARE(f.scheduler.joins(), std::size_t{0});
    f.intake.Stop();
    f.reporter.reset();
    QCOMPARE(f.failures(), std::size_t{0});
  }

  // The ring holds what the limits do not allow, and nothing is lost meanwhile.
  void Pump_TheReserveIsUsedUp_WaitsUntilAJoinEnds() {
    IntakeFixture f({.max_joins = 2});
    std::vector<base::Uid> jobs;
    for (int i = 0; i < 4; ++i) {
      jobs.push_back(base::Uid::GenerateRandom());
      f.Put(jobs.back(), "text");
    }
    f.intake.Start();
    QTRY_COMPARE_WITH_TIMEOUT(f.scheduler.joins(), std::size_t{2}, 20000);
    QCOMPARE(f.inbox.size(), std::size_t{2});
    for (std::size_t i = 0; i < 2; ++i) f.scheduler.Cancel(jobs[i]);
    QTRY_COMPARE_WITH_TIMEOUT(f.inbox.size(), std::size_t{0}, 20000);
    QTRY_COMPARE_WITH_TIMEOUT(f.scheduler.joins(), std::size_t{2}, 20000);
    f.intake.Stop();
    f.reporter.reset();
    QCOMPARE(f.failures(), std::size_t{0});
  }

  // A diamond whose one side is slower. There is room for one large branch and a half at a time, so
  // branches that wait must not take it, and new joins must leave some for those that end joins.
  void Pump_LargeBranchesOfManyJobs_AllMeet() {
    const auto fabric = *fabric::Fabric::Open("shm://" + node::ClusterId());
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    node::Receiver receiver(*fabric, "i1", {.capacity_bytes = kMiB, .value_bytes = 6 * kMiB});
    IntakeFixture f({.max_large_bytes = 16 * kMiB}, receiver.inbox.get());
    f.intake.Start();
    node::Cluster senders;
    senders.Set({receiver.endpoint});
    const auto outbox = node::Outbox::Create(*fabric, senders.view(), {.node_id = "sender"});
    const auto send = [&](const base::Uid& uid, const std::string& from, std::size_t bytes,
                          base::Duration limit) {
      message::Message branch = f.Branch(uid, from);
      branch.artifacts = {message::BytesArtifact(from, "image/png", std::string(bytes, 'x'))};
      return Reason(outbox
                        ->Deliver(branch, node::Destination::Nodes({receiver.endpoint}),
                                  f.clock.Now() + limit)
                        .status());
    };
    std::vector<base::Uid> jobs;
    for (int i = 0; i < 3; ++i) jobs.push_back(base::Uid::GenerateRandom());
    for (std::size_t i = 0; i < 2; ++i) {
      QCOMPARE(send(jobs[i], "text", 4 * kMiB, kIntakeLimit), std::string());
      QTRY_COMPARE_WITH_TIMEOUT(f.scheduler.joins(), i + 1, 20000);
    }
    QCOMPARE(send(jobs[2], "text", 4 * kMiB, std::chrono::milliseconds(300)),
             std::string("RING_FULL"));
    for (std::size_t i = 0; i < 3; ++i) {
      if (i == 2) QCOMPARE(send(jobs[2], "text", 4 * kMiB, kIntakeLimit), std::string());
      if (i == 2) QTRY_COMPARE_WITH_TIMEOUT(f.scheduler.joins(), std::size_t{1}, 20000);
      QCOMPARE(send(jobs[i], "image", 4 * kMiB, kIntakeLimit), std::string());
      const auto joined = f.scheduler.Pop({}, f.clock.Now() + kIntakeLimit);
      QVERIFY(joined.has_value() && joined->message.header.uid == jobs[i]);
      QCOMPARE(joined->message.artifacts.size(), std::size_t{2});
      f.scheduler.Done("app", std::nullopt);
    }
    f.intake.Stop();
    receiver.server.Shutdown(base::Duration(0));
    f.reporter.reset();
    QCOMPARE(f.failures(), std::size_t{0});
  }

  void Admit_MoreThanMayWaitForOthers_IsRefusedAtOnce() {
    const auto fabric = *fabric::Fabric::Open("shm://" + node::ClusterId());
    constexpr std::size_t kMiB = std::size_t{1} << 20;
    node::Receiver receiver(*fabric, "i1", {.capacity_bytes = kMiB, .value_bytes = 16 * kMiB});
    IntakeFixture f({.max_large_bytes = 2 * kMiB}, receiver.inbox.get());
    node::Cluster senders;
    senders.Set({receiver.endpoint});
    const auto outbox = node::Outbox::Create(*fabric, senders.view(), {.node_id = "sender"});
    message::Message branch = f.Branch(base::Uid::GenerateRandom(), "text");
    branch.artifacts = {message::BytesArtifact("text", "", std::string(4 * kMiB, 'x'))};
    const auto sent = outbox->Deliver(branch, node::Destination::Nodes({receiver.endpoint}),
                                      f.clock.Now() + kIntakeLimit);
    QCOMPARE(Reason(sent.status()), std::string("JOIN_TOO_LARGE"));
    const std::string text = base::Message(sent.status());
    QVERIFY2(text.find(std::to_string(2 * kMiB)) != std::string::npos, text.c_str());
    receiver.server.Shutdown(base::Duration(0));
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::WorkIntakeTest)
#include "work_intake_test.moc"
