#include "stages/runtime/request_scheduler.h"

#include <QtTest>
#include <cstdlib>
#include <map>
#include <thread>

#include "tests/test_main.h"

namespace onepiece::runtime {
namespace {

constexpr auto kSchedulerLimit = std::chrono::seconds(20);  // Only reached when a test fails.

WorkItem Item(const base::Uid& uid, int priority = 0, std::uint32_t attempt = 0) {
  WorkItem item;
  item.message.header.uid = uid;
  item.message.header.stage = "s";
  item.message.header.priority = priority;
  item.message.header.attempt = attempt;
  return item;
}

struct SchedulerFixture {
  explicit SchedulerFixture(std::size_t max_queued = 64)
      : scheduler({.max_queued = max_queued, .max_queued_bytes = 1 << 20, .remembered = 8},
                  std::make_unique<IndividualMode>(), clock) {}
  std::optional<WorkItem> Pop() { return scheduler.Pop({}, clock.Now()); }

  base::ManualClock clock;
  RequestScheduler scheduler;
};

}  // namespace

class RequestSchedulerTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Pop_PrefersPriorityThenArrival() {
    SchedulerFixture f;
    const auto first = base::Uid::GenerateRandom();
    const auto second = base::Uid::GenerateRandom();
    const auto urgent = base::Uid::GenerateRandom();
    (void)f.scheduler.Push(Item(first));
    (void)f.scheduler.Push(Item(second));
    (void)f.scheduler.Push(Item(urgent, 5));
    QVERIFY(f.Pop()->message.header.uid == urgent);
    QVERIFY(f.Pop()->message.header.uid == first);
    QVERIFY(f.Pop()->message.header.uid == second);
    QVERIFY(!f.Pop().has_value());
  }

  // Attempts of the same work: its sender took the last holder for dead.
  void Push_ALaterAttempt_ReplacesTheEarlierOne() {
    SchedulerFixture f;
    const auto uid = base::Uid::GenerateRandom();
    (void)f.scheduler.Push(Item(uid, 0, 1));
    QVERIFY(*f.scheduler.Push(Item(uid, 0, 0)) == PushResult::kDuplicate);
    QVERIFY(*f.scheduler.Push(Item(uid, 0, 2)) == PushResult::kQueued);
    QCOMPARE(f.scheduler.queued(), std::size_t{1});
    const auto popped = f.Pop();
    QCOMPARE(popped->message.header.attempt, 2u);
    QVERIFY(!f.scheduler.IsFenced(*popped));
    (void)f.scheduler.Push(Item(uid, 0, 3));
    QVERIFY(f.scheduler.IsFenced(*popped));
    // A new run of the job begins with attempt 0 again.
    WorkItem again = Item(uid);
    again.message.header.run = 1;
    QVERIFY(*f.scheduler.Push(again) == PushResult::kQueued);
  }

  void Fence_DropsWhatSomebodyElseHas() {
    SchedulerFixture f;
    const WorkItem item = Item(base::Uid::GenerateRandom());
    f.scheduler.Fence(item.message.header, 1);  // It was never here.
    QVERIFY(*f.scheduler.Push(item) == PushResult::kQueued);
    f.scheduler.Fence(item.message.header, 1);
    QCOMPARE(f.scheduler.queued(), std::size_t{0});
    QVERIFY(f.scheduler.IsFenced(item));
  }

  // Half of a join may come again alone. What met before is still the only one to have the rest.
  void Push_ALaterPart_ReplacesAJoinOnlyWithAllOthers() {
    SchedulerFixture f;
    const std::vector<std::string> both = {"text", "image"};
    const auto uid = base::Uid::GenerateRandom();
    const auto push = [&](const std::string& from, std::uint32_t attempt) {
      WorkItem item = Item(uid, 0, attempt);
      item.message.header.from = from;
      item.message.header.deadline = base::MonotonicTime(std::chrono::hours(24 * 365 * 100));
      return *f.scheduler.Push(std::move(item), both);
    };
    (void)push("text", 0);
    QVERIFY(push("text", 1) == PushResult::kHeld);
    QVERIFY(push("image", 0) == PushResult::kQueued);
    QVERIFY(push("image", 1) == PushResult::kHeld);
    QCOMPARE(f.scheduler.queued(), std::size_t{1});
    QVERIFY(push("text", 2) == PushResult::kQueued);
    QCOMPARE(f.scheduler.queued(), std::size_t{1});
    QCOMPARE(f.scheduler.joins(), std::size_t{0});
    QCOMPARE(f.Pop()->message.header.attempt, 2u);
  }

  void Pop_AnAppThatFloodsLeavesTheOtherItsShare() {
    SchedulerFixture f(1000);
    const auto push = [&](const std::string& app) {
      WorkItem item = Item(base::Uid::GenerateRandom());
      item.message.header.app = app;
      (void)f.scheduler.Push(std::move(item));
    };
    for (int i = 0; i < 100; ++i) push("flood");
    for (int i = 0; i < 10; ++i) push("steady");
    // Jobs of the steady application take three times as long, so with equal time it gets one job
    // for every three of the other.
    std::map<std::string, int> jobs;
    for (int i = 0; i < 24; ++i) {
      const std::string app = f.Pop()->message.header.app;
      ++jobs[app];
      f.scheduler.Done(app, std::chrono::seconds(app == "steady" ? 3 : 1));
    }
    QVERIFY(std::abs(jobs["steady"] - 6) <= 1);
    QVERIFY(std::abs(jobs["flood"] - 18) <= 1);
  }

  void Pop_SeveralWorkers_ShareBeforeAnythingHasEnded() {
    SchedulerFixture f(1000);
    const auto push = [&](const std::string& app) {
      WorkItem item = Item(base::Uid::GenerateRandom());
      item.message.header.app = app;
      (void)f.scheduler.Push(std::move(item));
    };
    for (int i = 0; i < 20; ++i) push("a");
    for (int i = 0; i < 20; ++i) push("b");
    for (int i = 0; i < 2; ++i) QCOMPARE(f.Pop()->message.header.app, std::string("a"));
    f.scheduler.Done("a", std::chrono::seconds(1));
    f.scheduler.Done("a", std::chrono::seconds(1));
    // b has had no time yet, so two of its jobs come before a is level again. Then they take turns.
    std::map<std::string, int> jobs;
    for (int i = 0; i < 2; ++i) {
      const std::string app = f.Pop()->message.header.app;
      ++jobs[app];
      f.scheduler.Done(app, std::chrono::seconds(1));
    }
    QCOMPARE(jobs["b"], 2);
    for (int i = 0; i < 6; ++i) ++jobs[f.Pop()->message.header.app];  // Six workers at once.
    QCOMPARE(jobs["b"], 5);
  }

  void Pop_IdleTimeGivesNoCredit() {
    SchedulerFixture f(1000);
    const auto push = [&](const std::string& app) {
      WorkItem item = Item(base::Uid::GenerateRandom());
      item.message.header.app = app;
      (void)f.scheduler.Push(std::move(item));
    };
    for (int i = 0; i < 100; ++i) push("busy");
    for (int i = 0; i < 50; ++i) {
      QCOMPARE(f.Pop()->message.header.app, std::string("busy"));
      f.scheduler.Done("busy", std::chrono::seconds(1));
    }
    for (int i = 0; i < 20; ++i) push("late");
    std::map<std::string, int> jobs;
    for (int i = 0; i < 20; ++i) {
      const std::string app = f.Pop()->message.header.app;
      ++jobs[app];
      f.scheduler.Done(app, std::chrono::seconds(1));
    }
    QCOMPARE(jobs["late"], 10);
  }

  void Take_AndReturn_ForWorkThatMayGoElsewhere() {
    SchedulerFixture f;
    const auto uid = base::Uid::GenerateRandom();
    (void)f.scheduler.Push(Item(uid));
    auto taken = f.scheduler.Take();
    QVERIFY(taken.has_value());
    QVERIFY(!f.scheduler.Take().has_value());
    QCOMPARE(f.scheduler.held(), std::size_t{0});
    // The item was here before, but a returned item is not a duplicate.
    QVERIFY(*f.scheduler.Return(*std::move(taken)));
    auto popped = f.Pop();
    QVERIFY(popped->message.header.uid == uid);
    QCOMPARE(f.scheduler.queued(), std::size_t{0});
    QCOMPARE(f.scheduler.held(), std::size_t{1});
    f.scheduler.Done("", std::nullopt);
    QCOMPARE(f.scheduler.held(), std::size_t{0});
    (void)f.scheduler.Close();
    QVERIFY(!*f.scheduler.Return(*std::move(popped)));
  }

  void Return_ASingleBranchWaitsForTheOthers() {
    SchedulerFixture f;
    const std::vector<std::string> both = {"text", "image"};
    const auto uid = base::Uid::GenerateRandom();
    const auto part = [&](const std::string& from) {
      WorkItem item = Item(uid);
      item.message.header.from = from;
      item.message.header.deadline = base::MonotonicTime(std::chrono::hours(24 * 365 * 100));
      return item;
    };
    QVERIFY(*f.scheduler.Push(part("text"), both) == PushResult::kHeld);
    auto parts = f.scheduler.TakeJoins([](const message::Header&) { return true; });
    QVERIFY(*f.scheduler.Return(std::move(parts.at(0)), both));
    QCOMPARE(f.scheduler.joins(), std::size_t{1});
    QVERIFY(!f.Pop().has_value());
    QVERIFY(*f.scheduler.Push(part("image"), both) == PushResult::kQueued);
    auto whole = f.Pop();
    QCOMPARE(whole->parts.size(), std::size_t{2});
    // An item that is joined already is queued as it is.
    QVERIFY(*f.scheduler.Return(*std::move(whole), both));
    QCOMPARE(f.scheduler.joins(), std::size_t{0});
    QCOMPARE(f.Pop()->parts.size(), std::size_t{2});
  }

  void HandOver_CancelsNothing() {
    base::ManualClock clock;
    bool wanted = false;
    RequestScheduler scheduler({.hand_over = [&] { return wanted; }},
                               std::make_unique<IndividualMode>(), clock);
    const auto uid = base::Uid::GenerateRandom();
    const auto cancelled = base::Uid::GenerateRandom();
    scheduler.Cancel(cancelled);
    QVERIFY(!scheduler.HandsOver(uid));
    wanted = true;
    QVERIFY(scheduler.HandsOver(uid));
    QVERIFY(!scheduler.IsCancelled(uid));
    QVERIFY(!scheduler.HandsOver(cancelled));
    wanted = false;
    QVERIFY(!scheduler.HandsOver(uid));
  }

  void Push_DropsASecondCopyEvenAfterTheFirstWasTaken() {
    SchedulerFixture f;
    const auto uid = base::Uid::GenerateRandom();
    QVERIFY(*f.scheduler.Push(Item(uid)) == PushResult::kQueued);
    QVERIFY(f.Pop().has_value());
    QVERIFY(*f.scheduler.Push(Item(uid)) == PushResult::kDuplicate);
    QCOMPARE(f.scheduler.duplicates(), std::uint64_t{1});
    QVERIFY(*f.scheduler.Push(Item(uid, 0, 1)) == PushResult::kQueued);
  }

  void Cancel_RemovesQueuedWorkAndRefusesLaterWork() {
    SchedulerFixture f;
    const auto uid = base::Uid::GenerateRandom();
    const auto other = base::Uid::GenerateRandom();
    (void)f.scheduler.Push(Item(uid));
    (void)f.scheduler.Push(Item(other));
    f.scheduler.Cancel(uid);
    QVERIFY(f.scheduler.IsCancelled(uid));
    QCOMPARE(f.scheduler.queued(), std::size_t{1});
    QVERIFY(*f.scheduler.Push(Item(uid, 0, 1)) == PushResult::kCancelled);
    QVERIFY(f.Pop()->message.header.uid == other);
  }

  void Push_OfALargerRun_EndsTheSmaller() {
    SchedulerFixture f;
    const auto uid = base::Uid::GenerateRandom();
    const auto item = [&](std::uint64_t run, const std::string& from) {
      WorkItem made = Item(uid);
      made.message.header.run = run;
      made.message.header.from = from;
      made.message.header.deadline = f.clock.Now() + std::chrono::seconds(60);
      return made;
    };
    const std::vector<std::string> both = {"text", "image"};
    QVERIFY(*f.scheduler.Push(item(1, "a")) == PushResult::kQueued);
    QVERIFY(*f.scheduler.Push(item(1, "b")) == PushResult::kQueued);
    QVERIFY(*f.scheduler.Push(item(1, "text"), both) == PushResult::kHeld);
    const WorkItem running = *f.Pop();
    QVERIFY(!f.scheduler.IsFenced(running.message.header));
    // The same place in the job is other work in another run.
    QVERIFY(*f.scheduler.Push(item(2, "a")) == PushResult::kQueued);
    QVERIFY(f.scheduler.IsFenced(running.message.header));
    QCOMPARE(f.scheduler.joins(), std::size_t{0});
    QCOMPARE(f.scheduler.queued(), std::size_t{1});
    QVERIFY(*f.scheduler.Push(item(1, "c")) == PushResult::kFenced);
    QVERIFY(*f.scheduler.Return(item(1, "a")));
    QCOMPARE(f.scheduler.queued(), std::size_t{1});
    QCOMPARE(f.scheduler.fenced(), std::uint64_t{4});
    const WorkItem newer = *f.Pop();
    QCOMPARE(newer.message.header.run, std::uint64_t{2});
    QVERIFY(!f.scheduler.IsFenced(newer.message.header));
    QVERIFY(!f.scheduler.IsCancelled(uid));
  }

  void FenceRun_EndsWhatIsHereOfTheSmaller_UntilTheDeadline() {
    SchedulerFixture f;
    const auto uid = base::Uid::GenerateRandom(), unknown = base::Uid::GenerateRandom();
    const auto item = [&](const base::Uid& job, std::uint64_t run, const std::string& from) {
      WorkItem made = Item(job);
      made.message.header.run = run;
      made.message.header.from = from;
      made.message.header.deadline = f.clock.Now() + std::chrono::seconds(60);
      return made;
    };
    const std::vector<std::string> both = {"text", "image"};
    QVERIFY(*f.scheduler.Push(item(uid, 2, "a")) == PushResult::kQueued);
    QVERIFY(*f.scheduler.Push(item(uid, 2, "b")) == PushResult::kQueued);
    QVERIFY(*f.scheduler.Push(item(uid, 2, "text"), both) == PushResult::kHeld);
    const WorkItem running = *f.Pop();
    for (const std::uint64_t run : {1, 2}) f.scheduler.FenceRun(uid, run);
    QVERIFY(!f.scheduler.IsFenced(running));
    QCOMPARE(f.scheduler.held(), std::size_t{3});
    f.scheduler.FenceRun(uid, 3);
    QVERIFY(f.scheduler.IsFenced(running));
    QVERIFY(f.scheduler.IsFenced(running.message.header));
    QCOMPARE(f.scheduler.held(), std::size_t{1});
    QCOMPARE(f.scheduler.fenced(), std::uint64_t{2});
    QVERIFY(*f.scheduler.Push(item(uid, 2, "c")) == PushResult::kFenced);
    QVERIFY(*f.scheduler.Push(item(uid, 3, "a")) == PushResult::kQueued);
    // A job of which nothing was here is not remembered.
    f.scheduler.FenceRun(unknown, 3);
    QVERIFY(*f.scheduler.Push(item(unknown, 2, "a")) == PushResult::kQueued);
    // What is told after the deadline may be of an earlier job with the same request id.
    f.clock.Advance(std::chrono::seconds(61));
    f.scheduler.FenceRun(uid, 9);
    QVERIFY(*f.scheduler.Push(item(uid, 5, "a")) == PushResult::kQueued);
  }

  // A request id may be used again after its job's tombstone. Its runs may then be smaller.
  void ARequestIdThatIsUsedAgain_IsNeitherFencedNorCancelledNorSeen() {
    SchedulerFixture f;
    const auto uid = base::Uid::GenerateRandom();
    const auto item = [&](std::uint64_t run) {
      WorkItem made = Item(uid);
      made.message.header.run = run;
      made.message.header.deadline = f.clock.Now() + std::chrono::seconds(60);
      return made;
    };
    QVERIFY(*f.scheduler.Push(item(9)) == PushResult::kQueued);
    QVERIFY(*f.scheduler.Push(item(5)) == PushResult::kFenced);
    f.scheduler.Cancel(uid);
    f.clock.Advance(std::chrono::hours(1));
    QVERIFY(*f.scheduler.Push(item(5)) == PushResult::kQueued);
    QVERIFY(!f.scheduler.IsCancelled(uid));
    QCOMPARE(f.scheduler.queued(), std::size_t{1});
    QVERIFY(!f.scheduler.IsFenced(item(5).message.header));
  }

  void Memory_IsBounded() {
    SchedulerFixture f;
    const auto first = base::Uid::GenerateRandom();
    f.scheduler.Cancel(first);
    for (int i = 0; i < 8; ++i) f.scheduler.Cancel(base::Uid::GenerateRandom());
    QVERIFY(!f.scheduler.IsCancelled(first));
  }

  void WaitForRoom_EndsWhenAnItemIsTaken() {
    SchedulerFixture f(1);
    (void)f.scheduler.Push(Item(base::Uid::GenerateRandom()));
    QVERIFY(!f.scheduler.WaitForRoom({}, f.clock.Now()));
    std::jthread taker([&] { f.scheduler.Pop({}, f.clock.Now() + kSchedulerLimit); });
    QVERIFY(f.scheduler.WaitForRoom({}, f.clock.Now() + kSchedulerLimit));
  }

  // The branches that would complete the joins are in the ring, behind those that begin new ones.
  void WaitForRoom_ManyJoins_LeaveAReserveForTheBranchesThatEndThem() {
    base::ManualClock clock;
    RequestScheduler scheduler({.max_queued = 2, .joins = {.max_joins = 4}},
                               std::make_unique<IndividualMode>(), clock);
    const std::vector<std::string> both = {"text", "image"};
    std::vector<base::Uid> jobs;
    const auto push = [&](const base::Uid& uid, const std::string& from) {
      WorkItem item = Item(uid);
      item.message.header.from = from;
      item.message.header.deadline = clock.Now() + std::chrono::seconds(60);
      return *scheduler.Push(item, both);
    };
    for (int i = 0; i < 4; ++i) {
      QCOMPARE(scheduler.WaitForRoom({}, clock.Now()), i < 2);
      QVERIFY(scheduler.HasReserve());
      jobs.push_back(base::Uid::GenerateRandom());
      QVERIFY(push(jobs.back(), "text") == PushResult::kHeld);
    }
    QVERIFY(!scheduler.HasReserve());
    // An older branch comes all the same when the reserve has just been used up.
    QVERIFY(push(jobs[0], "image") == PushResult::kQueued);
    QVERIFY(scheduler.HasReserve());
    QVERIFY(push(jobs[1], "image") == PushResult::kQueued);
    // Now the queue has no room, and the reserve is not for it.
    QVERIFY(!scheduler.HasReserve());
    for (int i = 0; i < 2; ++i) QVERIFY(scheduler.Pop({}, clock.Now()).has_value());
    scheduler.Cancel(jobs[2]);
    QVERIFY(scheduler.WaitForRoom({}, clock.Now()));
  }

  // What waits for others must not keep them out of the memory that they come through.
  void Push_ALargeBranchThatWaits_LeavesTheMemoryForValues_data() {
    QTest::addColumn<bool>("returned");
    QTest::newRow("pushed") << false;
    QTest::newRow("returned") << true;
  }
  void Push_ALargeBranchThatWaits_LeavesTheMemoryForValues() {
    QFETCH(bool, returned);
    SchedulerFixture f;
    const std::vector<std::string> both = {"text", "image"};
    const base::Uid uid = base::Uid::GenerateRandom();
    const std::string bytes = "artifact";
    const auto large = [&](const std::string& from, std::weak_ptr<std::string>& value) {
      const auto memory = std::make_shared<std::string>(bytes);
      value = memory;
      WorkItem item = Item(uid);
      item.message.header.from = from;
      item.message.header.deadline = f.clock.Now() + std::chrono::seconds(60);
      item.message.artifacts = {{.name = from, .data = {memory, std::as_bytes(std::span(*memory))}},
                                {.name = from + "_empty", .data = {}}};
      item.by_value = true;
      return item;
    };
    std::weak_ptr<std::string> text, image;
    if (returned) {
      QVERIFY(f.scheduler.Return(large("text", text), both).value());
    } else {
      QVERIFY(f.scheduler.Push(large("text", text), both).value() == PushResult::kHeld);
    }
    QVERIFY(text.expired());
    // The one that completes the join goes on at once, and costs no copy.
    QVERIFY(f.scheduler.Push(large("image", image), both).value() == PushResult::kQueued);
    QVERIFY(!image.expired());
    const auto joined = f.Pop();
    QVERIFY(joined.has_value());
    QCOMPARE(joined->message.artifacts.size(), std::size_t{4});
    QCOMPARE(joined->message.artifacts[0].data.text(), std::string_view(bytes));
    QCOMPARE(joined->message.artifacts[2].data.text(), std::string_view(bytes));
  }

  void Admit_CountsBranchesOnTheirWay() {
    base::ManualClock clock;
    RequestScheduler scheduler({.joins = {.max_large_bytes = 1000}},
                               std::make_unique<IndividualMode>(), clock);
    const std::vector<std::string> both = {"text", "image"}, one = {"text"};
    const auto admit = [&](std::uint64_t bytes, const std::vector<std::string>& predecessors) {
      message::Header header = Item(base::Uid::GenerateRandom()).message.header;
      header.from = "text";
      return scheduler.Admit(header, predecessors, bytes);
    };
    auto first = admit(500, both);
    QVERIFY(first.ok() && *first != nullptr);
    QVERIFY(absl::IsResourceExhausted(admit(1, both).status()));
    // A stage that joins nothing computes what comes.
    QVERIFY(admit(100000, one).ok());
    first = nullptr;
    QVERIFY(admit(1000, both).ok());
    QVERIFY(absl::IsInvalidArgument(admit(1001, both).status()));
  }

  void WaitForRoom_CountsBytesButAlwaysLetsOneIn() {
    base::ManualClock clock;
    RequestScheduler scheduler({.max_queued = 64, .max_queued_bytes = 10, .remembered = 8},
                               std::make_unique<IndividualMode>(), clock);
    QVERIFY(scheduler.WaitForRoom({}, clock.Now()));
    WorkItem item = Item(base::Uid::GenerateRandom());
    item.message.artifacts = {message::BytesArtifact("a", "", std::string(20, 'x'))};
    (void)scheduler.Push(std::move(item));
    QVERIFY(!scheduler.WaitForRoom({}, clock.Now()));
    scheduler.Pop({}, clock.Now());
    QVERIFY(scheduler.WaitForRoom({}, clock.Now()));
  }

  void Push_TellsTheStagesThatMadeItApart() {
    SchedulerFixture f;
    const auto uid = base::Uid::GenerateRandom();
    WorkItem text = Item(uid), image = Item(uid);
    text.message.header.from = "text";
    image.message.header.from = "image";
    QVERIFY(*f.scheduler.Push(text) == PushResult::kQueued);
    QVERIFY(*f.scheduler.Push(image) == PushResult::kQueued);
    QVERIFY(*f.scheduler.Push(text) == PushResult::kDuplicate);
  }

  void Push_HoldsABranchUntilTheOthersCome() {
    SchedulerFixture f(1);
    const std::vector<std::string> both = {"text", "image"};
    const auto part = [](const base::Uid& uid, const std::string& from) {
      WorkItem item = Item(uid);
      item.message.header.from = from;
      item.message.header.deadline = base::MonotonicTime(std::chrono::hours(24 * 365 * 100));
      return item;
    };
    const auto first = base::Uid::GenerateRandom();
    const auto second = base::Uid::GenerateRandom();
    const auto cancelled = base::Uid::GenerateRandom();
    for (const auto& uid : {first, second, cancelled})
      QVERIFY(*f.scheduler.Push(part(uid, "text"), both) == PushResult::kHeld);
    QCOMPARE(f.scheduler.joins(), std::size_t{3});
    // Items that wait for a branch must not keep that branch out.
    QVERIFY(f.scheduler.WaitForRoom({}, f.clock.Now()));
    QVERIFY(!f.Pop().has_value());
    f.scheduler.Cancel(cancelled);
    QCOMPARE(f.scheduler.joins(), std::size_t{2});
    QVERIFY(*f.scheduler.Push(part(cancelled, "image"), both) == PushResult::kCancelled);
    QVERIFY(*f.scheduler.Push(part(second, "image"), both) == PushResult::kQueued);
    QVERIFY(!f.scheduler.WaitForRoom({}, f.clock.Now()));
    QVERIFY(f.Pop()->message.header.uid == second);
    // A late copy of a branch must not begin a join that nobody would complete.
    QVERIFY(*f.scheduler.Push(part(second, "text"), both) == PushResult::kDuplicate);
    QCOMPARE(f.scheduler.joins(), std::size_t{1});
    QVERIFY(f.scheduler.Close().empty());
    const auto left = f.scheduler.TakeJoins([](const message::Header&) { return true; });
    QCOMPARE(left.size(), std::size_t{1});
    QVERIFY(left[0].message.header.uid == first);
  }

  void Close_GivesBackWhatIsQueuedAndCancelsTheRest() {
    SchedulerFixture f;
    const auto uid = base::Uid::GenerateRandom();
    (void)f.scheduler.Push(Item(uid));
    const auto left = f.scheduler.Close();
    QCOMPARE(left.size(), std::size_t{1});
    QVERIFY(left[0].message.header.uid == uid);
    QVERIFY(f.scheduler.IsCancelled(base::Uid::GenerateRandom()));
    QVERIFY(*f.scheduler.Push(Item(base::Uid::GenerateRandom())) == PushResult::kClosed);
    QVERIFY(*f.scheduler.Push(Item(uid)) == PushResult::kDuplicate);
  }

  void Pop_EndsWhenStopped() {
    SchedulerFixture f;
    std::stop_source stop;
    std::jthread stopper([&] { stop.request_stop(); });
    QVERIFY(!f.scheduler.Pop(stop.get_token(), f.clock.Now() + kSchedulerLimit).has_value());
  }
};

}  // namespace onepiece::runtime

ONEPIECE_TEST(onepiece::runtime::RequestSchedulerTest)
#include "request_scheduler_test.moc"
