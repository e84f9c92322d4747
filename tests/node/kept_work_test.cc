#include "cluster/node/kept_work.h"

#include <fmt/format.h>

#include <QtTest>
#include <algorithm>
#include <map>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "cluster/node/settler.h"
#include "cluster/node/work_holder.h"
#include "tests/test_main.h"

namespace onepiece::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// The node "keeper" sends the work of a job to the stage "draw", which instances d1 to d3 serve
/// under incarnation 1, and which hands on to "show". Records are kept as a database keeps them.
struct KeptFixture {
  KeptFixture() {
    table.set_epoch(5);
    table.set_workflow_set("set");
    v1::Workflow& workflow = *table.add_workflows();
    workflow.set_app_id("app");
    for (const char* const stage : {"read", "draw", "show"})
      workflow.add_stages()->set_stage(stage);
    for (const char* const node : {"keeper", "d1", "d2", "d3", "s1", "db1", "db2"}) {
      v1::Endpoint& alive = *table.add_alive();
      alive.set_node_id(node);
      alive.set_incarnation(1);
    }
    v1::Endpoint self;
    self.set_node_id("keeper");
    self.set_incarnation(1);
    view.SetSelf(self);
    Publish();
    message.header.uid = base::Uid::GenerateRandom();
    message.header.run = 1;
    message.header.app = "app";
    message.header.stage = "draw";
    message.header.from = "read";
    message.header.deadline = clock.Now() + seconds(600);
    message.artifacts.push_back(message::BytesArtifact("text", "text/plain", "0123456789"));
    record.mutable_job()->set_uid(message.header.uid.ToString());
    record.mutable_job()->set_state(v1::Job::RUNNING);
    record.set_run(1);
  }
  void Publish() {
    table.set_epoch(table.epoch() + 1);
    view.SetRouting(std::make_shared<const Routing>(table));
  }
  void Kill(const std::string& node) {
    auto& alive = *table.mutable_alive();
    for (int i = 0; i < alive.size(); ++i) {
      if (alive[i].node_id() == node) alive.DeleteSubrange(i--, 1);
    }
    Publish();
  }
  v1::WorkHolder HolderOf(const std::string& node, std::uint32_t attempt) {
    v1::Endpoint endpoint;
    endpoint.set_node_id(node);
    endpoint.set_incarnation(1);
    return HolderAt(*view.routing(), message.header, endpoint, attempt);
  }
  /// Sends the message to `node`, and records it.
  void Send(const std::string& node) {
    kept.Keep(message);
    const v1::WorkHolder holder = HolderOf(node, message.header.attempt);
    kept.Placed(message.header, holder);
    job::Place(holder, 0, 0, record);
  }
  /// The node begins to compute what it was sent last.
  void Begin(const std::string& node, std::uint32_t attempt) {
    v1::WorkHolder holder = HolderOf(node, attempt);
    holder.set_begun(true);
    job::Place(holder, 0, 0, record);
  }
  v1::WorkSettled Settled(std::uint32_t attempt) const {
    v1::WorkSettled settled;
    settled.set_uid(message.header.uid.ToString());
    settled.set_run(message.header.run);
    settled.set_stage(message.header.stage);
    settled.set_from(message.header.from);
    settled.set_attempt(attempt);
    return settled;
  }

  base::ManualClock clock;
  ClusterView view;
  v1::RoutingTable table;
  message::Message message;
  v1::JobRecord record;
  absl::Status record_error, report_error;
  absl::Status send_error;
  std::string full_stage;  ///< Only messages to it meet `send_error`, unless it is empty.
  std::string taker = "d2";
  int asked = 0;
  std::function<void()> while_asked;
  std::vector<message::Message> sent;
  std::vector<v1::JobError> failed;
  KeptWork kept{view,
                {.ask = [this](const base::Uid&) -> absl::StatusOr<v1::JobRecord> {
                   ++asked;
                   if (while_asked) while_asked();
                   if (!record_error.ok()) return record_error;
                   return record;
                 },
                 .report =
                     [this](const v1::UpdateJobRequest& update) {
                       if (!report_error.ok()) return report_error;
                       for (const v1::WorkHolder& holder : update.placed())
                         job::Place(holder, 0, 0, record);
                       if (update.has_failed()) {
                         failed.push_back(update.failed());
                         job::SetEnd(v1::Job::FAILED, clock.WallNow(), record);
                       }
                       return absl::OkStatus();
                     },
                 .send = [this](const message::Message& again) -> absl::StatusOr<Delivered> {
                   sent.push_back(again);
                   const bool meets = full_stage.empty() || again.header.stage == full_stage;
                   if (!send_error.ok() && meets) return send_error;
                   Delivered delivered{.attempt = again.header.attempt,
                                       .routing_epoch = view.routing()->epoch()};
                   delivered.endpoint.set_node_id(taker);
                   delivered.endpoint.set_incarnation(1);
                   return delivered;
                 }},
                {.max_bytes = 25, .max_items = 100},
                clock};
};

}  // namespace

class KeptWorkTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void SetMaxBytes_KeepsWhatIsThere() {
    KeptFixture f;
    const auto keep = [&] {
      message::Message message = f.message;
      message.header.uid = base::Uid::GenerateRandom();
      f.kept.Keep(message);
      return !message.header.keeper.empty();
    };
    QVERIFY(keep() && keep() && !keep());  // Two of ten bytes each, of 25.
    f.kept.SetMaxBytes(15);
    QVERIFY(!keep());
    QCOMPARE(f.kept.bytes(), std::size_t{20});
    f.kept.SetMaxBytes(35);
    QVERIFY(keep() && !keep());
    f.kept.SetMaxBytes(0);  // As at the start.
    QVERIFY(!keep());
  }

  void Keep_NamesTheKeeperWhileThereIsRoom() {
    KeptFixture f;
    std::vector<message::Message> messages(3, f.message);
    for (message::Message& message : messages) {
      message.header.uid = base::Uid::GenerateRandom();
      f.kept.Keep(message);
    }
    QCOMPARE(messages[1].header.keeper, std::string("keeper"));
    QCOMPARE(messages[1].header.keeper_incarnation, std::uint64_t{1});
    QVERIFY(messages[2].header.keeper.empty());  // 30 bytes do not fit.
    QCOMPARE(f.kept.bytes(), std::size_t{20});
    // A send that is repeated has its place already.
    f.kept.Keep(messages[1]);
    QCOMPARE(messages[1].header.keeper, std::string("keeper"));
    QCOMPARE(f.kept.items(), std::size_t{2});
  }

  void Keeps_ThisEdgeOfTheRun_OrALaterRun() {
    KeptFixture f;
    f.Send("d1");
    v1::HeldWork work;
    work.set_uid(f.message.header.uid.ToString());
    *work.mutable_holder() = f.HolderOf("d1", 0);
    QVERIFY(f.kept.Keeps(work));
    work.mutable_holder()->set_attempt(3);  // The keeper gives the next one.
    QVERIFY(f.kept.Keeps(work));
    work.mutable_holder()->set_run(0);
    QVERIFY(f.kept.Keeps(work));
    work.mutable_holder()->set_run(2);
    QVERIFY(!f.kept.Keeps(work));
    for (const bool other_stage : {false, true}) {
      *work.mutable_holder() = f.HolderOf("d1", 0);
      if (other_stage) work.mutable_holder()->set_stage("show");
      if (!other_stage) work.mutable_holder()->set_from("image");
      QVERIFY(!f.kept.Keeps(work));
    }
    *work.mutable_holder() = f.HolderOf("d1", 0);
    f.kept.Settle(f.Settled(0));
    QVERIFY(!f.kept.Keeps(work));
    work.set_uid("nonsense");
    QVERIFY(!f.kept.Keeps(work));
  }

  void Dead_GivesTheWorkToAnother() {
    KeptFixture f;
    f.Send("d1");
    f.kept.Look();
    QCOMPARE(f.asked, 0);  // Nobody has died.
    f.Begin("d1", 0);
    f.Kill("d1");
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{1});
    const message::Header& again = f.sent[0].header;
    QCOMPARE(again.attempt, 1u);
    QCOMPARE(again.deaths, 1u);
    QCOMPARE(again.keeper, std::string("keeper"));
    QCOMPARE(f.sent[0].artifacts.at(0).data.text(), std::string_view("0123456789"));
    QCOMPARE(f.record.holders(0).node_id(), std::string("d2"));
    // It is kept on, for the next death.
    f.Kill("d2");
    f.taker = "d3";
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{2});
    QCOMPARE(f.sent[1].header.attempt, 2u);
    QCOMPARE(f.kept.items(), std::size_t{1});
  }

  // What waited in the queue of an instance that died has not killed it.
  void Dead_WhoseDeadlineIsFirstGoesFirst() {
    KeptFixture f;
    for (const int left : {30, 10, 20}) {
      f.message.artifacts.clear();
      // The order of the UIDs is another one.
      f.message.header.uid = *base::Uid::Parse(
          fmt::format("00000000-0000-4000-8000-0000000000{}", (left + 10) % 40 + 10));
      f.message.header.deadline = f.clock.Now() + seconds(left);
      f.kept.Keep(f.message);
      f.kept.Placed(f.message.header, f.HolderOf("d1", 0));
    }
    f.while_asked = [&f] { f.record.clear_holders(); };  // One record stands for all.
    f.Kill("d1");
    f.kept.Look();
    std::vector<base::MonotonicTime> sent;
    for (const message::Message& message : f.sent) sent.push_back(message.header.deadline);
    QCOMPARE(sent.size(), std::size_t{3});
    QVERIFY(std::ranges::is_sorted(sent));
  }

  // Each refusal takes a while. Work for another stage must not wait for those of a full one.
  void Dead_WhoseStageIsFull_HoldsUpNoOtherStage() {
    KeptFixture f;
    f.message.artifacts.clear();
    for (const char* const stage : {"draw", "draw", "draw", "show"}) {
      f.message.header.uid = base::Uid::GenerateRandom();
      f.message.header.stage = stage;
      f.message.header.deadline += seconds(1);
      f.kept.Keep(f.message);
      f.kept.Placed(f.message.header, f.HolderOf("d1", 0));
    }
    f.while_asked = [&f] { f.record.clear_holders(); };  // One record stands for all.
    f.send_error = base::MakeError(absl::StatusCode::kResourceExhausted, "RING_FULL", "");
    f.full_stage = "draw";
    f.Kill("d1");
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{2});
    QCOMPARE(f.sent[1].header.stage, std::string("show"));
    // None of them is forgotten, and the refused ones have the same attempt still.
    f.send_error = absl::OkStatus();
    f.clock.Advance(base::Scaled(seconds(1)));
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{5});
    QCOMPARE(f.sent[4].header.attempt, 1u);
  }

  void Dead_SmallWorkIsTriedWhereLargeWorkWasRefused() {
    KeptFixture f;
    const std::string large(10, 'x'), small(2, 'x');
    for (const std::string& bytes : {large, small, large}) {
      f.message.artifacts = {message::BytesArtifact("text", "", bytes)};
      f.message.header.uid = base::Uid::GenerateRandom();
      f.message.header.deadline += seconds(1);
      f.kept.Keep(f.message);
      f.kept.Placed(f.message.header, f.HolderOf("d1", 0));
    }
    f.while_asked = [&f] { f.record.clear_holders(); };
    f.send_error = base::MakeError(absl::StatusCode::kResourceExhausted, "RING_FULL", "");
    f.Kill("d1");
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{2});
    QCOMPARE(f.sent[1].artifacts.at(0).data.size(), small.size());
  }

  // Whoever has no room for one branch may take another, which completes its join.
  void Dead_EachBranchIsTried() {
    KeptFixture f;
    v1::StageSpec& join = *f.table.mutable_workflows(0)->add_stages();
    join.set_stage("join");
    for (const char* const stage : {"read", "draw"}) join.add_after(stage);
    f.Publish();
    f.message.artifacts.clear();
    f.message.header.stage = "join";
    for (int i = 0; i < 2; ++i) {
      f.message.header.uid = base::Uid::GenerateRandom();
      f.kept.Keep(f.message);
      f.kept.Placed(f.message.header, f.HolderOf("d1", 0));
    }
    f.while_asked = [&f] { f.record.clear_holders(); };
    f.send_error = base::MakeError(absl::StatusCode::kResourceExhausted, "JOINS_FULL", "");
    f.Kill("d1");
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{2});
  }

  // This node was stopped for a while and taken for dead. It still has what it keeps.
  void LaterIncarnation_IsToldToTheRecords() {
    KeptFixture f;
    f.Send("d1");
    QCOMPARE(f.record.holders(0).keeper_incarnation(), std::uint64_t{1});
    v1::Endpoint self = f.view.self();
    self.set_incarnation(2);
    f.view.SetSelf(self);
    f.report_error = absl::UnavailableError("");
    f.kept.Look();
    QCOMPARE(f.record.holders(0).keeper_incarnation(), std::uint64_t{1});
    f.report_error = absl::OkStatus();
    f.clock.Advance(base::Scaled(seconds(1)));
    f.kept.Look();
    QCOMPARE(f.record.holders(0).keeper_incarnation(), std::uint64_t{2});
    QCOMPARE(f.record.holders(0).node_id(), std::string("d1"));
    QVERIFY(f.sent.empty());
    // It is told once, and the work still goes to another when its holder dies.
    const int asked = f.asked;
    f.kept.Look();
    QCOMPARE(f.asked, asked);
    f.Kill("d1");
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{1});
  }

  void Dead_WhatHadNotBegunCostsNoRetry() {
    KeptFixture f;
    f.table.mutable_workflows(0)->set_retries(0);
    f.Send("d1");
    f.Kill("d1");
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{1});
    QCOMPARE(f.sent[0].header.deaths, 0u);
    QVERIFY(f.failed.empty());
  }

  void Dead_RetriesUsedUp_Quarantined() {
    KeptFixture f;
    f.Send("d1");
    for (const auto& [node, next] :
         std::map<std::string, std::string>{{"d1", "d2"}, {"d2", "d3"}, {"d3", "none"}}) {
      f.taker = next;
      f.Begin(node, f.record.holders(0).attempt());
      f.Kill(node);
      f.kept.Look();
    }
    QCOMPARE(f.sent.size(), std::size_t{2});
    QCOMPARE(f.failed.size(), std::size_t{1});
    QCOMPARE(f.failed[0].reason(), std::string("QUARANTINED"));
    for (const char* const part : {"3 instances", "draw", "d3"})
      QVERIFY2(f.failed[0].message().find(part) != std::string::npos,
               f.failed[0].message().c_str());
    QCOMPARE(f.kept.items(), std::size_t{0});
  }

  void Dead_ManyTimesInQueues_Lost() {
    KeptFixture f;
    for (int i = 0; i < 50; ++i) {
      v1::Endpoint& alive = *f.table.add_alive();
      alive.set_node_id("n" + std::to_string(i));
      alive.set_incarnation(1);
    }
    f.Publish();
    f.Send("n0");
    for (int i = 0; i < 49; ++i) {
      f.taker = "n" + std::to_string(i + 1);
      f.Kill("n" + std::to_string(i));
      f.kept.Look();
    }
    QCOMPARE(f.sent.size(), std::size_t{kMaxAttempts - 1});
    QCOMPARE(f.failed.size(), std::size_t{1});
    QCOMPARE(f.failed[0].reason(), std::string("LOST"));
  }

  // Its last word was lost, but the record knows that it handed on.
  void Dead_ButHandedOn_Dropped() {
    KeptFixture f;
    f.Send("d1");
    f.message.header.from = "draw";
    f.message.header.stage = "show";
    job::Place(f.HolderOf("s1", 0), 0, 0, f.record);
    f.Kill("d1");
    f.kept.Look();
    QVERIFY(f.sent.empty());
    QCOMPARE(f.kept.items(), std::size_t{0});
  }

  void Dead_ButEndedOrDeletedOrRunAgain_Dropped() {
    for (const int why : {0, 1, 2}) {
      KeptFixture f;
      f.Send("d1");
      if (why == 0) job::SetEnd(v1::Job::CANCELLED, f.clock.WallNow(), f.record);
      if (why == 1) {
        f.record_error = base::MakeError(absl::StatusCode::kNotFound, "JOB_UNKNOWN", "deleted",
                                         {{"deleted", "true"}});
      }
      if (why == 2) f.record.set_run(2);
      f.Kill("d1");
      f.kept.Look();
      QVERIFY(f.sent.empty());
      QCOMPARE(f.kept.items(), std::size_t{0});
    }
  }

  // The only database that has the record restarts.
  void Dead_AndUnknown_WaitsForTheRecord() {
    KeptFixture f;
    f.Send("d1");
    f.record_error = absl::NotFoundError("");
    f.Kill("d1");
    f.kept.Look();
    f.clock.Advance(base::Scaled(seconds(50)));
    f.kept.Look();
    QVERIFY(f.sent.empty());
    QCOMPARE(f.kept.items(), std::size_t{1});
    f.record_error = absl::OkStatus();
    f.clock.Advance(base::Scaled(seconds(30)));
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{1});
  }

  void UnknownForAMinute_Dropped() {
    KeptFixture f;
    f.Send("d1");
    f.record_error = absl::NotFoundError("");
    f.clock.Advance(base::Scaled(seconds(6)));
    f.kept.Look();
    QCOMPARE(f.kept.items(), std::size_t{1});
    f.clock.Advance(base::Scaled(seconds(61)));
    f.kept.Look();
    QCOMPARE(f.kept.items(), std::size_t{0});
  }

  // It was moved, and the word about that was lost with the one who moved it.
  void Dead_ButMoved_FollowsTheRecord() {
    KeptFixture f;
    f.Send("d1");
    job::Place(f.HolderOf("d3", 1), 0, 0, f.record);
    f.Kill("d1");
    f.kept.Look();
    QVERIFY(f.sent.empty());
    f.Kill("d3");
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{1});
    QCOMPARE(f.sent[0].header.attempt, 2u);
  }

  void Forgotten_WhatNobodyTook() {
    KeptFixture f;
    f.kept.Keep(f.message);
    f.kept.Forget(f.message.header);
    QCOMPARE(f.kept.items(), std::size_t{0});
    QCOMPARE(f.kept.bytes(), std::size_t{0});
    f.Send("d1");
    f.kept.Forget(f.message.header);  // Somebody has it.
    QCOMPARE(f.kept.items(), std::size_t{1});
  }

  void Doubtful_TheRecordNamesNobody_GoesToSomebody() {
    KeptFixture f;
    f.kept.Keep(f.message);
    QVERIFY(f.kept.Doubt(f.message.header));
    f.kept.Look();
    QVERIFY(f.sent.empty());  // Its receiver gets the time to say so.
    f.clock.Advance(base::Scaled(milliseconds(1100)));
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{1});
    QCOMPARE(f.sent[0].header.attempt, 1u);  // It fences the first copy, should there be one.
    message::Header unknown = f.message.header;
    unknown.stage = "other";
    QVERIFY(!f.kept.Doubt(unknown));
  }

  void Doubtful_TheRecordNamesItsReceiver_StaysThere() {
    KeptFixture f;
    f.kept.Keep(f.message);
    QVERIFY(f.kept.Doubt(f.message.header));
    job::Place(f.HolderOf("d1", 0), 0, 0, f.record);
    f.clock.Advance(base::Scaled(milliseconds(1100)));
    f.kept.Look();
    QVERIFY(f.sent.empty());
    f.Kill("d1");
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{1});
  }

  void Dead_WhileTheJobIsEnding_IsNotSentAgain() {
    KeptFixture f;
    f.Send("d1");
    f.record.mutable_proposed()->set_state(v1::Job::CANCELLED);
    f.Kill("d1");
    f.kept.Look();
    QVERIFY(f.sent.empty());
    job::SetEnd(v1::Job::CANCELLED, f.clock.WallNow(), f.record);
    f.clock.Advance(base::Scaled(seconds(6)));
    f.kept.Look();
    QCOMPARE(f.kept.items(), std::size_t{0});
  }

  void Limit_GrowsWithTheBytes() {
    KeptFixture f;
    const base::Duration small = KeptLimit(f.message);
    f.message.artifacts = {
        message::BytesArtifact("large", "", std::string(std::size_t{40} << 20, 'x'))};
    QVERIFY(KeptLimit(f.message) - small >= base::Scaled(seconds(2)));
  }

  void PlacedWhileItIsLookedUp_IsNotForgotten() {
    KeptFixture f;
    f.kept.Keep(f.message);
    f.while_asked = [&] { f.kept.Placed(f.message.header, f.HolderOf("d1", 0)); };
    f.clock.Advance(base::Scaled(seconds(6)));
    f.kept.Look();
    QCOMPARE(f.asked, 1);
    f.while_asked = {};
    f.Kill("d1");
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{1});
  }

  void NoAnswer_AskedAgain() {
    KeptFixture f;
    f.Send("d1");
    f.record_error = absl::UnavailableError("");
    f.Kill("d1");
    f.kept.Look();
    QVERIFY(f.sent.empty());
    f.record_error = absl::OkStatus();
    f.clock.Advance(base::Scaled(seconds(1)));
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{1});
  }

  void NobodyTakesIt_TriedAgainWithTheSameAttempt_UnlessItMayHaveArrived() {
    for (const bool unknown : {false, true}) {
      KeptFixture f;
      f.Send("d1");
      f.send_error = base::MakeError(absl::StatusCode::kUnavailable,
                                     unknown ? "OUTCOME_UNKNOWN" : "NO_INSTANCE", "");
      f.Kill("d1");
      f.kept.Look();
      f.send_error = absl::OkStatus();
      f.clock.Advance(base::Scaled(seconds(1)));
      f.kept.Look();
      QCOMPARE(f.sent.size(), std::size_t{2});
      QCOMPARE(f.sent[1].header.attempt, unknown ? 2u : 1u);
    }
  }

  void Settle_OfAnEarlierAttempt_IsIgnored() {
    KeptFixture f;
    f.Send("d1");
    f.Kill("d1");
    f.kept.Look();
    f.kept.Settle(f.Settled(0));  // It was only stopped for a while.
    QCOMPARE(f.kept.items(), std::size_t{1});
    f.kept.Settle(f.Settled(1));
    QCOMPARE(f.kept.items(), std::size_t{0});
    QCOMPARE(f.kept.bytes(), std::size_t{0});
  }

  void Settle_BeforePlaced_TheAnswerWasQuicker() {
    KeptFixture f;
    f.kept.Keep(f.message);
    f.kept.Settle(f.Settled(0));
    f.kept.Placed(f.message.header, f.HolderOf("d1", 0));
    QCOMPARE(f.kept.items(), std::size_t{0});
  }

  void Settle_Moved_FollowsTheNewHolder() {
    KeptFixture f;
    f.Send("d1");
    v1::WorkSettled moved = f.Settled(0);
    *moved.mutable_moved_to() = f.HolderOf("d3", 1);
    f.kept.Settle(moved);
    f.Kill("d1");
    f.kept.Look();
    QVERIFY(f.sent.empty());
    f.Kill("d3");
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{1});
    QCOMPARE(f.sent[0].header.attempt, 2u);
  }

  void LostWord_CostsMemoryForSeconds() {
    KeptFixture f;
    f.Send("d1");
    job::SetEnd(v1::Job::SUCCEEDED, f.clock.WallNow(), f.record);
    f.clock.Advance(base::Scaled(seconds(6)));
    f.kept.Look();
    QCOMPARE(f.kept.items(), std::size_t{0});
  }

  void Deadline_Dropped() {
    KeptFixture f;
    f.Send("d1");
    f.clock.Advance(seconds(600));
    f.kept.Look();
    QCOMPARE(f.kept.items(), std::size_t{0});
    QCOMPARE(f.asked, 0);
  }

  void Result_GoesToAnotherDatabase_UntilTheJobHasEnded() {
    KeptFixture f;
    f.message.header.kind = message::Kind::kResult;
    f.message.header.from = "show";
    f.message.header.stage.clear();
    f.Send("db1");
    QCOMPARE(f.record.holders(0).stage(), std::string("show"));
    f.taker = "db2";
    f.Kill("db1");
    f.kept.Look();
    QCOMPARE(f.sent.size(), std::size_t{1});
    QVERIFY(f.sent[0].header.kind == message::Kind::kResult);
    job::SetEnd(v1::Job::SUCCEEDED, f.clock.WallNow(), f.record);
    f.clock.Advance(base::Scaled(seconds(2)));
    f.kept.Look();
    QCOMPARE(f.kept.items(), std::size_t{0});
  }

  // --- Settler.

  void Settler_RepeatsUntilTheKeeperAnswers() {
    KeptFixture f;
    f.kept.Keep(f.message);
    base::Mutex mutex;
    base::CondVar changed;
    int calls = 0;
    bool reachable = false;
    v1::SettleWorkRequest told;
    Settler settler(
        f.view,
        [&](const v1::Endpoint& keeper, const v1::SettleWorkRequest& request) {
          const base::MutexLock lock(mutex);
          ++calls;
          changed.NotifyAll();
          if (!reachable || keeper.node_id() != "keeper") return absl::UnavailableError("");
          told.MergeFrom(request);
          return absl::OkStatus();
        },
        f.clock);
    settler.Start();
    settler.Completed(f.message.header);
    {
      base::MutexLock lock(mutex);
      changed.Wait(lock, [&] { return calls > 0; });
      reachable = true;
    }
    settler.Close();
    QCOMPARE(told.works_size(), 1);
    QCOMPARE(told.works(0).stage(), std::string("draw"));
    QCOMPARE(settler.pending(), std::size_t{0});
    f.kept.Settle(told.works(0));
    QCOMPARE(f.kept.items(), std::size_t{0});
  }

  void Settler_TellsAKeeperThatCameBack() {
    KeptFixture f;
    f.kept.Keep(f.message);
    f.Kill("keeper");
    v1::Endpoint& back = *f.table.add_alive();
    back.set_node_id("keeper");
    back.set_incarnation(2);
    f.Publish();
    int told = 0;
    Settler settler(
        f.view,
        [&](const v1::Endpoint& keeper, const v1::SettleWorkRequest& request) {
          if (keeper.incarnation() == 2) told += request.works_size();
          return absl::OkStatus();
        },
        f.clock);
    settler.Completed(f.message.header);
    QVERIFY(settler.TellAll());
    QCOMPARE(told, 1);
  }

  void Settler_ForgetsADeadKeeper() {
    KeptFixture f;
    f.kept.Keep(f.message);
    f.Kill("keeper");
    Settler settler(
        f.view,
        [](const v1::Endpoint&, const v1::SettleWorkRequest&) {
          return absl::UnavailableError("");
        },
        f.clock);
    settler.Start();
    settler.Completed(f.message.header);
    settler.Close();
    QCOMPARE(settler.pending(), std::size_t{0});
  }
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::KeptWorkTest)
#include "kept_work_test.moc"
