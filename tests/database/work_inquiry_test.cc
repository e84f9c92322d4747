#include "cluster/database/work_inquiry.h"

#include <QtTest>
#include <vector>

#include "absl/status/status.h"
#include "cluster/node/cluster_view.h"
#include "tests/test_main.h"

namespace onepiece::database {
namespace {

using namespace std::chrono_literals;

/// The database "db-1" has records that name "keeper" beside a dead holder.
struct InquiryFixture {
  InquiryFixture() {
    v1::RoutingTable table;
    table.set_epoch(1);
    for (const char* const node : {"keeper", "db-1", "db-2"}) {
      v1::Endpoint& alive = *table.add_alive();
      alive.set_node_id(node);
      alive.set_incarnation(7);
      if (node[0] == 'd') *table.add_databases() = alive;
    }
    v1::Endpoint self;
    self.set_node_id("db-1");
    view.SetSelf(self);
    view.SetRouting(std::make_shared<const node::Routing>(table));
    holder.set_node_id("dead");
    holder.set_stage("draw");
    holder.set_keeper("keeper");
    holder.set_keeper_incarnation(7);
  }
  /// Sweeps and asks for so long. Returns what the last sweep was told.
  bool Sweep(base::Duration duration) {
    bool kept = true;
    for (base::Duration passed{}; passed < duration; passed += 500ms) {
      clock.Advance(500ms);
      kept = inquiry.IsKept(uid, holder);
      inquiry.Ask();
    }
    return kept;
  }

  base::ManualClock clock;
  node::ClusterView view;
  base::Uid uid = base::Uid::GenerateRandom();
  v1::WorkHolder holder;
  bool keeper_answers = true, keeps = false, database_answers = true;
  std::vector<base::MonotonicTime> asked;
  std::vector<std::string> databases;
  WorkInquiry inquiry{
      view,
      {.ask_keeper = [this](const v1::Endpoint& keeper, const v1::FindKeptRequest& request)
           -> absl::StatusOr<v1::FindKeptResponse> {
         asked.push_back(clock.Now());
         if (keeper.node_id() != "keeper" || !keeper_answers) return absl::UnavailableError("away");
         v1::FindKeptResponse response;
         for (int i = 0; i < request.works_size(); ++i) response.add_kept(keeps);
         return response;
       },
       .ask_database =
           [this](const v1::Endpoint& database, std::span<const base::Uid>) {
             databases.push_back(database.node_id());
             return database_answers ? absl::OkStatus() : absl::UnavailableError("away");
           }},
      clock};
};

}  // namespace

class WorkInquiryTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void AKeeperThatKeepsNothing_IsAskedTwice() {
    InquiryFixture f;
    const base::MonotonicTime begin = f.clock.Now();
    QVERIFY(f.Sweep(10s));
    QVERIFY(!f.Sweep(2s));
    QVERIFY(f.asked.size() >= 2);
    QVERIFY(f.asked[0] - begin >= 5s);
    QVERIFY(f.asked[1] - f.asked[0] >= 5s);
    // The records of all others are asked for, because one of them may have newer words.
    QCOMPARE(f.databases, (std::vector<std::string>{"db-2", "db-2"}));
  }

  void AKeeperThatKeepsIt_IsAskedOnAndOn() {
    InquiryFixture f;
    f.keeps = true;
    QVERIFY(f.Sweep(60s));
    QVERIFY(f.asked.size() > 5);
    QVERIFY(f.databases.empty());
  }

  void ADenialBeforeItKeptTheWork_DoesNotCount() {
    InquiryFixture f;
    QVERIFY(f.Sweep(6s));
    QCOMPARE(f.asked.size(), std::size_t{1});
    f.keeps = true;
    QVERIFY(f.Sweep(5s));
    f.keeps = false;
    QVERIFY(f.Sweep(5s));
    QCOMPARE(f.asked.size(), std::size_t{3});
    QVERIFY(!f.Sweep(6s));
  }

  void Silence_IsNoAnswer() {
    InquiryFixture f;
    f.keeper_answers = false;
    QVERIFY(f.Sweep(60s));
    f.keeper_answers = true;
    f.database_answers = false;
    QVERIFY(f.Sweep(60s));
    f.database_answers = true;
    QVERIFY(!f.Sweep(12s));
  }

  // It was stopped for a while, or started again.
  void AKeeperThatCameBack_IsAskedSoon() {
    for (const bool keeps : {true, false}) {
      InquiryFixture f;
      f.holder.set_keeper_incarnation(6);
      f.keeps = keeps;
      QVERIFY(f.Sweep(1s));
      QCOMPARE(f.Sweep(3s), keeps);
      QVERIFY(f.asked.size() >= 2);
    }
  }

  void AnotherHolder_IsAnotherQuestion() {
    InquiryFixture f;
    QVERIFY(!f.Sweep(12s));
    f.holder.set_attempt(1);
    QVERIFY(f.Sweep(10s));
    QVERIFY(!f.Sweep(2s));
  }

  // The record was about something else meanwhile, or this process was stopped.
  void AfterAGapItBeginsAgain() {
    InquiryFixture f;
    QVERIFY(!f.Sweep(12s));
    f.clock.Advance(3s);
    QVERIFY(f.inquiry.IsKept(f.uid, f.holder));
  }
};

}  // namespace onepiece::database

ONEPIECE_TEST(onepiece::database::WorkInquiryTest)
#include "work_inquiry_test.moc"
