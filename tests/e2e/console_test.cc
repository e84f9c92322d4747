// Sees and drives the console on a real cluster as a screen reader does: connect, submit, watch the
// stages and the ring, plan and apply a rebalance, undo it, kill an instance, look back.
#include <signal.h>

#include <algorithm>
#include <map>

#include "tests/e2e/accessible_app.h"
#include "tests/e2e/cluster_fixture.h"

namespace onepiece::e2e {
namespace {

using std::chrono::seconds;
using testing::Accessible;

// These instances may serve any stage.
constexpr char kConsoleCluster[] = "workflow_files: [" ONEPIECE_SOURCE_DIR
                                   "/resources/workflows/tiny-wan-t2v.yaml]\n"
                                   "instances:\n"
                                   "  - {count: 5}\n"
                                   "elasticity: {policy: static, window_s: 10}\n";

// The rows that are read include all rows that the test looks for later.
constexpr std::size_t kMostJobs = 20;

/// The console as a program, on a desktop of this test.
class Console {
 public:
  Console(const testing::Desktop& desktop, const std::string& home) : desktop_(desktop) {
    QProcessEnvironment environment = desktop.environment();
    for (const char* name :
         {"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"}) {
      environment.insert(QLatin1String(name), QString::fromStdString(home));
    }
    environment.insert(QStringLiteral("ONEPIECE_BIN_DIR"),
                       QStringLiteral(ONEPIECE_BINARY_DIR "/bin"));
    process_.setProcessEnvironment(environment);
    process_.setProcessChannelMode(QProcess::ForwardedChannels);
  }
  ~Console() {
    if (process_.state() == QProcess::NotRunning) return;
    process_.kill();
    process_.waitForFinished();
  }

  bool Start(const QStringList& arguments) {
    process_.start(QStringLiteral(ONEPIECE_BINARY_DIR "/bin/onepiece-console"), arguments);
    if (!process_.waitForStarted()) return false;
    app_ = testing::AwaitProgram(desktop_, QStringLiteral("onepiece-console"), seconds(30));
    return app_.has_value();
  }
  /// Closes the window. Returns false if the program does not end, or not with success.
  bool End() {
    process_.terminate();
    return process_.waitForFinished(10'000) && process_.exitStatus() == QProcess::NormalExit &&
           process_.exitCode() == 0;
  }
  [[nodiscard]] QProcess& process() { return process_; }
  [[nodiscard]] const Accessible& app() const { return *app_; }

  /// Waits for something of this role whose name contains `name`, for at most `limit`.
  [[nodiscard]] std::optional<Accessible> Await(const QString& role, const QString& name,
                                                seconds limit = seconds(20)) const {
    std::optional<Accessible> found;
    testing::Eventually(limit, [&] {
      found = app_->Find(
          [&](const Accessible& one) { return one.name().contains(name) && one.role() == role; });
      return found.has_value();
    });
    return found;
  }
  /// Presses the button of this name once it can be pressed.
  [[nodiscard]] bool Press(const QString& name, const QString& role = "push button") const {
    return testing::Eventually(seconds(20), [&] {
      const auto button = app_->Find(role, name);
      return button && button->enabled() && button->Press();
    });
  }
  /// Waits until something of this role has a name that contains all of `parts`.
  [[nodiscard]] bool Says(const QString& role, const QStringList& parts,
                          seconds limit = seconds(20)) const {
    return testing::Eventually(limit, [&] {
      return app_
          ->Find([&](const Accessible& one) {
            if (one.role() != role) return false;
            const QString name = one.name();
            return std::ranges::all_of(parts,
                                       [&](const QString& part) { return name.contains(part); });
          })
          .has_value();
    });
  }
  /// Returns the rows of the table of this name, with cells joined by " | ".
  [[nodiscard]] QStringList Rows(const QString& table) const {
    const auto found = app_->Find("table", table);
    if (!found) return {};
    return found->Rows();
  }
  /// Returns each row's cell in the column of this name, or nothing if not all cells can be read.
  [[nodiscard]] QStringList Column(const QString& table, const QString& name) const {
    const auto found = app_->Find("table", table);
    if (!found) return {};
    const auto columns = found->Columns();
    const auto column = columns.indexOf(name);
    QStringList cells;
    for (const QString& row : found->Rows()) {
      const QStringList of_row = row.split(QStringLiteral(" | "));
      if (column < 0 || of_row.size() != columns.size()) return {};
      cells.append(of_row[column]);
    }
    return cells;
  }
  /// Returns whether some row contains all of `parts`.
  [[nodiscard]] bool HasRow(const QString& table, const QStringList& parts,
                            seconds limit = seconds(30)) const {
    return testing::Eventually(limit, [&] {
      return std::ranges::any_of(Rows(table), [&](const QString& row) {
        return std::ranges::all_of(parts, [&](const QString& part) { return row.contains(part); });
      });
    });
  }
  /// Fills in the open confirmation: a reason and the cluster's name if it asks for them, then
  /// presses the verb.
  [[nodiscard]] bool Confirm(const QString& verb, const QString& reason) const {
    if (!testing::Eventually(seconds(20),
                             [&] { return app_->Find("push button", verb).has_value(); })) {
      return false;
    }
    const auto field = [this](const QString& name) {
      return app_->Find([&](const Accessible& one) {
        return one.role() == u"text" && one.name().startsWith(name);
      });
    };
    const auto why = field("Reason"), name = field("Type the cluster's name");
    if (why && !why->SetText(reason)) return false;
    if (name && !name->SetText(name->name().section(": ", 1))) return false;
    return Press(verb);
  }
  [[nodiscard]] bool Page(const QString& title) const {
    return testing::Eventually(seconds(10), [&] {
      const auto tab = app_->Find([&](const Accessible& one) {
        return one.role() == u"page tab" && one.name().startsWith(title);
      });
      return tab && tab->Press();
    });
  }
  /// Chooses a menu's entry.
  [[nodiscard]] bool Run(const QStringList& path) const {
    return testing::Eventually(seconds(10), [&] {
      const auto entry = app_->Menu(path);
      return entry && entry->enabled() && entry->Press();
    });
  }

 private:
  const testing::Desktop& desktop_;
  QProcess process_;
  std::optional<Accessible> app_;
};

}  // namespace

class ConsoleTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() { QVERIFY2(desktop_.error().isEmpty(), qPrintable(desktop_.error())); }

  // The test functions run in this order, on one cluster and one console.
  void Connect_IsLiveAndTellsTheNodes() {
    QVERIFY(cluster_.UpWith(kConsoleCluster));
    QVERIFY(console_->Start({"--data-dir", QString::fromStdString(cluster_.Path("data"))}));
    QVERIFY2(console_->Await("label", "● Live"), Tree());
    const auto processes = cluster_.Status()["processes"].size();
    QVERIFY2(console_->Await("push button", QString("Nodes: %1 up").arg(processes)), Tree());
    QVERIFY(console_->Press("Dismiss the tour"));
    Shoot("overview");
  }

  void Submit_IsRefusedUntilUnlocked() {
    QVERIFY(console_->Page("Jobs"));
    const auto button = console_->Await("push button", "Submit a job");
    QVERIFY2(button.has_value(), Tree());
    QVERIFY(!button->enabled());
    QVERIFY(console_->Press("Observe mode: unlock", "check box"));
    QVERIFY2(console_->Await("check box", "Control mode: lock"), Tree());
  }

  void Job_PassesTheStages() {
    QVERIFY(console_->Press("Submit a job"));
    const auto prompt = console_->Await("text", "prompt");
    QVERIFY2(prompt.has_value(), Tree());
    QVERIFY(prompt->SetText("a red circle moving right"));
    Shoot("submit");
    QVERIFY(console_->Press("Submit job"));
    QVERIFY2(console_->HasRow("jobs", {"succeeded"}, seconds(90)), Tree());
    const json jobs = cluster_.Run({"jobs", "--json"}).Document();
    QCOMPARE(jobs["jobs"].size(), std::size_t{1});
    job_ = QString::fromStdString(jobs["jobs"][0].value("uid", ""));
    QVERIFY2(console_->HasRow("jobs", {job_.left(8)}), Tree());
    Shoot("jobs");
  }

  // While jobs pass, instances take messages out of rings, and the console shows it live.
  void Rings_AreSeenMoving() {
    QVERIFY(console_->Page("Rings"));
    const auto moving = [this] {
      const QStringList rates = console_->Column("Rings", "Get/s");
      return !rates.isEmpty() && std::ranges::any_of(rates, [](const QString& rate) {
        return std::ranges::any_of(rate, [](QChar c) { return c >= u'1' && c <= u'9'; });
      });
    };
    const auto resting = [&] { return !console_->Column("Rings", "Get/s").isEmpty() && !moving(); };
    QVERIFY2(testing::Eventually(seconds(60), resting), Tree());
    // Submits one more job for each look, because a rate covers one second.
    std::vector<std::string> jobs;
    const bool seen = testing::Eventually(seconds(60), [&] {
      if (jobs.size() < kMostJobs) {
        jobs.push_back(cluster_.Submit(
            {"--app", "tiny-wan-t2v", "--prompt", "a green square", "--steps", "2"}));
      }
      return moving();
    });
    QVERIFY2(seen, Tree());
    Shoot("rings-moving");
    QVERIFY(std::ranges::find(jobs, "") == jobs.end());
    // The rates are zero again when the jobs are done.
    QVERIFY(testing::Eventually(seconds(90), [&] {
      return std::ranges::all_of(jobs, [&](const std::string& job) {
        return cluster_.Get(job).value("state", "") == "SUCCEEDED";
      });
    }));
    QVERIFY2(testing::Eventually(seconds(60), resting), Tree());
  }

  void Pages_TellWhatTheCommandLineTells() {
    // Every ring that the command line names has a row, with the same size.
    QVERIFY(console_->Page("Rings"));
    const json rings = cluster_.Run({"rings", "--json"}).Document();
    QVERIFY2(!rings["rings"].empty(), rings.dump().c_str());
    for (const auto& ring : rings["rings"]) {
      const QString node = QString::fromStdString(ring.value("node_id", ""));
      QVERIFY2(console_->HasRow("Rings", {node, QString::number(ring.value("slots", 0))}), Tree());
    }
    Shoot("rings");
    // The messages that have passed through the first of them. More may pass at any time.
    QVERIFY(console_->Page("Producers"));
    QVERIFY2(testing::Eventually(
                 seconds(30),
                 [&] {
                   const json now = cluster_.Run({"rings", "--json"}).Document();
                   const auto delivered = now["rings"][0]["producers"][0].value("delivered", 0);
                   return delivered > 0 &&
                          console_->HasRow("Producers of the ring", {QString::number(delivered)},
                                           seconds(3));
                 }),
             Tree());
    QVERIFY(console_->Page("Pipelines"));
    const json status = cluster_.Status();
    for (const auto& process : status["processes"]) {
      if (process.value("stage", "").empty()) continue;
      const QString node = QString::fromStdString(process.value("node_id", ""));
      const QString stage = QString::fromStdString(process.value("stage", ""));
      QVERIFY2(console_->Says("list item", {node, stage, "serving"}), Tree());
    }
    Shoot("pipelines");
    QVERIFY(console_->Page("Logs"));
    QVERIFY2(console_->HasRow("Logs", {"text_encode"}), Tree());
    Shoot("logs");
    for (const char* page : {"GPUs", "Databases", "NodeManager", "Alerts", "Audit"}) {
      QVERIFY(console_->Page(page));
      QVERIFY2(console_->Await("filler", page), Tree());
      Shoot(QString(page).toLower());
    }
  }

  void Rebalance_IsPlannedAppliedKeptAndUndone() {
    QVERIFY(console_->Page("Rebalance"));
    // Moves from the stage with the most instances to the one with the fewest.
    const std::map<std::string, int> before = InstancesByStage();
    const auto by_count = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto [to, few] = *std::ranges::min_element(before, by_count);
    const auto [from, many] = *std::ranges::max_element(before, by_count);
    QVERIFY(few < many);
    for (const QString& step :
         {QString("One less in %1").arg(from.c_str()), QString("One more in %1").arg(to.c_str())}) {
      const auto button = console_->Await("push button", step);
      QVERIFY2(button.has_value(), Tree());
      QVERIFY(button->Press());
    }
    QVERIFY(console_->Press("Ask what it would do"));
    QVERIFY2(console_->HasRow("Draft", {"instance-", to.c_str()}), Tree());
    Shoot("rebalance-draft");
    QVERIFY(console_->Press("Apply 1 move…"));
    QVERIFY2(console_->Confirm("Apply 1 move", "the encoder is behind"), Tree());
    const auto keep = console_->Await("push button", "Keep plan ", seconds(60));
    QVERIFY2(keep.has_value(), Tree());
    const QString plan = keep->name().section(u' ', 2);
    QVERIFY2(testing::Eventually(seconds(60), [&] { return Plan(plan) == "UNCONFIRMED"; }),
             Plan(plan).c_str());
    QCOMPARE(InstancesByStage()[to], few + 1);
    Shoot("rebalance");
    const QString keep_name = keep->name();
    QVERIFY(console_->Press(keep_name));
    QVERIFY2(console_->Confirm("Keep it", ""), Tree());
    QVERIFY(testing::Eventually(seconds(20), [&] { return Plan(plan) == "DONE"; }));
    // The console has seen that too.
    QVERIFY(testing::Eventually(
        seconds(20), [&] { return !console_->app().Find("push button", keep_name).has_value(); }));
    QVERIFY(console_->Run({"Cluster", "Undo a plan…"}));
    QVERIFY2(console_->Confirm("Bring back 1 move", "it was an exercise"), Tree());
    QVERIFY2(testing::Eventually(seconds(60), [&] { return InstancesByStage() == before; }),
             Tree());
    // The audit log knows who and why.
    const Outcome audit = cluster_.Run({"rebalance", "audit"});
    QVERIFY2(audit.Says("the encoder is behind") && audit.Says("it was an exercise"),
             audit.out.c_str());
  }

  void Kill_IsSaidTruthfully() {
    QVERIFY(console_->Page("Overview"));
    const json status = cluster_.Status();
    for (const auto& process : status["processes"]) {
      if (process.value("stage", "") == "text_encode")
        killed_ = QString::fromStdString(process.value("node_id", ""));
    }
    const int pid = cluster_.PidOf(killed_.toStdString());
    QVERIFY(pid > 0 && kill(pid, SIGKILL) == 0);
    QVERIFY2(TellsOfDeath(seconds(60)), Tree());
    Shoot("killed");
  }

  void Scrub_ShowsWhatWasBeforeTheKill() {
    QVERIFY(testing::Eventually(seconds(60), [this] { return cluster_.EveryProcessReady(); }));
    // Goes to the event before the death, whatever came after it.
    QVERIFY(testing::Eventually(seconds(60), [this] {
      return console_->Run({"Time", "Previous event"}) && !TellsOfDeath(seconds(1));
    }));
    QVERIFY2(console_->Says("label", {"Viewing", "Nothing can be changed"}), Tree());
    QVERIFY2(console_->Says("tree item", {killed_}), Tree());
    QVERIFY(console_->Page("Jobs"));
    QVERIFY2(console_->HasRow("jobs", {job_.left(8), "succeeded"}), Tree());
    const auto submit = console_->Await("push button", "Submit a job");
    QVERIFY(submit.has_value() && !submit->enabled());
    Shoot("past");
    QVERIFY(console_->Run({"Time", "Go live"}));
    QVERIFY2(console_->Await("label", "● Live"), Tree());
  }

  void Recording_IsReadWithoutTheCluster() {
    QVERIFY(console_->End());
    const QString folder = QString::fromStdString(cluster_.Path("home")) + "/onepiece-console";
    const QFileInfoList files =
        QDir(folder + "/recordings").entryInfoList({"*.onepiece-recording"});
    QCOMPARE(files.size(), 1);
    QVERIFY(console_->Start({"--open", files.front().filePath()}));
    QVERIFY2(console_->Await("label", "Offline"), Tree());
    QVERIFY2(TellsOfDeath(seconds(20)), Tree());
    QVERIFY(!console_->app().Menu({"Cluster", "Submit a job…"})->enabled());
    QVERIFY(console_->End());
  }

 private:
  /// Returns the state of a plan, as the NodeManager tells it.
  std::string Plan(const QString& id) const {
    const json plan = cluster_.Run({"rebalance", "show", id, "--json"}).Document();
    return plan.is_object() ? plan.value("state", "") : "";
  }
  std::map<std::string, int> InstancesByStage() const {
    std::map<std::string, int> count;
    const json status = cluster_.Status();
    for (const auto& process : status["processes"]) {
      if (const std::string stage = process.value("stage", ""); !stage.empty()) ++count[stage];
    }
    return count;
  }
  /// Waits until "What changed" reports the death.
  bool TellsOfDeath(seconds limit) const {
    return console_->Says("list item", {killed_, "died"}, limit);
  }

  QByteArray tree_;
  /// Returns what can be seen now, for a failed test's report.
  const char* Tree() {
    tree_ = console_->app().Tree().toUtf8();
    return tree_.constData();
  }
  void Shoot(const QString& name) const {
    const QString folder = qEnvironmentVariable("ONEPIECE_SCREENSHOTS");
    if (!folder.isEmpty()) desktop_.Save(folder + u'/' + name + QStringLiteral(".png"));
  }

 private Q_SLOTS:
  void LocalCluster_StartsAndStops() {
    const QTemporaryDir home;
    Console console(desktop_, home.path().toStdString());
    QVERIFY(console.Start({}));
    QVERIFY(console.Await("label", "No cluster configured"));
    QVERIFY(console.Press("Try a local cluster"));
    QVERIFY2(console.Await("label", "● Live", seconds(90)), qPrintable(console.app().Tree()));
    QVERIFY2(console.Await("push button", "Nodes: 9 up"), qPrintable(console.app().Tree()));
    QVERIFY(console.Run({"File", "Stop the local cluster"}));
    QVERIFY2(console.Await("label", "Not connected"), qPrintable(console.app().Tree()));
    QVERIFY(console.End());
  }
  void cleanup() {
    if (QTest::currentTestFailed()) Shoot(QStringLiteral("failed-") + QTest::currentTestFunction());
  }

 private:
  testing::Desktop desktop_{1280, 800};
  std::unique_ptr<Console> console_ = std::make_unique<Console>(desktop_, cluster_.Path("home"));
  QString job_, killed_;
};

}  // namespace onepiece::e2e

QTEST_GUILESS_MAIN(onepiece::e2e::ConsoleTest)
#include "console_test.moc"
