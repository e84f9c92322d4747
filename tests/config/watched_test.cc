#include "cluster/config/watched.h"

#include <QtTest>
#include <algorithm>
#include <string>

#include "tests/test_main.h"

namespace onepiece::config {
namespace {

v1::AlertRule Rule(const std::string& watches, bool threshold) {
  v1::AlertRule rule;
  rule.set_name("a");
  rule.set_watches(watches);
  if (threshold) rule.set_above(1);
  return rule;
}

}  // namespace

class WatchedTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void KnownOnes_ArePassed() {
    for (const std::string_view condition : kAlertConditions)
      QVERIFY(CheckWatches(Rule(std::string(condition), false)).ok());
    for (const char* series :
         {"node/*/utilization", "node/i/stages/app/dit/jobs", "node/*/devices/*/temperature_c",
          "node/*/stages/app/dit/compute_buckets/3", "node/p/last_report_time/seconds",
          "ring/*/used_slots", "pool/*/utilization", "database/*/records", "jobs/queued"}) {
      const absl::Status status = CheckWatches(Rule(series, true));
      QVERIFY2(status.ok(), base::Message(status).c_str());
    }
    for (const std::string_view kind : kSeriesKinds) QVERIFY(!SeriesOfKind(kind).empty());
  }

  void UnknownOnes_AreRefusedWithTheNearest_data() {
    QTest::addColumn<QString>("watches");
    QTest::addColumn<bool>("threshold");
    QTest::addColumn<QString>("said");
    const auto row = [](const char* watches, bool threshold, const char* said) {
      QTest::newRow(watches) << watches << threshold << said;
    };
    row("node-ded", false, "did you mean 'node-dead'");
    row("node/*/utilisation", true, "did you mean 'utilization'");
    row("jobs/waiting", true, "known: queued, running");
    row("nodes/*/utilization", true, "node/, ring/");
    row("node/", true, "no series of node/");
    row("", true, "come first");
    row("node-dead", true, "above and below are for series");
    row("node/*/utilization", false, "or a series with above or below");
    // What says what a thing is, is no series.
    row("ring/*/incarnation", true, "no series of ring/");
    row("node/utilization/*/*", true, "no series of node/");
  }
  void UnknownOnes_AreRefusedWithTheNearest() {
    QFETCH(QString, watches);
    QFETCH(bool, threshold);
    QFETCH(QString, said);
    const absl::Status status = CheckWatches(Rule(watches.toStdString(), threshold));
    QVERIFY(status.code() == absl::StatusCode::kInvalidArgument);
    QVERIFY2(QString::fromStdString(base::Message(status)).contains(said),
             base::Message(status).c_str());
  }
};

}  // namespace onepiece::config

ONEPIECE_TEST(onepiece::config::WatchedTest)
#include "watched_test.moc"
