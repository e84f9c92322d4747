// Runs a cluster on two hosts: two network namespaces with one cable between them, services started
// by hand, ring messages over ucx. The cable is cut in the middle of a job.
#include "tests/netns.h"

#include <signal.h>
#include <sys/wait.h>

#include <QCryptographicHash>
#include <filesystem>
#include <fstream>
#include <map>

#include "cluster/local/data_dir.h"
#include "tests/eventually.h"
#include "tests/identities.h"
#include "tests/program.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

using nlohmann::json;
using testing::Eventually;
using testing::FindProgram;
using testing::Ip;
using testing::Outcome;
using testing::RunProgram;

constexpr char kCable[] = "veth0";  // Its end in each namespace.
constexpr char kAddressA[] = "10.213.7.1";
constexpr char kAddressB[] = "10.213.7.2";

/// Namespaces A and B, joined. Gone with the object, or with the next run of this test.
class TwoHosts {
 public:
  ~TwoHosts() {
    for (const QString& host : {a(), b()}) Ip({"netns", "del", host});
  }

  [[nodiscard]] static QString a() { return testing::NamespaceName("a"); }
  [[nodiscard]] static QString b() { return testing::NamespaceName("b"); }

  /// Returns false if this process has no permission or the kernel lacks support. `why` is the
  /// error text of ip.
  bool Make(std::string& why) {
    testing::RemoveForgottenNamespaces();
    if (FindProgram("ip").isEmpty()) {
      why = "there is no ip program";
      return false;
    }
    const Outcome first = Ip({"netns", "add", a()});
    why = first.err;
    return first.exit_code == 0;
  }

  /// Returns what went wrong, or an empty text.
  std::string Join() {
    const QStringList cable = {"link", "add",  kCable, "type",  "veth",
                               "peer", "name", kCable, "netns", b()};
    std::string errors = Ip({"netns", "add", b()}).err;
    errors += Ip(QStringList{"-n", a()} + cable).err;
    errors += Ip({"-n", a(), "addr", "add", QString(kAddressA) + "/24", "dev", kCable}).err;
    errors += Ip({"-n", b(), "addr", "add", QString(kAddressB) + "/24", "dev", kCable}).err;
    for (const QString& host : {a(), b()}) {
      for (const char* link : {"lo", kCable})
        errors += Ip({"-n", host, "link", "set", link, "up"}).err;
    }
    return errors;
  }

  /// The kernel notices a little later that a cable has two ends. Until then ucx cannot use it.
  [[nodiscard]] bool IsUp() const {
    const auto up = [](const QString& host) {
      return Ip({"-n", host, "-br", "link", "show", kCable}).out.find(" UP ") != std::string::npos;
    };
    return up(a()) && up(b());
  }

  /// Cuts the cable. If `silently`, packets get lost; otherwise the kernel tells senders that the
  /// link is down. Returns what went wrong, like Mend.
  std::string Cut(bool silently) {
    return silently ? Nft("add table inet cut; add chain inet cut in { type filter hook input "
                          "priority 0; policy drop; }; add rule inet cut in iif lo accept")
                    : Ip({"-n", a(), "link", "set", kCable, "down"}).err;
  }
  std::string Mend(bool silently) {
    return silently ? Nft("delete table inet cut")
                    : Ip({"-n", a(), "link", "set", kCable, "up"}).err;
  }

 private:
  std::string Nft(const QString& rules) {
    return Ip({"netns", "exec", a(), FindProgram("nft"), rules}).err;
  }
};

}  // namespace

class NetnsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    std::string why;
    if (!hosts_.Make(why)) QSKIP(("no network namespaces here: " + why).c_str());
    const std::string errors = hosts_.Join();
    QVERIFY2(errors.empty(), errors.c_str());
    QVERIFY(Eventually(std::chrono::seconds(10), [&] { return hosts_.IsUp(); }));
    StartServices("");
  }
  void cleanupTestCase() { StopServices(); }
  void cleanup() {
    if (QTest::currentTestFailed()) qWarning("%s", Logs().c_str());
  }

  void Job_BetweenTwoHosts_Succeeds() {
    const std::string uid = Submit({"--prompt", "a red circle moving right", "--seed", "7"});
    QVERIFY(!uid.empty());
    const Outcome watched = Run({"watch", QString::fromStdString(uid), "--json"});
    QVERIFY2(watched.exit_code == 0, (watched.out + watched.err).c_str());
    const QString file = Path("video.mp4");
    const Outcome got = Run({"get", QString::fromStdString(uid), "-o", file, "--json"});
    QVERIFY2(got.exit_code == 0, got.err.c_str());
    const std::string bytes = local::ReadFile(file.toStdString());
    QVERIFY(bytes.size() > 1000);
    const QByteArray hash =
        QCryptographicHash::hash(QByteArray::fromStdString(bytes), QCryptographicHash::Sha256);
    QCOMPARE(got.Document().value("sha256", ""), hash.toHex().toStdString());
  }

  void AStrangerOnTheOtherHost_IsRefusedAtEveryPort_data() {
    QTest::addColumn<QString>("who");
    QTest::addColumn<QStringList>("refusals");
    const testing::TestAuthority foreign("twohosts");
    foreign.SavePrincipal(Path("foreign").toStdString(), "admin", {identity::Scope::kAdmin});
    authority_.SavePrincipal(Path("ci").toStdString(), "ci",
                             {identity::Scope::kSubmit, identity::Scope::kReadOwn}, "films");
    const QStringList no_connection = {"UNAVAILABLE", "DEADLINE_EXCEEDED"};
    QTest::newRow("plaintext") << "plaintext" << no_connection;
    QTest::newRow("nobody") << "nobody:" + Path("admin") + "/ca.pem"
                            << QStringList{"NO_CREDENTIALS", "METHOD_UNKNOWN"};
    QTest::newRow("a foreign CA") << Path("foreign") + ":admin" << no_connection;
    QTest::newRow("a tenant") << Path("ci") + ":ci"
                              << QStringList{"NODES_ONLY", "MISSING_SCOPE", "JOB_UNKNOWN",
                                             "METHOD_UNKNOWN"};
  }
  void AStrangerOnTheOtherHost_IsRefusedAtEveryPort() {
    QFETCH(QString, who);
    QFETCH(QStringList, refusals);
    const std::string uid =
        Submit({"--prompt", "a red circle moving right", "--steps", "1", "--wait"});
    QVERIFY(!uid.empty());
    QStringList addresses;
    const json status = Status();
    for (const json& process : status["processes"])
      addresses << QString::fromStdString(process.value("address", ""));
    QCOMPARE(addresses.size(), static_cast<qsizetype>(services_.size()));
    const Outcome tried = RunProgram(
        FindProgram("ip"),
        QStringList{"netns", "exec", hosts_.b(), ONEPIECE_BINARY_DIR "/tests/onepiece_stranger",
                    QString::fromStdString(uid), who} +
            addresses,
        300);
    QVERIFY2(tried.exit_code == 0, tried.err.c_str());
    const QStringList lines = QString::fromStdString(tried.out).split('\n', Qt::SkipEmptyParts);
    QVERIFY(lines.size() >= addresses.size());
    for (const QString& line : lines)
      QVERIFY2(refusals.contains(line.section('\t', -1)), qPrintable(line));
    QVERIFY2(EveryServiceReady(), Status().dump(1).c_str());
    QCOMPARE(Get(uid).value("state", ""), std::string("SUCCEEDED"));
  }

  void CutLink_JobEndsAndTheNextSucceeds_data() {
    QTest::addColumn<bool>("silent");
    QTest::addColumn<QString>("stage");
    QTest::newRow("link down while computing") << false << "diffusion";
    QTest::newRow("packets dropped while computing") << true << "diffusion";
    // The result is ready during the cut, and its way to the database leads over the cable.
    QTest::newRow("link down while decoding") << false << "vae_decode";
    QTest::newRow("packets dropped while decoding") << true << "vae_decode";
  }
  void CutLink_JobEndsAndTheNextSucceeds() {
    QFETCH(bool, silent);
    QFETCH(QString, stage);
    if (silent && FindProgram("nft").isEmpty()) QSKIP("there is no nft program");
    const bool computing = stage == "diffusion";
    const std::string uid = Submit({"--prompt", "a red circle moving right", "--steps",
                                    computing ? "100" : "1", "--width", computing ? "128" : "256",
                                    "--height", computing ? "128" : "256", "--deadline", "60"});
    QVERIFY(!uid.empty());
    QVERIFY(Eventually(std::chrono::seconds(60), [&] {
      const json job = Get(uid);
      return job.value("state", "") == "RUNNING" && job.value("stage", "") == stage.toStdString();
    }));
    QCOMPARE(hosts_.Cut(silent), std::string());
    // The instance has not reported for dead_after_ms, nor has whoever keeps its work, for which
    // the databases wait 15 s more. Whoever asks on this side hears which instance had the job.
    const bool lost = Eventually(std::chrono::seconds(40), [&] { return IsLost(Get(uid), stage); });
    const json during = Get(uid);
    QCOMPARE(hosts_.Mend(silent), std::string());
    QVERIFY2(lost, during.dump().c_str());

    const Outcome watched = Run({"watch", QString::fromStdString(uid), "--json"}, 90);
    QVERIFY2(watched.Document().is_object(), watched.err.c_str());
    qInfo("in the end %s", watched.out.c_str());
    // The instance lives, and its result may come late.
    QVERIFY2(
        watched.Document().value("state", "") == "SUCCEEDED" || IsLost(watched.Document(), stage),
        watched.out.c_str());
    ServeAgain();
  }

  void CutLink_SubmitMeanwhile_IsAnsweredAndTheNextSucceeds() {
    QCOMPARE(hosts_.Cut(false), std::string());
    QProcess submit;
    submit.start(FindProgram("ip"), Command({"submit", "--prompt", "a red circle", "--steps", "2",
                                             "--deadline", "30", "--wait", "--json"}));
    testing::Pause(std::chrono::seconds(5));
    QCOMPARE(hosts_.Mend(false), std::string());
    // Within the job's deadline.
    QVERIFY(submit.waitForFinished(40'000));
    const json answer = json::parse(submit.readAllStandardOutput().toStdString(), nullptr, false);
    QVERIFY2(answer.is_object(), submit.readAllStandardError().constData());
    qInfo("submitted during the cut: exit code %d %s", submit.exitCode(), answer.dump().c_str());
    // Most of the deadline is left after the cut. So the job is done, unless the proxy could not
    // know whether the first instance had taken it.
    QVERIFY2(submit.exitCode() == 0 || IsLost(answer, "text_encode"), answer.dump().c_str());
    ServeAgain();
  }

  void CutLink_ShorterThanANodeMayBeSilent_CostsNoJob_data() {
    QTest::addColumn<bool>("silent");
    QTest::newRow("link down") << false;
    QTest::newRow("packets dropped") << true;
  }
  void CutLink_ShorterThanANodeMayBeSilent_CostsNoJob() {
    QFETCH(bool, silent);
    if (silent && FindProgram("nft").isEmpty()) QSKIP("there is no nft program");
    StopServices();
    StartServices("dead_after_ms: 30000\n");
    const std::string uid = Submit({"--prompt", "a red circle moving right", "--steps", "1",
                                    "--width", "256", "--height", "256", "--deadline", "60"});
    QVERIFY(!uid.empty());
    QVERIFY(Eventually(std::chrono::seconds(60),
                       [&] { return Get(uid).value("stage", "") == "vae_decode"; }));
    QCOMPARE(hosts_.Cut(silent), std::string());
    testing::Pause(std::chrono::seconds(5));
    const std::string during = Get(uid).value("state", "unknown");
    QCOMPARE(hosts_.Mend(silent), std::string());
    // Otherwise the cut came too late to disturb anything.
    QCOMPARE(during, std::string("RUNNING"));
    const Outcome watched = Run({"watch", QString::fromStdString(uid), "--json"}, 90);
    QVERIFY2(watched.exit_code == 0, (watched.out + watched.err).c_str());
    ServeAgain();
  }

 private:
  /// Returns whether the job was lost with the instance that served `stage`.
  static bool IsLost(const json& job, const QString& stage) {
    const json error = job.value("error", json::object());
    return job.value("state", "") == "FAILED" && error.value("reason", "") == "LOST" &&
           error.value("message", "").find("instance-" + stage.toStdString()) != std::string::npos;
  }

  [[nodiscard]] QString Path(const std::string& name) const {
    return temp_.path() + "/" + QString::fromStdString(name);
  }

  void ServeAgain() {
    const Outcome next = Run(
        {"submit", "--prompt", "a blue circle", "--steps", "2", "--deadline", "60", "--wait"}, 90);
    QVERIFY2(next.exit_code == 0, next.err.c_str());
    QVERIFY2(Eventually(std::chrono::seconds(60), [&] { return EveryServiceReady(); }),
             Status().dump(1).c_str());
  }

  // Arguments for `ip` that run `onepiece` on host A.
  [[nodiscard]] QStringList Command(const QStringList& arguments) const {
    return QStringList{"netns", "exec", hosts_.a(), ONEPIECE_BINARY_DIR "/bin/onepiece"} +
           arguments + QStringList{"--nodemanager", nodemanager_, "--identity", Path("admin")};
  }
  Outcome Run(const QStringList& arguments, int timeout_s = 120) const {
    return RunProgram(FindProgram("ip"), Command(arguments), timeout_s);
  }
  std::string Submit(const QStringList& arguments) const {
    const json document = Run(QStringList{"submit", "--json"} + arguments).Document();
    return document.is_object() ? document.value("uid", "") : "";
  }
  json Get(const std::string& uid) const {
    const json document = Run({"get", QString::fromStdString(uid), "--json"}).Document();
    return document.is_object() ? document : json::object();
  }
  json Status() const { return Run({"status", "--json"}).Document(); }

  bool EveryServiceReady() const {
    const json status = Status();
    if (!status.is_object() || !status.contains("processes")) return false;
    std::size_t ready = 0;
    for (const auto& process : status["processes"])
      ready += process.value("state", "") == "READY" ? 1 : 0;
    return ready == services_.size();
  }

  // `nodemanager`: more lines of its configuration.
  void StartServices(const std::string& nodemanager) {
    authority_.SavePrincipal(Path("admin").toStdString(), identity::kAdminName,
                             {identity::Scope::kAdmin});
    const std::string source = ONEPIECE_SOURCE_DIR "/resources/";
    Start("nodemanager", "nodemanager", hosts_.a(), kAddressA,
          "cluster_id: twohosts\nworkflow_files: [" + source + "workflows/tiny-wan-t2v.yaml]\n" +
              nodemanager);
    const std::string ready_file = Path("nodemanager.json").toStdString();
    QVERIFY2(
        Eventually(std::chrono::seconds(30), [&] { return !ReadyAddress(ready_file).empty(); }),
        Logs().c_str());
    nodemanager_ = QString::fromStdString(ReadyAddress(ready_file));
    const std::string ring = "ring: {capacity_bytes: 33554432}\n";
    Start("proxy", "proxy", hosts_.a(), kAddressA, "");
    Start("database", "database", hosts_.a(), kAddressA, ring);
    for (const std::string stage : {"text_encode", "diffusion", "vae_decode"}) {
      Start("instance-" + stage, "instance", hosts_.b(), kAddressB,
            ring + "pinned_stage: " + stage + "\nmodel_root: " + source +
                "models\nplugin_dir: " ONEPIECE_BINARY_DIR "/lib/onepiece/stages\n");
    }
    QVERIFY2(Eventually(std::chrono::seconds(60), [&] { return EveryServiceReady(); }),
             Logs().c_str());
  }

  void StopServices() {
    std::string left;
    for (const auto& [name, service] : services_) kill(service.pid, SIGTERM);
    for (const auto& [name, service] : services_) {
      if (!local::WaitGone(service, std::chrono::seconds(10))) {
        left += " " + name;
        kill(service.pid, SIGKILL);
      }
      waitpid(service.pid, nullptr, 0);
      std::filesystem::remove(Path(name + ".json").toStdString());
    }
    services_.clear();
    QVERIFY2(left.empty(), ("did not end at SIGTERM:" + left + "\n" + Logs()).c_str());
  }

  void Start(const std::string& name, const std::string& role, const QString& host,
             const std::string& address, const std::string& config) {
    const std::string path = Path(name).toStdString();
    std::ofstream(path + ".yaml") << config;
    authority_.SaveNode(path + "/identity", name, {*identity::ParseRole(role)});
    local::SpawnOptions spawn;
    spawn.arguments = {FindProgram("ip").toStdString(),
                       "netns",
                       "exec",
                       host.toStdString(),
                       ONEPIECE_BINARY_DIR "/bin/onepiece-" + role,
                       "--config",
                       path + ".yaml",
                       "--node-id",
                       name,
                       "--listen",
                       address + ":0",
                       "--metrics-address",
                       address + ":0",
                       "--fabric",
                       std::string("ucx://") + kCable,
                       "--data-dir",
                       path,
                       "--ready-file",
                       path + ".json"};
    if (role != "nodemanager") {
      spawn.arguments.insert(spawn.arguments.end(), {"--nodemanager", nodemanager_.toStdString()});
    }
    spawn.output_path = path + ".log";
    spawn.clean_environment = true;
    const auto process = local::Spawn(spawn);
    QVERIFY2(process.ok(), process.status().ToString().c_str());
    services_[name] = *process;
  }

  static std::string ReadyAddress(const std::string& file) {
    const json ready = json::parse(local::ReadFile(file), nullptr, false);
    return ready.is_object() ? ready.value("address", "") : "";
  }

  std::string Logs() const {
    std::string text;
    for (const auto& [name, process] : services_) {
      std::string log = local::ReadFile(Path(name + ".log").toStdString());
      constexpr std::size_t kTailBytes = 4000;
      if (log.size() > kTailBytes) log.erase(0, log.size() - kTailBytes);
      text += "--- " + name + "\n" + log;
    }
    return text;
  }

  const testing::TestAuthority authority_{"twohosts"};
  QTemporaryDir temp_;
  TwoHosts hosts_;
  QString nodemanager_;
  std::map<std::string, local::ProcessId> services_;
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::NetnsTest)
#include "netns_test.moc"
