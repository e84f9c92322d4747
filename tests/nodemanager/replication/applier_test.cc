#include "nodemanager/replication/applier.h"

#include <QtTest>
#include <future>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "tests/eventually.h"
#include "tests/nodemanager/replication/hold.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using testing::Eventually;
constexpr std::uint32_t kVersion = kCommandVersion;
const base::Duration kLimit = base::Scaled(std::chrono::seconds(30));

using Result = absl::StatusOr<v1::CommandResult>;

std::shared_ptr<LogRequest> MakeRequest(std::function<void(Result)> answer) {
  auto request = std::make_shared<LogRequest>();
  request->answer = std::move(answer);
  return request;
}

// A command that makes `name` a node.
Applier::Task TaskAt(std::uint64_t slot, const std::string& name,
                     std::uint32_t version = kVersion) {
  Applier::Task task;
  task.chosen.slot = paxos::Slot{slot};
  task.chosen.entry.kind = paxos::LogEntry::Kind::kCommand;
  task.chosen.entry.version = version;
  task.chosen.entry.payload = std::make_shared<const std::string>(
      base::CanonicalBytes(RegisterCommand(MakeNode(name, v1::PROXY))));
  return task;
}

Applier::Task NoopAt(std::uint64_t slot) {
  Applier::Task task;
  task.chosen.slot = paxos::Slot{slot};
  return task;
}

std::vector<Applier::Task> One(Applier::Task task) {
  std::vector<Applier::Task> tasks;
  tasks.push_back(std::move(task));
  return tasks;
}

// An Applier, and what it said.
class FedApplier {
 public:
  FedApplier() { applier.Start(); }
  std::atomic<int> wakes{0};
  Applier applier{kVersion, [this] { ++wakes; }};

  [[nodiscard]] bool Knows(const std::string& node) const {
    bool known = false;
    applier.Read(
        [&](const StateMachine& state, paxos::Slot) { known = state.nodes().contains(node); });
    return known;
  }
  [[nodiscard]] bool Reaches(std::uint64_t slot) const {
    return applier.Await(paxos::Slot{slot}, kLimit);
  }
};

}  // namespace

class ApplierTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Entries_AreAppliedOnceAndInOrder() {
    FedApplier f;
    std::vector<Applier::Task> tasks;
    for (std::uint64_t slot = 1; slot <= 300; ++slot)
      tasks.push_back(TaskAt(slot, absl::StrCat("n", slot)));
    f.applier.Push(std::move(tasks));
    QVERIFY(f.Reaches(300));
    std::uint64_t commands = 0;
    f.applier.Read([&](const StateMachine& state, paxos::Slot slot) {
      QCOMPARE(slot.value, 300u);
      commands = state.applied_index();
    });
    QCOMPARE(commands, 300u);
    // A replica that was made anew hands out old slots again.
    f.applier.Push(One(TaskAt(300, "again")));
    f.applier.Push(One(NoopAt(301)));
    QVERIFY(f.Reaches(301));
    QVERIFY(f.Knows("n300") && !f.Knows("again"));
  }

  void Requests_AreAnsweredAfterTheirEntryIsApplied() {
    FedApplier f;
    std::promise<bool> known;
    Applier::Task task = TaskAt(1, "p");
    task.requests.push_back(
        MakeRequest([&](Result result) { known.set_value(result.ok() && f.Knows("p")); }));
    f.applier.Push(One(std::move(task)));
    QVERIFY(known.get_future().get());
  }

  void Readers_DoNotHoldUpTheDriver() {
    FedApplier f;
    {
      const Hold hold(f.applier);
      f.applier.Push(One(TaskAt(1, "p")));
      QVERIFY(!f.applier.WakeAt(paxos::Slot{1}));
      QCOMPARE(f.applier.applied().value, 0u);
      QVERIFY(!f.applier.Await(paxos::Slot{1}, std::chrono::milliseconds(1)));
      f.applier.AskForState();
      QVERIFY(!f.applier.TakeReport().state);
    }
    QVERIFY(f.Reaches(1));
    QVERIFY(Eventually(kLimit, [&] { return f.wakes > 0; }));
    QVERIFY(f.applier.WakeAt(paxos::Slot{1}));
  }

  void Backlog_IsToldAndItsEndToo() {
    FedApplier f;
    {
      const Hold hold(f.applier);
      for (std::uint64_t slot = 1; f.applier.HasRoom(); ++slot) {
        QVERIFY(slot <= 10000);
        f.applier.Push(One(NoopAt(slot)));
      }
      QCOMPARE(f.wakes.load(), 0);
    }
    QVERIFY(Eventually(kLimit, [&] { return f.wakes == 1 && f.applier.HasRoom(); }));
  }

  void State_IsThatAfterASlot() {
    FedApplier f;
    f.applier.Push(One(TaskAt(7, "p")));
    QVERIFY(f.Reaches(7));
    f.applier.AskForState();
    std::optional<Applier::StateAt> state;
    QVERIFY(Eventually(kLimit, [&] { return (state = f.applier.TakeReport().state).has_value(); }));
    QCOMPARE(state->slot.value, 7u);
    QVERIFY(!f.applier.TakeReport().state);

    // A snapshot takes its turn among the entries.
    FedApplier other;
    paxos::Snapshot snapshot{.index = paxos::Slot{7}, .members = {}, .state = state->bytes};
    std::vector<Applier::Task> tasks = One(TaskAt(1, "lost"));
    tasks.push_back({.restore = std::make_shared<const paxos::Snapshot>(snapshot)});
    tasks.push_back(TaskAt(8, "q"));
    snapshot.index = paxos::Slot{5};  // An old one changes nothing.
    tasks.push_back({.restore = std::make_shared<const paxos::Snapshot>(snapshot)});
    other.applier.Push(std::move(tasks));
    QVERIFY(other.Reaches(8));
    QVERIFY(other.Knows("p") && other.Knows("q") && !other.Knows("lost"));
  }

  void NewerEntry_EndsTheApplying() {
    FedApplier f;
    f.applier.Push(One(TaskAt(1, "p")));
    std::promise<Result> answer, later;
    std::vector<Applier::Task> tasks = One(TaskAt(2, "newer", kVersion + 1));
    tasks[0].requests.push_back(
        MakeRequest([&](Result result) { answer.set_value(std::move(result)); }));
    tasks.push_back(TaskAt(3, "later"));
    f.applier.Push(std::move(tasks));
    QCOMPARE(Reason(answer.get_future().get().status()), std::string("OUTCOME_UNKNOWN"));
    std::string newer;
    QVERIFY(Eventually(kLimit, [&] { return !(newer = f.applier.TakeReport().newer).empty(); }));
    QVERIFY(newer.find("slot 2") != std::string::npos);
    QVERIFY(!f.Reaches(2));  // At once.
    tasks = One(TaskAt(4, "after"));
    tasks[0].requests.push_back(
        MakeRequest([&](Result result) { later.set_value(std::move(result)); }));
    f.applier.Push(std::move(tasks));
    QCOMPARE(Reason(later.get_future().get().status()), std::string("OUTCOME_UNKNOWN"));
    QVERIFY(f.Knows("p") && !f.Knows("later") && !f.Knows("after"));
    QCOMPARE(f.applier.applied().value, 1u);
  }

  void Stop_AnswersWhatIsQueued() {
    std::atomic<int> answered{0};
    FedApplier f;
    {
      const Hold hold(f.applier);
      for (std::uint64_t slot = 1; slot <= 200; ++slot) {
        Applier::Task task = TaskAt(slot, absl::StrCat("n", slot));
        task.requests.push_back(
            MakeRequest([&](const Result& result) { answered += result.ok(); }));
        f.applier.Push(One(std::move(task)));
      }
    }
    f.applier.Stop();
    QCOMPARE(answered.load(), 200);
    QVERIFY(!f.applier.Await(paxos::Slot{201}, kLimit));
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::ApplierTest)
#include "applier_test.moc"
