// The ledger finds every planted loss, and says nothing of a cluster that keeps its word.
#include "tests/chaos/ledger.h"

#include <QtTest>
#include <map>
#include <set>

#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "tests/chaos/ledger_audit.h"
#include "tests/chaos/ledger_bytes.h"
#include "tests/chaos/ledger_latency.h"
#include "tests/chaos/ledger_run.h"
#include "tests/test_main.h"

namespace onepiece::ledger {
namespace {

using std::chrono::seconds;
using v1::Job;

constexpr char kUid[] = "job-1";
const std::string kGood(64, 'a'), kOther(64, 'b');

base::MonotonicTime At(int second) { return base::MonotonicTime(seconds(second)); }

/// An answer that was asked for at `second` and came at once.
Word Says(const std::string& proxy, Job::State state, int second, const std::string& reason = "") {
  Word word{
      .proxy = proxy, .asked = At(second), .had = At(second), .state = state, .reason = reason};
  if (state == Job::SUCCEEDED) word.sha256 = kGood;
  return word;
}

/// A ledger with one accepted job, which must end within a minute and is kept for an hour.
struct OneJob {
  Ledger ledger;
  OneJob() {
    ledger.Accepted(
        kUid,
        {.sha256 = kGood, .sent = At(0), .deadline = seconds(60), .result_ttl = seconds(3600)});
  }
  void Told(const Word& word) { ledger.Told(kUid, word); }
};

/// A scripted cluster: what it says of each job, and what it has of its result.
class FakeCluster final : public Source {
 public:
  std::map<std::string, Word> jobs;
  std::map<std::string, std::string> results;  ///< SHA-256.
  std::map<std::string, int> refusals;         ///< So many fetches fail before one works.
  int passes = 1;                              ///< Looks at the jobs.
  int asked = 0;

  absl::StatusOr<Word> Ask(const std::string& uid) override {
    ++asked;
    const auto found = jobs.find(uid);
    if (found == jobs.end()) return absl::NotFoundError("JOB_UNKNOWN");
    if (found->second.state == Job::STATE_UNSPECIFIED) return absl::UnavailableError("silent");
    return found->second;
  }
  absl::StatusOr<std::string> Fetch(const std::string& uid) override {
    if (refusals[uid]-- > 0) return absl::UnavailableError("later");
    const auto found = results.find(uid);
    if (found == results.end()) return absl::FailedPreconditionError("LOST_ON_RESTART");
    return found->second;
  }
  bool Wait() override { return --passes > 0; }
};

std::string KindsOf(const Ledger& ledger) {
  std::string kinds;
  for (const auto& [kind, count] : ledger.Judge().ByKind())
    kinds += kind + " " + std::to_string(count) + " ";
  return kinds;
}

std::int64_t CountOf(const Ledger& ledger, const std::string& name) {
  const Verdict verdict = ledger.Judge();
  const auto found = verdict.counts.find(name);
  return found == verdict.counts.end() ? 0 : found->second;
}

}  // namespace

class LedgerTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void SoundCluster_NoViolation() {
    OneJob job;
    FakeCluster cluster;
    job.Told(Says("p1", Job::QUEUED, 1));
    job.Told(Says("p2", Job::RUNNING, 2));
    job.Told(Says("p1", Job::SUCCEEDED, 3));
    job.Told(Says("p2", Job::SUCCEEDED, 4));
    job.ledger.Fetched(kUid, kGood);
    cluster.jobs[kUid] = Says("p1", Job::SUCCEEDED, 5);
    cluster.results[kUid] = kGood;
    Audit(job.ledger, cluster);
    QCOMPARE(KindsOf(job.ledger), std::string());
    QCOMPARE(CountOf(job.ledger, "accepted"), 1);
    QCOMPARE(CountOf(job.ledger, "succeeded"), 1);
    QCOMPARE(CountOf(job.ledger, "fetches"), 2);
  }

  void AnnouncedResult_RemovedBehindTheClustersBack_IsLost() {
    OneJob job;
    FakeCluster cluster;
    job.Told(Says("p1", Job::SUCCEEDED, 3));
    cluster.jobs[kUid] = Says("p1", Job::SUCCEEDED, 5);
    Audit(job.ledger, cluster);
    QCOMPARE(KindsOf(job.ledger), std::string("lost 1 "));
  }
  void AnnouncedJob_NoDatabaseKnowsIt_IsLost() {
    OneJob job;
    FakeCluster cluster;
    job.Told(Says("p1", Job::SUCCEEDED, 3));
    Audit(job.ledger, cluster);
    QCOMPARE(KindsOf(job.ledger), std::string("lost 1 "));
  }
  void AnnouncedJob_NobodyAnswersForIt_IsLost() {
    OneJob job;
    FakeCluster cluster;
    job.Told(Says("p1", Job::SUCCEEDED, 3));
    cluster.jobs[kUid] = Word();
    Audit(job.ledger, cluster);
    QCOMPARE(KindsOf(job.ledger), std::string("lost 1 "));
  }
  void AnnouncedResult_SaidToBeLost_IsLostAndASecondEnd() {
    OneJob job;
    FakeCluster cluster;
    job.Told(Says("p1", Job::SUCCEEDED, 3));
    cluster.jobs[kUid] = Says("p1", Job::FAILED, 5, "LOST_ON_RESTART");
    Audit(job.ledger, cluster);
    QCOMPARE(KindsOf(job.ledger), std::string("lost 1 two_ends 1 "));
  }
  void Result_ThatComesBackDuringTheAudit_IsNotLost() {
    OneJob job;
    FakeCluster cluster;
    job.Told(Says("p1", Job::SUCCEEDED, 3));
    cluster.jobs[kUid] = Says("p1", Job::SUCCEEDED, 5);
    cluster.results[kUid] = kGood;
    cluster.refusals[kUid] = 2;
    cluster.passes = 3;
    Audit(job.ledger, cluster);
    QCOMPARE(KindsOf(job.ledger), std::string());
  }

  void ResultThatNeedNotBeThere_Gone_IsNoViolation_data() {
    QTest::addColumn<int>("wish");
    QTest::newRow("acknowledged") << static_cast<int>(Wish::kAcknowledge);
    QTest::newRow("deleted") << static_cast<int>(Wish::kDelete);
  }
  void ResultThatNeedNotBeThere_Gone_IsNoViolation() {
    QFETCH(int, wish);
    OneJob job;
    FakeCluster cluster;
    cluster.passes = 5;
    job.Told(Says("p1", Job::SUCCEEDED, 3));
    job.ledger.Asked(kUid, static_cast<Wish>(wish));  // Its answer was lost.
    if (static_cast<Wish>(wish) == Wish::kAcknowledge)
      cluster.jobs[kUid] = Says("p1", Job::SUCCEEDED, 5);
    Audit(job.ledger, cluster);
    QCOMPARE(KindsOf(job.ledger), std::string());
    QCOMPARE(cluster.asked, 1);  // The audit does not wait for what may be gone.
  }

  void TwoEnds_AreOneViolation_data() {
    QTest::addColumn<int>("first");
    QTest::addColumn<int>("second");
    QTest::newRow("cancelled, then succeeded")
        << static_cast<int>(Job::CANCELLED) << static_cast<int>(Job::SUCCEEDED);
    QTest::newRow("succeeded, then failed")
        << static_cast<int>(Job::SUCCEEDED) << static_cast<int>(Job::FAILED);
  }
  void TwoEnds_AreOneViolation() {
    QFETCH(int, first);
    QFETCH(int, second);
    OneJob job;
    job.ledger.Asked(kUid, Wish::kCancel);
    job.Told(Says("p1", static_cast<Job::State>(first), 3));
    job.Told(Says("p2", static_cast<Job::State>(second), 4));
    job.Told(Says("p1", static_cast<Job::State>(first), 5));
    QCOMPARE(KindsOf(job.ledger), std::string("two_ends 1 "));
  }
  void AnotherReason_IsASecondEnd() {
    OneJob job;
    job.Told(Says("p1", Job::FAILED, 3, "LOST"));
    job.Told(Says("p1", Job::FAILED, 3, "LOST"));
    QCOMPARE(KindsOf(job.ledger), std::string());
    job.Told(Says("p1", Job::FAILED, 4, "NO_INSTANCE"));
    QCOMPARE(KindsOf(job.ledger), std::string("two_ends 1 "));
  }

  void JobWithoutAnEnd_IsFound() {
    OneJob job;
    FakeCluster cluster;
    cluster.passes = 3;
    cluster.jobs[kUid] = Says("p1", Job::RUNNING, 100);
    Audit(job.ledger, cluster);
    QCOMPARE(KindsOf(job.ledger), std::string("without_end 1 "));
    QCOMPARE(cluster.asked, 3);
  }
  void JobThatNobodyAnswersFor_HasNoEnd() {
    OneJob job;
    FakeCluster cluster;
    cluster.jobs[kUid] = Word();
    Audit(job.ledger, cluster);
    QCOMPARE(KindsOf(job.ledger), std::string("without_end 1 "));
  }
  void AcceptedJob_NobodyKnowsIt_IsForgotten() {
    OneJob job;
    FakeCluster cluster;
    Audit(job.ledger, cluster);
    QCOMPARE(KindsOf(job.ledger), std::string("forgotten 1 "));
  }

  void ChangedBytes_AreFound() {
    OneJob job;
    job.Told(Says("p1", Job::SUCCEEDED, 3));
    job.ledger.Fetched(kUid, kGood);
    QCOMPARE(KindsOf(job.ledger), std::string());
    job.ledger.Fetched(kUid, kOther);
    QCOMPARE(KindsOf(job.ledger), std::string("changed 1 "));
  }
  void AnnouncementOfOtherBytes_IsFound() {
    OneJob job;
    Word word = Says("p1", Job::SUCCEEDED, 3);
    word.sha256 = kOther;
    job.Told(word);
    QCOMPARE(KindsOf(job.ledger), std::string("changed 1 "));
  }

  void EndedJob_GoesOnAtTheSameProxy_WentBack() {
    OneJob job;
    job.Told(Says("p1", Job::SUCCEEDED, 3));
    job.Told(Says("p1", Job::RUNNING, 4));
    QCOMPARE(KindsOf(job.ledger), std::string("went_back 1 "));
  }
  void EndedJob_GoesOnAtAnotherProxy_IsCounted() {
    OneJob job;
    job.Told(Says("p1", Job::SUCCEEDED, 3));
    job.Told(Says("p2", Job::RUNNING, 4));
    QCOMPARE(KindsOf(job.ledger), std::string());
    QCOMPARE(CountOf(job.ledger, "lagging"), 1);
  }
  void AnswerThatWasUnderWay_IsNeither() {
    OneJob job;
    job.Told(Says("p1", Job::SUCCEEDED, 3));
    Word late = Says("p1", Job::RUNNING, 2);
    late.had = At(4);
    job.Told(late);
    QCOMPARE(KindsOf(job.ledger), std::string());
    QCOMPARE(CountOf(job.ledger, "lagging"), 0);
  }

  void EndsThatCannotBeTrue_AreFound_data() {
    QTest::addColumn<int>("state");
    QTest::addColumn<QString>("reason");
    QTest::addColumn<int>("second");
    QTest::addColumn<bool>("true_end");
    const int failed = Job::FAILED, expired = Job::EXPIRED;
    QTest::newRow("cancelled by nobody") << static_cast<int>(Job::CANCELLED) << "" << 3 << false;
    QTest::newRow("deadline, early") << failed << "DEADLINE_EXCEEDED" << 59 << false;
    QTest::newRow("deadline") << failed << "DEADLINE_EXCEEDED" << 60 << true;
    QTest::newRow("expired, early") << expired << "" << 3599 << false;
    QTest::newRow("expired") << expired << "" << 3601 << true;
  }
  void EndsThatCannotBeTrue_AreFound() {
    QFETCH(int, state);
    QFETCH(QString, reason);
    QFETCH(int, second);
    QFETCH(bool, true_end);
    OneJob job;
    if (state == Job::EXPIRED) job.Told(Says("p1", Job::SUCCEEDED, 3));
    job.Told(Says("p1", static_cast<Job::State>(state), second, reason.toStdString()));
    QCOMPARE(KindsOf(job.ledger), std::string(true_end ? "" : "untruthful 1 "));
  }

  void Unfetched_IsWhatAKillCouldTake() {
    OneJob job;
    QVERIFY(job.ledger.Unfetched(At(100)).empty());
    job.Told(Says("p1", Job::SUCCEEDED, 3));
    QVERIFY(job.ledger.Unfetched(At(3)).empty());
    QCOMPARE(job.ledger.Unfetched(At(4)).size(), std::size_t{1});
    job.ledger.Fetched(kUid, kGood);
    QVERIFY(job.ledger.Unfetched(At(4)).empty());
  }

  void JobThatComesBackAfterItsDeletion_IsCounted() {
    OneJob job;
    job.Told(Says("p1", Job::SUCCEEDED, 3));
    job.ledger.Asked(kUid, Wish::kDelete);
    job.ledger.Answered(kUid, Wish::kDelete);
    job.Told(Says("p1", Job::SUCCEEDED, 4));
    QCOMPARE(CountOf(job.ledger, "came_back"), 1);
    QCOMPARE(KindsOf(job.ledger), std::string());
  }

  void RunWhoseFaultsMetNothing_IsBlind_AndDoesNotHold_data() {
    QTest::addColumn<int>("announced");
    QTest::addColumn<int>("unfetched");  // At the second of two faults.
    QTest::addColumn<bool>("blind");
    const int least = static_cast<int>(kMinUnfetched);
    QTest::newRow("enough") << 100 << least << false;
    QTest::newRow("a fault had nothing to take") << 100 << least - 1 << true;
    QTest::newRow("hardly anything was announced") << least - 1 << least << true;
  }
  void RunWhoseFaultsMetNothing_IsBlind_AndDoesNotHold() {
    QFETCH(int, announced);
    QFETCH(int, unfetched);
    QFETCH(bool, blind);
    RunReport report;
    report.verdict.counts["announced"] = announced;
    report.unfetched = {100, unfetched};
    QCOMPARE(report.Blind(), blind);
    QCOMPARE(report.Held(), !blind);
  }
  void RunWithAViolation_OrASkippedFault_DoesNotHold() {
    RunReport report;
    report.verdict.counts["announced"] = 100;
    QVERIFY(report.Held());
    report.faults["kill_database"].skipped = 1;
    QVERIFY(!report.Held());
    report.faults.clear();
    report.verdict.violations.push_back({"lost", kUid, ""});
    QVERIFY(!report.Held());
  }

  void Stopwatch_KnowsTheQuantiles_OfAStretch() {
    Stopwatch stopwatch;
    QCOMPARE(stopwatch.Of(At(0), At(1000)).jobs, 0);
    for (int i = 1; i <= 200; ++i) stopwatch.Add(At(i), seconds(i));
    const Latency first = stopwatch.Of(At(1), At(101));
    QCOMPARE(first.jobs, 100);
    QCOMPARE(first.p50, 50.);
    QCOMPARE(first.p99, 99.);
    const Latency one = stopwatch.Of(At(200), base::MonotonicTime::max());
    QCOMPARE(one.jobs, 1);
    QCOMPARE(one.p50, 200.);
    QCOMPARE(one.p99, 200.);
  }

  void Bytes_InPieces_AreTheSame() {
    std::string whole(100, '\0'), piece(48, '\0'), rest(52, '\0');
    Bytes(7).Next(whole);
    Bytes pieces(7);
    pieces.Next(piece);
    pieces.Next(rest);
    QCOMPARE(piece + rest, whole);
    Bytes(8).Next(piece);
    QVERIFY(piece != whole.substr(0, 48));
  }
};

}  // namespace onepiece::ledger

ONEPIECE_TEST(onepiece::ledger::LedgerTest)
#include "ledger_test.moc"
