// Tests that the simulation catches everything that is broken on purpose.
#include <QtTest>
#include <thread>

#include "tests/nodemanager/paxos/sim/report.h"
#include "tests/test_main.h"

namespace onepiece::paxos::sim {
namespace {

/// A mutant must be caught within this many histories, from the first seed on.
constexpr std::uint64_t kSeeds = 10'000;

}  // namespace

class MutantsTest : public QObject {
  Q_OBJECT

 private Q_SLOTS:
  void EveryMutant_IsCaught() {
#if defined(ONEPIECE_SANITIZED)
    QSKIP("what is caught is the same; the other presets run it");
#endif
    NameSeedOnAbort();
    QStringList survivors;
    QString table = QString("%1  seeds  invariant").arg("mutant", -26);
    for (const NamedMutant& mutant : AllMutants()) {
      if (mutant.name == "none") continue;
      const Report report = RunSeeds(1, kSeeds, std::thread::hardware_concurrency(), mutant);
      if (!report.failure) survivors << QString::fromStdString(mutant.name);
      table += QString("\n%1  %2  %3")
                   .arg(QString::fromStdString(mutant.name), -26)
                   .arg(report.failure ? QString::number(report.failure->seed) : "-", 5)
                   .arg(report.failure ? report.failure->violation.invariant.c_str() : "survives");
    }
    qInfo("%s", qPrintable(table));
    QVERIFY2(survivors.isEmpty(), qPrintable("not caught: " + survivors.join(", ")));
  }
};

}  // namespace onepiece::paxos::sim

ONEPIECE_TEST(onepiece::paxos::sim::MutantsTest)
#include "mutants_test.moc"
