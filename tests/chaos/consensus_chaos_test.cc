// Runs three NodeManager replicas, real processes on hosts of their own, under load, while
// processes are killed and stopped and the network is cut at random. Nothing acknowledged is lost,
// the clients' history is linearisable, and revisions never go back.
//
// ONEPIECE_SEED repeats the choice of faults (not their effects: the processes are real).
// ONEPIECE_LONG=1 takes minutes instead of seconds; Qt then needs QTEST_FUNCTION_TIMEOUT=3600000.
#include <QtTest>
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_format.h"
#include "cluster/base/ids.h"
#include "cluster/rpc/tls.h"
#include "tests/chaos/group.h"
#include "tests/chaos/hosts.h"
#include "tests/chaos/load.h"
#include "tests/chaos/nemesis.h"
#include "tests/chaos/watcher.h"
#include "tests/eventually.h"
#include "tests/test_main.h"

namespace onepiece::chaos {
namespace {

using nlohmann::json;
using paxos::sim::Operation;
using testing::Eventually;

// A limit and not a promise: what has not come back by then never does.
const base::Duration kLimit = base::Scaled(std::chrono::seconds(20));

double Milliseconds(base::Duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

json Summary(std::vector<double> values) {
  if (values.empty()) return {{"count", 0}};
  std::sort(values.begin(), values.end());
  // Returns the smallest value that at least this share of all values does not exceed.
  const auto rank = [&](double share) {
    const auto place = static_cast<std::size_t>(std::ceil(share * double(values.size())));
    return values[std::max<std::size_t>(place, 1) - 1];
  };
  return {{"count", values.size()},
          {"min_ms", values.front()},
          {"median_ms", rank(0.5)},
          {"p99_ms", rank(0.99)},
          {"max_ms", values.back()}};
}

}  // namespace

class ConsensusChaosTest : public QObject {
  Q_OBJECT
 public:
  // It asks again and again, and nobody else in this process looks after its connections.
  static void initMain() { rpc::PollInBackground(); }

 private Q_SLOTS:
  void initTestCase() {
    std::string why;
    if (!hosts_.Make(why)) QSKIP(("no network namespaces here: " + why).c_str());
    const std::string errors = hosts_.Join();
    QVERIFY2(errors.empty(), errors.c_str());
    const char* given = std::getenv("ONEPIECE_SEED");
    seed_ = given != nullptr ? std::strtoull(given, nullptr, 10) : base::RandomU64();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed_));
    random_.emplace(seed_);
    group_.emplace(folder_.path().toStdString());
    nemesis_.emplace(*group_, hosts_);
    for (int i = 0; i < Group::kReplicas; ++i) {
      const absl::Status started = group_->Start(i);
      QVERIFY2(started.ok(), started.ToString().c_str());
    }
    QVERIFY2(Eventually(kLimit, [&] { return group_->IsWhole(); }), group_->Logs().c_str());
    load_.emplace(Load::Options{.addresses = Group::Addresses(), .seed = seed_});
    watcher_.emplace(Group::Addresses());
    load_->Start();
    load_->ExpectWrite();
    QVERIFY2(load_->WaitForWrite(kLimit), group_->Logs().c_str());
  }
  void cleanup() {
    if (!nemesis_) return;
    for (int i = 0; i < Group::kReplicas; ++i) nemesis_->Heal(i);  // If a test ended early.
    if (!QTest::currentTestFailed()) return;
    for (const std::string& line : trace_) qWarning("%s", line.c_str());
    qWarning("%s", group_->Logs().c_str());
  }

  void NoFault_ServesAtFullRate() {
    steady_from_ = base::SystemClock().Now();
    testing::Pause(Long() ? std::chrono::seconds(20) : std::chrono::seconds(5));
    steady_to_ = base::SystemClock().Now();
    VerifyNoComplaint();
  }

  void KilledPrimary_AnotherServes() {
    std::vector<double> outages;
    for (int i = 0; i < (Long() ? 100 : 4); ++i) {
      std::optional<int> leader;
      QVERIFY(Eventually(kLimit, [&] { return group_->IsWhole(); }));
      QVERIFY(Eventually(kLimit, [&] { return (leader = group_->Leader()).has_value(); }));
      Trace("kill the primary", *leader);
      const base::MonotonicTime killed = base::SystemClock().Now();
      group_->Kill(*leader);
      load_->ExpectWrite();
      const std::optional<base::MonotonicTime> served = load_->WaitForWrite(kLimit);
      QVERIFY2(served, "no write was acknowledged after the primary was killed");
      outages.push_back(Milliseconds(*served - killed));
      testing::Pause(Some(100, 500));
      const absl::Status started = group_->Start(*leader);
      QVERIFY2(started.ok(), started.ToString().c_str());
      testing::Pause(Some(300, 1000));
    }
    report_["primary_killed"] = Summary(outages);
    VerifyNoComplaint();
  }

  void RandomFaults_ServiceComesBack() {
    const base::MonotonicTime end =
        base::SystemClock().Now() + (Long() ? std::chrono::seconds(300) : std::chrono::seconds(10));
    std::array<std::vector<double>, kFaults> outages;
    // Each kind of fault comes once by itself. Later faults are drawn.
    for (int turn = 0; base::SystemClock().Now() < end || turn < kFaults; ++turn) {
      const auto fault = static_cast<Fault>(turn < kFaults ? turn : random_->Below(kFaults));
      const std::optional<int> leader = group_->Leader();
      const int first = leader && random_->Chance(0.5) ? *leader : AnyReplica();
      const bool both = turn >= kFaults && random_->Chance(0.2);
      Trace(NameOf(fault), first);
      const base::MonotonicTime struck = base::SystemClock().Now();
      load_->ExpectWrite();
      QCOMPARE(nemesis_->Strike(first, fault, *random_), std::string());
      if (both) {
        const int second = (first + 1 + static_cast<int>(random_->Below(2))) % Group::kReplicas;
        const auto also = static_cast<Fault>(random_->Below(kFaults));
        Trace(NameOf(also), second);
        QCOMPARE(nemesis_->Strike(second, also, *random_), std::string());
      }
      testing::Pause(Some(100, 3000));
      // If a leader wakes up soon, clients still wait for it.
      if (!both && fault != Fault::kPause) {
        QVERIFY2(load_->WaitForWrite(kLimit), "a majority is well, but does not serve");
      }
      for (int i = 0; i < Group::kReplicas; ++i) QCOMPARE(nemesis_->Heal(i), std::string());
      Trace("all is well", -1);
      const std::optional<base::MonotonicTime> served = load_->WaitForWrite(kLimit);
      QVERIFY2(served, "no write was acknowledged since the faults");
      if (!both) outages[static_cast<std::size_t>(fault)].push_back(Milliseconds(*served - struck));
      load_->ExpectWrite();
      QVERIFY2(load_->WaitForWrite(kLimit), "no write was acknowledged after the faults");
      testing::Pause(Some(100, 1000));
    }
    for (int i = 0; i < kFaults; ++i)
      report_["outage"][NameOf(static_cast<Fault>(i))] = Summary(outages[i]);
    VerifyNoComplaint();
  }

  void InTheEnd_ReplicasAgree() {
    load_->Stop();
    QVERIFY2(Eventually(kLimit, [&] { return group_->IsWhole() && group_->IsEven(); }),
             "the replicas do not reach the same slot");
    VerifyNoComplaint();
  }

  void InTheEnd_NothingWasLost() {
    load_->Stop();
    const std::map<std::string, std::uint64_t> values = load_->ReadAll();
    QVERIFY(!values.empty());
    QVERIFY2(Eventually(kLimit, [&] { return watcher_->values() == values; }),
             "what was watched is not what is there");
    VerifyNoComplaint();
    const std::vector<Operation> history = load_->History();
    Report(history);
    const auto impossible = paxos::sim::FindNonLinearisable(history);
    QVERIFY2(!impossible, impossible.value_or("").c_str());
  }

 private:
  static bool Long() { return qEnvironmentVariableIntValue("ONEPIECE_LONG") != 0; }

  int AnyReplica() { return static_cast<int>(random_->Below(Group::kReplicas)); }
  base::Duration Some(double low_ms, double high_ms) {
    return std::chrono::microseconds(
        static_cast<std::int64_t>(random_->LogBetween(low_ms, high_ms) * 1000));
  }

  void Trace(const std::string& what, int replica) {
    trace_.push_back(
        absl::StrFormat("%.3f s %s %s", Milliseconds(base::SystemClock().Now() - begin_) / 1000,
                        what, replica < 0 ? "" : "nodemanager-" + std::to_string(replica + 1)));
  }

  void VerifyNoComplaint() {
    group_->Look();
    std::string all;
    for (const auto& complaints :
         {group_->complaints(), load_->complaints(), watcher_->complaints()}) {
      for (const std::string& complaint : complaints) all += complaint + "\n";
    }
    QVERIFY2(all.empty(), all.c_str());
  }

  void Report(const std::vector<Operation>& history) {
    std::vector<double> latencies;
    for (const Operation& operation : history) {
      if (operation.kind != Operation::Kind::kWrite || operation.returned == Operation::kNever ||
          operation.called < steady_from_.time_since_epoch().count() ||
          operation.returned > steady_to_.time_since_epoch().count())
        continue;
      latencies.push_back(double(operation.returned - operation.called) / 1e6);
    }
    const double seconds = Milliseconds(steady_to_ - steady_from_) / 1000;
    report_["steady"] = Summary(latencies);
    report_["steady"]["proposals_per_s"] = double(latencies.size()) / std::max(seconds, 1e-9);
    const Load::Counters counters = load_->counters();
    report_["writes"] = {{"acknowledged", counters.acknowledged}, {"unknown", counters.unknown}};
    report_["operations_judged"] = history.size();
    report_["rounds"] = group_->round();
    report_["watch_streams"] = watcher_->streams();
    report_["seed"] = seed_;
    qInfo("%s", report_.dump().c_str());
  }

  QTemporaryDir folder_;
  Hosts hosts_{Group::kReplicas};
  std::uint64_t seed_ = 0;
  const base::MonotonicTime begin_ = base::SystemClock().Now();
  base::MonotonicTime steady_from_{}, steady_to_{};
  std::vector<std::string> trace_;
  json report_;
  std::optional<paxos::sim::Random> random_;
  std::optional<Group> group_;
  std::optional<Nemesis> nemesis_;
  std::optional<Load> load_;
  std::optional<Watcher> watcher_;
};

}  // namespace onepiece::chaos

ONEPIECE_TEST(onepiece::chaos::ConsensusChaosTest)
#include "consensus_chaos_test.moc"
