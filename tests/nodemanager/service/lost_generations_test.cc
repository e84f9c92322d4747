#include "nodemanager/service/lost_generations.h"

#include <QTemporaryDir>
#include <QtTest>
#include <limits>

#include "absl/strings/str_cat.h"
#include "cluster/base/generation.h"
#include "tests/nodemanager/service/served_node_manager.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using base::FirstEpochOf;

constexpr std::uint64_t kEpoch = FirstEpochOf(3) + 10;

v1::ReportNodeRequest Seen(std::uint64_t epoch, const std::string& id = "p",
                           const std::string& cluster = "c") {
  v1::ReportNodeRequest report = ReadyReport(id);
  report.set_routing_epoch(epoch);
  report.set_cluster_id(cluster);
  return report;
}

}  // namespace

class LostGenerationsTest : public QObject {
  Q_OBJECT
 private:
  base::ManualClock clock_;

 private Q_SLOTS:
  void WhoHasSeenMore_IsFollowed_data() {
    QTest::addColumn<quint64>("seen");
    QTest::addColumn<quint32>("generation");  // 0: none.
    QTest::newRow("nothing") << quint64{0} << quint32{0};
    QTest::newRow("less") << quint64{kEpoch - 1} << quint32{0};
    QTest::newRow("the same") << quint64{kEpoch} << quint32{0};
    QTest::newRow("more in this generation") << quint64{kEpoch + 1} << quint32{4};
    QTest::newRow("a later one") << quint64{FirstEpochOf(7)} << quint32{8};
    QTest::newRow("the latest that is believed") << quint64{FirstEpochOf(1003)} << quint32{1004};
  }
  void WhoHasSeenMore_IsFollowed() {
    QFETCH(quint64, seen);
    QFETCH(quint32, generation);
    LostGenerations lost(clock_);
    QVERIFY(lost.Look(Seen(seen), kEpoch, "c").ok());
    const auto due = lost.Due();
    QCOMPARE(due.has_value(), generation != 0);
    if (!due) return;
    QCOMPARE(due->generation(), generation);
    QVERIFY(LostGenerations::IsBehind(kEpoch, *due));
    QVERIFY(!LostGenerations::IsBehind(FirstEpochOf(generation), *due));
    QVERIFY(!lost.Due().has_value());
  }

  void AbsurdGeneration_IsRefused() {
    LostGenerations lost(clock_);
    for (const std::uint64_t seen : {FirstEpochOf(1004), FirstEpochOf(base::kMaxGeneration),
                                     std::numeric_limits<std::uint64_t>::max()}) {
      const absl::Status status = lost.Look(Seen(seen), kEpoch, "c");
      QCOMPARE(Reason(status), std::string("BAD_EPOCH"));
      QCOMPARE(status.code(), absl::StatusCode::kInvalidArgument);
      QVERIFY(!lost.Due().has_value());
    }
  }

  void TableOfAnotherCluster_SaysNothing() {
    LostGenerations lost(clock_);
    QVERIFY(lost.Look(Seen(FirstEpochOf(9), "p", "other"), kEpoch, "c").ok());
    QVERIFY(lost.Look(Seen(FirstEpochOf(9), "p", ""), kEpoch, "c").ok());
    QVERIFY(!lost.Due().has_value());
  }

  // A node that goes on saying so gets nothing more, and neither do many at a time.
  void Liars_CostLittle() {
    LostGenerations lost(clock_);
    QVERIFY(lost.Look(Seen(FirstEpochOf(1000)), kEpoch, "c").ok());
    QVERIFY(lost.Due().has_value());
    for (int i = 0; i < 100; ++i)
      QVERIFY(lost.Look(Seen(FirstEpochOf(1000), absl::StrCat("q", i)), kEpoch, "c").ok());
    QVERIFY(!lost.Due().has_value());
    clock_.Advance(base::Scaled(LostGenerations::kInterval));
    QVERIFY(lost.Look(Seen(FirstEpochOf(1000)), kEpoch, "c").ok());
    QVERIFY(!lost.Due().has_value());
    QVERIFY(lost.Look(Seen(FirstEpochOf(1000), "q"), kEpoch, "c").ok());
    QVERIFY(lost.Due().has_value());
    // What could not begin is tried again, but not at once.
    lost.TryAgain();
    QVERIFY(lost.Look(Seen(FirstEpochOf(1000), "q"), kEpoch, "c").ok());
    QVERIFY(!lost.Due().has_value());
    clock_.Advance(base::Scaled(LostGenerations::kInterval));
    QVERIFY(lost.Look(Seen(FirstEpochOf(1000), "q"), kEpoch, "c").ok());
    QVERIFY(lost.Due().has_value());
    // Under another leader it may be true.
    lost.Clear();
    QVERIFY(lost.Look(Seen(FirstEpochOf(1000)), kEpoch, "c").ok());
    QVERIFY(lost.Due().has_value());
  }

  // A backup was restored twice: this leader is in the first generation again, and a node has a
  // table of the one that was lost. It takes the next one without a restart.
  void Leader_BeginsAGenerationThatNodesTake() {
    const QTemporaryDir dir;
    ServedNodeManager server(dir.path().toStdString());
    const auto registered = server.Register(MakeNode("p", v1::PROXY));
    QVERIFY(registered.ok());
    const auto epoch = [&] {
      std::uint64_t now = 0;
      server.controller().Read([&](const StateMachine& state) { now = state.epoch(); });
      return now;
    };
    const std::string cluster = registered->cluster_id();
    // Nobody who is not registered is believed.
    QCOMPARE(Reason(server.Report(Seen(epoch() + 500, "nobody", cluster)).status()),
             std::string("NODE_UNKNOWN"));
    server.controller().RaiseGeneration();
    QCOMPARE(base::GenerationOf(epoch()), std::uint32_t{0});
    QCOMPARE(Reason(server.Report(Seen(FirstEpochOf(5000), "p", cluster)).status()),
             std::string("BAD_EPOCH"));
    RoutingReader routing(server, &Stub::WatchRouting, [] {
      v1::WatchRoutingRequest request;
      request.set_workflow_set("default");
      return request;
    }());
    (void)routing.Next();
    const std::uint64_t seen = FirstEpochOf(2) + 500;
    QVERIFY(server.Report(Seen(seen, "p", cluster)).ok());
    server.controller().RaiseGeneration();
    QCOMPARE(base::GenerationOf(epoch()), std::uint32_t{3});
    QVERIFY(routing.Next([&](const v1::RoutingTable& table) { return table.epoch() > seen; })
                .alive_size() == 1);
    // It is over: the same report, which was under way, changes nothing.
    QVERIFY(server.Report(Seen(seen, "p", cluster)).ok());
    server.controller().RaiseGeneration();
    QCOMPARE(base::GenerationOf(epoch()), std::uint32_t{3});
    server.Shutdown();
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::LostGenerationsTest)
#include "lost_generations_test.moc"
