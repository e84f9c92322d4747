// The schedule of faults is a pure function of its seed and keeps its rules.
#include "tests/chaos/ledger_schedule.h"

#include <QtTest>
#include <algorithm>
#include <cmath>
#include <set>

#include "cluster/base/status.h"
#include "tests/test_main.h"

namespace onepiece::ledger {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

/// By Role: databases, instances, proxies, NodeManagers, the machine, the NodeManagers' group.
const Population kAll = {2, 4, 2, 3, 1, 1};

std::vector<Injury> ScheduleOf(std::uint64_t seed, const std::string& faults = "all") {
  return MakeSchedule(seed, minutes(20), *ParseFaults(faults), kAll);
}

bool Overlap(const Injury& one, const Injury& other) {
  return one.at < other.at + other.lasts + RecoveryOf(other.role) &&
         other.at < one.at + one.lasts + RecoveryOf(one.role);
}

bool IsForDatabases(const Injury& injury) {
  return injury.role == Role::kDatabase || injury.role == Role::kMachine;
}

}  // namespace

class LedgerScheduleTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void SameSeed_SameSchedule() {
    QVERIFY(ScheduleOf(7) == ScheduleOf(7));
    QVERIFY(ScheduleOf(7) != ScheduleOf(8));
  }

  void LongerRun_BeginsAsTheShorterOne() {
    const auto longer = ScheduleOf(7);
    const auto shorter = MakeSchedule(7, minutes(1), *ParseFaults("all"), kAll);
    QVERIFY(!shorter.empty());
    QVERIFY(shorter.size() < longer.size());
    QVERIFY(std::equal(shorter.begin(), shorter.end(), longer.begin()));
  }

  void Injuries_ComeInOrder_WithinTheRun() {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const auto schedule = ScheduleOf(seed);
      QVERIFY(std::ranges::is_sorted(schedule, {}, &Injury::at));
      QVERIFY(!schedule.empty() && schedule.back().at < minutes(20));
    }
  }

  void OneDatabaseAtATime_AndNoFaultTwiceAtOnce() {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const auto schedule = ScheduleOf(seed);
      for (std::size_t i = 0; i < schedule.size(); ++i) {
        for (std::size_t j = i + 1; j < schedule.size(); ++j) {
          const Injury &one = schedule[i], &other = schedule[j];
          if (!Overlap(one, other)) continue;
          const QString text = QString::fromStdString(ToText(one) + " | " + ToText(other));
          QVERIFY2(!IsForDatabases(one) || !IsForDatabases(other), qPrintable(text));
          QVERIFY2(one.role != other.role || one.victim != other.victim, qPrintable(text));
        }
      }
    }
  }

  void NeverAMajorityOfNodeManagers_data() {
    QTest::addColumn<int>("managers");
    QTest::addColumn<int>("most");
    QTest::newRow("1") << 1 << 0;
    QTest::newRow("3") << 3 << 1;
    QTest::newRow("5") << 5 << 2;
  }
  void NeverAMajorityOfNodeManagers() {
    QFETCH(int, managers);
    QFETCH(int, most);
    Population population = kAll;
    population[static_cast<std::size_t>(Role::kNodeManager)] = managers;
    int seen = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const auto schedule = MakeSchedule(
          seed, minutes(20), *ParseFaults("kill_nodemanager,stop_nodemanager"), population);
      for (const Injury& now : schedule) {
        const auto down = std::ranges::count_if(schedule, [&](const Injury& other) {
          return other.at <= now.at && now.at < other.at + other.lasts + RecoveryOf(other.role);
        });
        seen = std::max(seen, static_cast<int>(down));
      }
    }
    QCOMPARE(seen, most);
  }

  void LossOfTheGroup_ComesAlone() {
    int losses = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const auto schedule = ScheduleOf(seed, "kill_nodemanager,stop_nodemanager,majority_lost");
      for (std::size_t i = 0; i < schedule.size(); ++i) {
        if (schedule[i].role != Role::kGroup) continue;
        ++losses;
        for (std::size_t j = 0; j < schedule.size(); ++j)
          QVERIFY(i == j || !Overlap(schedule[i], schedule[j]));
      }
    }
    QVERIFY(losses > 0);
  }

  void EveryFault_AndEveryVictim_Comes() {
    std::set<std::string_view> faults;
    std::set<std::pair<Role, int>> victims;
    std::set<std::pair<std::string_view, Role>> sufferers;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      for (const Injury& injury : ScheduleOf(seed)) {
        faults.insert(injury.fault);
        victims.insert({injury.role, injury.victim});
        sufferers.insert({injury.fault, injury.role});
        const auto kind = std::ranges::find(FaultKinds(), injury.fault, &FaultKind::name);
        QVERIFY(std::ranges::find(kind->roles, injury.role) != kind->roles.end());
        QVERIFY(injury.lasts >= kind->shortest && injury.lasts <= kind->longest);
      }
    }
    QCOMPARE(faults.size(), FaultKinds().size());
    std::size_t roles = 0;
    for (const FaultKind& kind : FaultKinds()) roles += kind.roles.size();
    QCOMPARE(sufferers.size(), roles);
    QCOMPARE(victims.size(), std::size_t{2 + 4 + 2 + 3 + 1 + 1});
  }

  void Rate_IsThatOfTheFaults_data() {
    QTest::addColumn<double>("per_minute");
    QTest::newRow("as usual") << kFaultsPerMinute;
    QTest::newRow("few") << 5.;
  }
  void Rate_IsThatOfTheFaults() {
    QFETCH(double, per_minute);
    // So many processes that the rules hardly ever forbid an injury.
    const Population many = {0, 1000, 0, 0, 0, 0};
    const auto schedule =
        MakeSchedule(7, minutes(300), *ParseFaults("kill_instance"), many, per_minute);
    const double rate = static_cast<double>(schedule.size()) / 300;
    QVERIFY2(std::abs(rate - per_minute) < per_minute / 10, qPrintable(QString::number(rate)));
  }

  void ParseFaults_NamesThem() {
    QCOMPARE(ParseFaults("all")->size(), FaultKinds().size());
    const auto two = ParseFaults("stop_proxy,kill_database");
    QVERIFY(two.ok());
    QCOMPARE(two->size(), std::size_t{2});
    QCOMPARE((*two)[0].name, std::string_view("stop_proxy"));
    const auto bad = ParseFaults("kill_database,kill_everybody");
    QCOMPARE(base::GetReason(bad.status()).reason, std::string("BAD_FAULT"));
    QVERIFY(base::Message(bad.status()).find("stop_proxy") != std::string::npos);
  }
};

}  // namespace onepiece::ledger

ONEPIECE_TEST(onepiece::ledger::LedgerScheduleTest)
#include "ledger_schedule_test.moc"
