#include "stages/instance/work_counts.h"

#include <QtTest>
#include <numeric>

#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

message::Header Header(const std::string& stage, const std::string& app) {
  message::Header header;
  header.stage = stage;
  header.app = app;
  return header;
}

runtime::WorkTiming Timing(base::Duration compute) {
  return {
      .transfer = std::chrono::seconds(1), .queued = std::chrono::seconds(2), .compute = compute};
}

}  // namespace

class WorkCountsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void SizeOf_CountsByWhatTheStageCosts() {
    v1::RoutingTable table;
    v1::Workflow& workflow = *table.add_workflows();
    workflow.set_app_id("a");
    workflow.add_stages()->set_stage("text");
    workflow.add_stages()->set_stage("paint");
    workflow.mutable_stages(1)->add_cost("steps");
    v1::ParameterSpec& steps = *workflow.add_parameters();
    steps.set_name("steps");
    steps.set_type(v1::ParameterSpec::INTEGER);
    const node::Routing routing(table);
    message::Message message;
    message.parameters["steps"] = std::int64_t{8};
    message.header = Header("paint", "a");
    QCOMPARE(SizeOf(routing, message).units, 8.0);
    message.header.stage = "text";
    QCOMPARE(SizeOf(routing, message).units, 1.0);
    message.header.app = "unknown";
    QCOMPARE(SizeOf(routing, message).units, 1.0);
  }

  void Count_AddsUpByStageAndApplication() {
    WorkCounts counts;
    counts.Count(Header("s", "a"), {10, {}}, Timing(std::chrono::seconds(2)),
                 WorkCounts::Outcome::kDone);
    counts.Count(Header("s", "a"), {5, {}}, Timing(std::chrono::seconds(3)),
                 WorkCounts::Outcome::kDone);
    counts.Count(Header("s", "a"), {5, {}}, Timing(std::chrono::seconds(1)),
                 WorkCounts::Outcome::kFailed);
    counts.Count(Header("s", "a"), {5, {}}, Timing(std::chrono::seconds(1)),
                 WorkCounts::Outcome::kHandedOver);
    counts.Count(Header("s", "b"), {1, {}}, Timing(std::chrono::milliseconds(1)),
                 WorkCounts::Outcome::kDone);
    counts.Loaded("s", "b", std::chrono::milliseconds(1500));
    v1::NodeLoad load;
    counts.AddTo(load);
    QCOMPARE(load.stages_size(), 2);
    const v1::StageLoad& a = load.stages(0);
    QCOMPARE(a.app_id(), std::string("a"));
    QCOMPARE(a.stage(), std::string("s"));
    QCOMPARE(a.jobs(), std::uint64_t{2});
    QCOMPARE(a.units(), 15.0);
    QCOMPARE(a.compute_s(),
             6.0);  // Handed-over work is part of the cost of jobs; failures are not.
    QCOMPARE(a.compute_squares_s2(), 14.0);
    QCOMPARE(a.queued_s(), 4.0);
    QCOMPARE(a.transfer_s(), 2.0);
    QCOMPARE(a.failures(), std::uint64_t{1});
    QCOMPARE(load.stages(1).load_s(), 1.5);
    QCOMPARE(load.stages(1).failures(), std::uint64_t{0});
  }

  void Count_AddsUpTheTermsOfJobsThatEndHere() {
    WorkCounts counts;
    const auto count = [&](std::vector<double> terms, int seconds, WorkCounts::Outcome outcome) {
      counts.Count(Header("s", "a"), {1, std::move(terms)}, Timing(std::chrono::seconds(seconds)),
                   outcome);
    };
    const auto sums = [&] {
      v1::NodeLoad load;
      counts.AddTo(load);
      return load.stages(0).cost_sums();
    };
    count({1, 3}, 2, WorkCounts::Outcome::kDone);
    count({1, 5}, 4, WorkCounts::Outcome::kDone);
    count({1, 7}, 9, WorkCounts::Outcome::kHandedOver);  // Its end, and most of it, is elsewhere.
    count({1, 7}, 9, WorkCounts::Outcome::kFailed);
    v1::CostSums expected;
    expected.set_jobs(2);
    for (const double xx : {2, 8, 34}) expected.add_xx(xx);
    for (const double xy : {6, 26}) expected.add_xy(xy);
    expected.set_yy(20);
    QCOMPARE(sums().DebugString(), expected.DebugString());
    count({2}, 3, WorkCounts::Outcome::kDone);  // The workflow has changed.
    QCOMPARE(sums().jobs(), std::uint64_t{1});
    QCOMPARE(sums().xx_size(), 1);
    count({}, 3, WorkCounts::Outcome::kDone);
    QCOMPARE(sums().xy(0), 6.0);
  }

  void Count_ClocksOfTwoHostsDiffer_NoTransferIsCounted() {
    WorkCounts counts;
    runtime::WorkTiming timing = Timing(std::chrono::seconds(2));
    for (const int minutes : {-3, 3}) {
      timing.transfer = std::chrono::minutes(minutes);
      counts.Count(Header("s", "a"), {1, {}}, timing, WorkCounts::Outcome::kDone);
    }
    v1::NodeLoad load;
    counts.AddTo(load);
    QCOMPARE(load.stages(0).transfer_s(), 0.0);
  }

  void Buckets_HoldWhatIsBelowTheirBound_data() {
    QTest::addColumn<qlonglong>("compute_us");
    QTest::addColumn<int>("bucket");
    QTest::newRow("clock went back") << qlonglong{-5} << 0;
    QTest::newRow("below 1 ms") << qlonglong{999} << 0;
    QTest::newRow("1 ms") << qlonglong{1000} << 1;
    QTest::newRow("below 2 ms") << qlonglong{1999} << 1;
    QTest::newRow("1 s") << qlonglong{1'000'000} << 10;
    QTest::newRow("1.024 s") << qlonglong{1'024'000} << 11;
    QTest::newRow("an hour") << qlonglong{3'600'000'000} << 20;
  }
  void Buckets_HoldWhatIsBelowTheirBound() {
    QFETCH(qlonglong, compute_us);
    QFETCH(int, bucket);
    WorkCounts counts;
    counts.Count(Header("s", "a"), {1, {}}, Timing(std::chrono::microseconds(compute_us)),
                 WorkCounts::Outcome::kDone);
    v1::NodeLoad load;
    counts.AddTo(load);
    const auto& buckets = load.stages(0).compute_buckets();
    QCOMPARE(buckets.size(), WorkCounts::kBuckets);
    QCOMPARE(buckets.Get(bucket), std::uint64_t{1});
    QCOMPARE(std::accumulate(buckets.begin(), buckets.end(), std::uint64_t{0}), std::uint64_t{1});
  }

  void Entries_AreBoundedAndNeverFall() {
    WorkCounts counts;
    counts.Count(Header("s", "first"), {1, {}}, Timing({}), WorkCounts::Outcome::kDone);
    for (int i = 0; i < 2000; ++i)
      counts.Count(Header("s", "app-" + std::to_string(i)), {1, {}}, Timing({}),
                   WorkCounts::Outcome::kDone);
    counts.Count(Header("s", "first"), {1, {}}, Timing({}), WorkCounts::Outcome::kDone);
    v1::NodeLoad load;
    counts.AddTo(load);
    QCOMPARE(load.stages_size(), static_cast<int>(WorkCounts::kMaxEntries));
    std::uint64_t of_first = 0;
    for (const v1::StageLoad& stage : load.stages()) {
      if (stage.app_id() == "first") of_first = stage.jobs();
    }
    QCOMPARE(of_first, std::uint64_t{2});
  }
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::WorkCountsTest)
#include "work_counts_test.moc"
