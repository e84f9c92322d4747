// The wall clock of one process of each role is moved by a day and by a year, forth and back, under
// load. Nothing changes but the times that are shown: no job fails, no result is lost, and nobody
// is taken for dead.
#include <QtTest>
#include <atomic>
#include <cmath>
#include <random>

#include "cluster/base/status.h"
#include "cluster/client/client.h"
#include "tests/chaos/ledger_audit.h"
#include "tests/chaos/ledger_latency.h"
#include "tests/chaos/ledger_load.h"
#include "tests/eventually.h"
#include "tests/scrape.h"
#include "tests/test_main.h"

namespace onepiece::ledger {
namespace {

using std::chrono::seconds;

constexpr std::int64_t kDay = 86'400, kYear = 365 * kDay;  // Seconds.
constexpr std::int64_t kMoves[] = {kDay, -kDay, kYear, -kYear};
/// Jobs that must succeed after each move. Each goes to any proxy and any instance of its stages.
constexpr std::int64_t kJobsPerMove = 8;
constexpr auto kMoveLimit = seconds(60), kAuditLimit = seconds(120);
constexpr std::int64_t kLargest = std::int64_t{1} << 20;

/// Returns by how much a process sees its clock differ from the leading NodeManager's, in seconds;
/// NaN when it does not say.
double ShownSkew(const local::ProcessRecord& process) {
  static const QRegularExpression line("^onepiece_clock_skew_seconds(?:\\{[^}]*\\})? (\\S+)$",
                                       QRegularExpression::MultilineOption);
  const QByteArray metrics = testing::Scrape(process.metrics_address);
  const QRegularExpressionMatch match = line.match(QString::fromUtf8(metrics));
  return match.hasMatch() ? match.captured(1).toDouble() : std::nan("");
}

/// A cluster, its load, and what its clients heard.
class ClusterAtWork {
 public:
  explicit ClusterAtWork(Cluster& cluster)
      : cluster_(cluster),
        proxies_(cluster),
        watch_(std::in_place, ledger_, proxies_, stopwatch_),
        load_({.seed = std::random_device{}(),
               .largest_bytes = kLargest,
               .accepted = [this](const std::string& uid,
                                  base::MonotonicTime sent) { watch_->Watch(uid, sent); }},
              ledger_, proxies_) {
    load_.Start();
  }

  /// Waits until enough jobs have succeeded that were sent from now on.
  bool WorksOn() {
    const base::MonotonicTime from = Now();
    return testing::Eventually(base::Scaled(kMoveLimit), [&] {
      return stopwatch_.Of(from, base::MonotonicTime::max()).jobs >= kJobsPerMove;
    });
  }

  /// Moves a process's clock, and waits until it is shown.
  bool Move(Role role, int victim, std::int64_t by_s) {
    const local::ProcessRecord moved = cluster_.Find(role, victim);
    if (!cluster_.MoveClock(moved.node_id, by_s).ok()) return false;
    const auto is_near = [](double a, std::int64_t b) {
      return std::abs(a - static_cast<double>(b)) < 60;
    };
    return testing::Eventually(base::Scaled(kMoveLimit), [&] {
      // When it leads the NodeManagers, the others differ from it.
      return is_near(ShownSkew(moved), by_s) ||
             is_near(ShownSkew(cluster_.Find(Role::kDatabase, 0)), -by_s);
    });
  }

  /// Ends the load, and asks for every job.
  Verdict End() {
    load_.Stop();
    watch_.reset();
    ProxySource source(proxies_, Now() + base::Scaled(kAuditLimit));
    Audit(ledger_, source);
    return ledger_.Judge();
  }
  /// REQUIRES: End().
  [[nodiscard]] std::map<std::string, std::int64_t> Refused() const {
    std::map<std::string, std::int64_t> refused = load_.Refused();
    refused.erase("silent");  // Whoever was about to submit when the load ended.
    return refused;
  }

 private:
  Cluster& cluster_;
  Ledger ledger_;
  Proxies proxies_;
  Stopwatch stopwatch_;
  std::optional<EndWatch> watch_;
  LedgerLoad load_;
};

/// Returns what changes when a process is restarted or declared dead, by node.
std::map<std::string, std::string> Lives(const Cluster& cluster, client::Client& client) {
  std::map<std::string, std::string> lives;
  for (const Role role : {Role::kDatabase, Role::kInstance, Role::kProxy, Role::kNodeManager}) {
    for (const local::ProcessRecord& record : cluster.Ready(role))
      lives[record.node_id] = "process " + std::to_string(record.process.pid);
  }
  const auto known = client.GetCluster();
  if (!known.ok()) return {};
  for (const v1::Node& node : known->nodes()) {
    lives[node.node_id()] += " " + v1::Node::State_Name(node.state()) + " incarnation " +
                             std::to_string(node.incarnation());
  }
  return lives;
}

std::string ToText(const std::map<std::string, std::string>& lives) {
  std::string text;
  for (const auto& [node, life] : lives) text += node + ": " + life + "\n";
  return text;
}

/// Returns the number of the NodeManager that leads, or 0 when none says so.
int Leader(const Cluster& cluster, client::Client& client) {
  for (const client::ReplicaAnswer& answer : client.AskReplicas()) {
    if (!answer.status.ok() || answer.status->role() != v1::ReplicaStatus::LEADER) continue;
    for (int i = 0; i < Cluster::population().at(static_cast<std::size_t>(Role::kNodeManager));
         ++i) {
      if (cluster.Find(Role::kNodeManager, i).address == answer.address) return i;
    }
  }
  return 0;
}

}  // namespace

class ClockChaosTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void AMovedClock_ChangesNothingButWhatIsShown() {
    const Needs needs{.clocks = true};
    if (const absl::Status entered = EnterOwnMachine(needs); !entered.ok())
      QSKIP(base::Message(entered).c_str());
    const QTemporaryDir folder;
    const auto cluster = Cluster::Start({.folder = folder.path().toStdString(),
                                         .bin_dir = ONEPIECE_BINARY_DIR "/bin",
                                         .plugin_dir = ONEPIECE_BINARY_DIR "/tests/plugins/ledger",
                                         .needs = needs});
    QVERIFY2(cluster.ok(), base::Message(cluster.status()).c_str());
    client::ClientOptions options;
    for (const local::ProcessRecord& one : (*cluster)->Ready(Role::kNodeManager))
      options.nodemanagers.push_back(one.address);
    client::Client client(options);
    ClusterAtWork work(**cluster);
    QVERIFY2(work.WorksOn(), (*cluster)->Logs().c_str());
    const std::map<std::string, std::string> before = Lives(**cluster, client);
    QVERIFY(!before.empty());

    const std::pair<Role, int> victims[] = {{Role::kNodeManager, Leader(**cluster, client)},
                                            {Role::kDatabase, 1},
                                            {Role::kProxy, 0},
                                            {Role::kInstance, 0}};
    for (const auto& [role, victim] : victims) {
      for (const std::int64_t by_s : kMoves) {
        qInfo("%s by %lld s", (*cluster)->Find(role, victim).node_id.c_str(),
              static_cast<long long>(by_s));
        QVERIFY2(work.Move(role, victim, by_s), (*cluster)->Logs().c_str());
        QVERIFY2(work.WorksOn(), (*cluster)->Logs().c_str());
      }
      QVERIFY(work.Move(role, victim, 0));
    }

    const Verdict verdict = work.End();
    std::string counts;
    for (const auto& [name, count] : verdict.counts)
      counts += name + " " + std::to_string(count) + "\n";
    for (const Violation& violation : verdict.violations)
      counts += "VIOLATED " + violation.kind + " " + violation.uid + ": " + violation.what + "\n";
    QVERIFY2(verdict.violations.empty(), counts.c_str());
    // Nobody cancels a job, so each that was accepted succeeds.
    QVERIFY2(verdict.counts.at("accepted") == verdict.counts.at("succeeded"), counts.c_str());
    for (const auto& [reason, count] : work.Refused()) QFAIL(reason.c_str());
    const std::string now = ToText(Lives(**cluster, client));
    QVERIFY2(now == ToText(before), (ToText(before) + "is now\n" + now).c_str());
  }
};

}  // namespace onepiece::ledger

ONEPIECE_TEST(onepiece::ledger::ClockChaosTest)
#include "clock_chaos_test.moc"
