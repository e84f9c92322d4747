// What is known of a job when its client is told of it. The databases here tell each other nothing.
#include <QtTest>

#include "tests/proxy/plain_database.h"
#include "tests/test_main.h"

namespace onepiece::proxy {
namespace {

struct PlainCluster : Cluster {
  PlainCluster() { TakePlace(*this, {&third, &fourth}); }
  /// Returns the database that is asked second about this job.
  PlainDatabase& SecondOf(const std::string& uid) {
    return Order(uid)[1] == "db-3" ? third : fourth;
  }

  PlainDatabase third, fourth;
  FakeInstance instance{*this};
  Proxy proxy{*this, "proxy-1"};
};

}  // namespace

class AcceptanceTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  // Either of them may be killed before it has told the other.
  void Submit_TwoDatabasesKnowTheJobBeforeItsClientDoes() {
    PlainCluster cluster;
    for (const v1::SubmitJobRequest& request : {RequestWithId(), Request(), RequestWithId()}) {
      const Job job = cluster.proxy.Begin(request);
      QVERIFY(cluster.third.Knows(job.uid()) && cluster.fourth.Knows(job.uid()));
    }
  }

  // The call that made the job may have died before its copy was made.
  void Submit_OfAKnownJob_BringsItToTheSecondDatabase() {
    PlainCluster cluster;
    const v1::SubmitJobRequest request = RequestWithId();
    const Job job = cluster.proxy.Begin(request);
    QVERIFY(cluster.instance.Receive().ok());
    cluster.SecondOf(job.uid()).Lose();
    QCOMPARE(cluster.proxy.Begin(request).uid(), job.uid());
    QVERIFY(cluster.SecondOf(job.uid()).Knows(job.uid()));
  }

  void Submit_WhileTheSecondDatabaseIsSilent_GoesOn() {
    PlainCluster cluster;
    cluster.third.BlockCopies();
    cluster.fourth.BlockCopies();
    const Job job = cluster.proxy.Begin(RequestWithId());
    QVERIFY(!cluster.SecondOf(job.uid()).Knows(job.uid()));
    QVERIFY(cluster.instance.Receive().ok());
  }
};

}  // namespace onepiece::proxy

ONEPIECE_TEST(onepiece::proxy::AcceptanceTest)
#include "acceptance_test.moc"
