// Runs the main job on a real cluster: separate processes, a real model, a decoded video.
#include <signal.h>

#include <set>
#include <span>

#include "cluster/local/data_dir.h"
#include "cluster/media/media.h"
#include "tests/e2e/cluster_fixture.h"
#include "tests/e2e/judge.h"
#include "tests/test_main.h"

namespace onepiece::e2e {

class E2eTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    const Outcome up = cluster_.Run({"up", "--json"});
    QVERIFY2(up.exit_code == 0, (up.err + cluster_.Logs()).c_str());
    QVERIFY(up.Document().is_object());
  }

  void Status_ListsEveryProcess() {
    const json status = cluster_.Status();
    QCOMPARE(status["processes"].size(), std::size_t{9});
    for (const auto& process : status["processes"]) {
      QVERIFY2(process.value("state", "") == "READY", process.dump().c_str());
      QVERIFY(kill(process.value("pid", 0), 0) == 0);
      QVERIFY(!process.value("address", "").empty());
      QVERIFY(!process.value("metrics_address", "").empty());
    }
  }

  void Up_SecondTime_Is4AndSaysWhatToDo() {
    const Outcome up = cluster_.Run({"up"});
    QCOMPARE(up.exit_code, 4);
    QVERIFY(up.err.find("onepiece down") != std::string::npos);
  }

  void Up_OverUcx_ServesTheSameVideo() {
    const QStringList what = {"--prompt", "a green circle", "--steps", "2", "--wait", "--json"};
    ClusterUnderTest other;
    const Outcome up = other.Run({"up", "--fabric", "ucx"});
    if (up.err.find("not part of this build") != std::string::npos)
      QSKIP("ucx is not part of this build");
    QVERIFY2(up.exit_code == 0, (up.err + other.Logs()).c_str());
    QCOMPARE(other.Status().value("fabric", ""), std::string("ucx://lo"));
    const Outcome over_ucx = other.Run(QStringList{"submit"} + what);
    QVERIFY2(over_ucx.exit_code == 0, (over_ucx.err + other.Logs()).c_str());
    const Outcome over_shm = cluster_.Run(QStringList{"submit"} + what);
    QVERIFY(!FramesHash(over_shm.Document()).empty());
    QCOMPARE(FramesHash(over_ucx.Document()), FramesHash(over_shm.Document()));
    QVERIFY(other.Down());
  }

  void Up_UnknownFabric_SaysWhichThereAre() {
    ClusterUnderTest other;
    const Outcome up = other.Run({"up", "--fabric", "pigeons://roof"});
    QCOMPARE(up.exit_code, 2);
    QVERIFY2(up.err.find("pigeons") != std::string::npos, up.err.c_str());
  }

  void Prompts_ColourAndMotionFollow() {
    struct Case {
      const char *prompt, *colour, *motion;
    };
    const std::vector<Case> cases = {{"a red circle moving right", "red", "right"},
                                     {"a red square moving up", "red", "up"},
                                     {"a green triangle moving left", "green", "left"},
                                     {"a green circle moving down", "green", "down"},
                                     {"a blue square moving up", "blue", "up"},
                                     {"a blue circle moving right", "blue", "right"},
                                     {"a yellow triangle moving down", "yellow", "down"},
                                     {"a yellow circle moving left", "yellow", "left"},
                                     {"a white square moving right", "white", "right"},
                                     {"a white circle moving up", "white", "up"},
                                     {"a purple triangle moving left", "purple", "left"},
                                     {"a purple circle moving down", "purple", "down"},
                                     {"a red circle standing still", "red", "still"},
                                     {"a blue circle getting bigger", "blue", "bigger"}};
    std::vector<std::string> uids;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      uids.push_back(cluster_.Submit({"--prompt", cases[i].prompt, "--seed", QString::number(i)}));
      QVERIFY(!uids.back().empty());
    }
    int wrong_colours = 0, wrong_motions = 0;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const QString uid = QString::fromStdString(uids[i]);
      const Outcome watched = cluster_.Run({"watch", uid, "--json"});
      QVERIFY2(watched.exit_code == 0, (watched.out + watched.err).c_str());
      const std::string file = cluster_.Path(uids[i] + ".mp4");
      const Outcome got = cluster_.Run({"get", uid, "-o", QString::fromStdString(file), "--json"});
      QVERIFY2(got.exit_code == 0, got.err.c_str());
      QCOMPARE(got.Document().value("media_type", ""), std::string("video/mp4"));
      const std::string bytes = local::ReadFile(file);
      const auto frames = media::Decode(std::as_bytes(std::span(bytes)));
      QVERIFY2(frames.ok(), frames.status().ToString().c_str());
      QCOMPARE(frames->count, std::int64_t{9});
      const Verdict verdict = Judge(*frames);
      if (verdict.colour != cases[i].colour || verdict.motion != cases[i].motion) {
        qInfo("\"%s\" looks %s, %s", cases[i].prompt, verdict.colour.c_str(),
              verdict.motion.c_str());
      }
      wrong_colours += verdict.colour != cases[i].colour ? 1 : 0;
      wrong_motions += verdict.motion != cases[i].motion ? 1 : 0;
    }
    QVERIFY2(wrong_colours <= 1, "colours do not follow the prompts");
    QVERIFY2(wrong_motions <= 1, "motions do not follow the prompts");
  }

  void Generate_MakesTheSameFramesAsTheCluster() {
    const QStringList what = {"--prompt", "a green circle moving up", "--seed", "7", "--json"};
    const Outcome fused = cluster_.Run(QStringList{"generate"} + what);
    QVERIFY2(fused.exit_code == 0, fused.err.c_str());
    const Outcome served = cluster_.Run(QStringList{"submit", "--wait"} + what);
    QVERIFY2(served.exit_code == 0, served.err.c_str());
    const std::string hash = FramesHash(fused.Document());
    QVERIFY(!hash.empty());
    QVERIFY(!hash.empty());
    QCOMPARE(FramesHash(served.Document()), hash);
    // A stage's time may reach the record after the result.
    const std::string uid = served.Document().value("uid", "");
    QVERIFY(Eventually(std::chrono::seconds(10),
                       [&] { return cluster_.Get(uid)["timings"].size() == 3; }));
  }

  void Submit_Png_WritesNumberedFrames() {
    const Outcome outcome =
        cluster_.Run({"submit", "--prompt", "a red circle moving left", "--steps", "2", "--format",
                      "png", "--wait", "-o", QString::fromStdString(cluster_.Path("out.png"))});
    QVERIFY2(outcome.exit_code == 0, outcome.err.c_str());
    for (int i = 0; i < 9; ++i) {
      const std::string bytes =
          local::ReadFile(cluster_.Path("out_000" + std::to_string(i) + ".png"));
      const auto frame = media::Decode(std::as_bytes(std::span(bytes)));
      QVERIFY2(frame.ok(), frame.status().ToString().c_str());
      QCOMPARE(frame->width, std::int64_t{64});
    }
  }

  void Submit_SameRequestId_IsTheSameJob() {
    const QStringList arguments = {"--prompt",     "a red circle",
                                   "--steps",      "2",
                                   "--request-id", "7c9e6679-7425-40de-944b-e07fc1f90ae7"};
    const std::string uid = cluster_.Submit(arguments);
    QVERIFY(!uid.empty());
    QCOMPARE(cluster_.Submit(arguments), uid);
    const Outcome other = cluster_.Run({"submit", "--prompt", "a blue circle", "--request-id",
                                        "7c9e6679-7425-40de-944b-e07fc1f90ae7", "--json"});
    QCOMPARE(other.exit_code, 4);
    QCOMPARE(other.ErrorReason(), std::string("REQUEST_ID_REUSED"));
  }

  void Submit_BadRequests_AreRefused_data() {
    QTest::addColumn<QStringList>("arguments");
    QTest::addColumn<int>("exit_code");
    QTest::newRow("unknown app") << QStringList{"--app", "nosuch", "--prompt", "x"} << 3;
    QTest::newRow("empty prompt") << QStringList{"--prompt", ""} << 2;
    QTest::newRow("blank prompt") << QStringList{"--prompt", " \t"} << 2;
    QTest::newRow("no prompt") << QStringList{"--steps", "2"} << 2;
    QTest::newRow("unknown parameter")
        << QStringList{"--prompt", "x", "--param", "colour=red"} << 2;
    QTest::newRow("wrong type") << QStringList{"--prompt", "x", "--param", "steps=many"} << 2;
    QTest::newRow("not a multiple of 16") << QStringList{"--prompt", "x", "--width", "65"} << 2;
    QTest::newRow("absurd size") << QStringList{"--prompt", "x", "--width", "1048576"} << 2;
    QTest::newRow("no frames") << QStringList{"--prompt", "x", "--frames", "0"} << 2;
    QTest::newRow("prompt of 100 kB") << QStringList{"--prompt", QString(100'000, 'x')} << 2;
  }
  void Submit_BadRequests_AreRefused() {
    QFETCH(QStringList, arguments);
    QFETCH(int, exit_code);
    const Outcome outcome = cluster_.Run(QStringList{"submit", "--json"} + arguments);
    QVERIFY2(outcome.exit_code == exit_code, (outcome.out + outcome.err).c_str());
    QVERIFY(!outcome.ErrorReason().empty());
  }

  void Submit_AnyScript_Works_data() {
    QTest::addColumn<QString>("prompt");
    QTest::newRow("emoji") << QString::fromUtf8("🔴 moving → right 🏴‍☠️");
    QTest::newRow("arabic and chinese") << QString::fromUtf8("دائرة حمراء 红色圆圈向右移动");
    QTest::newRow("markup") << "&lt;b&gt;a red circle&lt;/b&gt; \t\n moving right";
  }
  void Submit_AnyScript_Works() {
    QFETCH(QString, prompt);
    const Outcome outcome =
        cluster_.Run({"submit", "--prompt", prompt, "--steps", "2", "--wait", "--json"});
    QVERIFY2(outcome.exit_code == 0, (outcome.out + outcome.err).c_str());
  }

  void Cancel_EndsALongJob() {
    const std::string uid = cluster_.Submit(
        {"--prompt", "a red circle", "--steps", "100", "--width", "256", "--height", "256"});
    QVERIFY(!uid.empty());
    QVERIFY(Eventually(std::chrono::seconds(60),
                       [&] { return cluster_.Get(uid).value("state", "") == "RUNNING"; }));
    QCOMPARE(cluster_.Run({"cancel", QString::fromStdString(uid)}).exit_code, 0);
    QCOMPARE(cluster_.Get(uid).value("state", ""), std::string("CANCELLED"));
    // The instance is free again soon: computing stops at the next step.
    QCOMPARE(cluster_.Run({"submit", "--prompt", "a red circle", "--steps", "2", "--wait"}, 60)
                 .exit_code,
             0);
  }

  void Deadline_EndsAJobThatIsTooLong() {
    const Outcome outcome =
        cluster_.Run({"submit", "--prompt", "a red circle", "--steps", "100", "--width", "256",
                      "--height", "256", "--deadline", "2", "--wait", "--json"});
    QCOMPARE(outcome.exit_code, 75);
    // By then the proxy may know what such a job costs, and refuses it at once.
    const std::string reason = outcome.ErrorReason();
    QVERIFY2(reason == "DEADLINE_EXCEEDED" || reason == "DEADLINE_TOO_SHORT", reason.c_str());
  }

  void Get_FetchesOnceAndTraces() {
    const std::string uid = cluster_.Submit({"--prompt", "a white circle", "--steps", "2"});
    const QString job = QString::fromStdString(uid);
    QCOMPARE(cluster_.Run({"watch", job}).exit_code, 0);
    const std::string trace = cluster_.Path("trace.json");
    // Spans reach the database after the result. The proxy and three instances record some.
    QVERIFY(Eventually(std::chrono::seconds(10), [&] {
      if (cluster_.Run({"get", job, "--trace", QString::fromStdString(trace)}).exit_code != 0)
        return false;
      const json events = json::parse(local::ReadFile(trace), nullptr, false);
      if (!events.is_object()) return false;
      std::set<int> processes;
      for (const auto& event : events["traceEvents"]) processes.insert(event.value("pid", 0));
      return processes.size() >= 4;
    }));
    const QString file = QString::fromStdString(cluster_.Path("once.mp4"));
    QCOMPARE(cluster_.Run({"get", job, "-o", file}).exit_code, 0);
    QCOMPARE(cluster_.Get(uid).value("fetched", false), true);
    QCOMPARE(cluster_.Run({"get", job, "-o", file}).exit_code, 4);
    QCOMPARE(cluster_.Run({"delete", job}).exit_code, 0);
    QCOMPARE(cluster_.Run({"get", job}).exit_code, 3);
  }

  void Jobs_AndWorkflows_AreListed() {
    const Outcome jobs = cluster_.Run({"jobs", "--limit", "5", "--json"});
    QCOMPARE(jobs.exit_code, 0);
    QCOMPARE(jobs.Document()["jobs"].size(), std::size_t{5});
    const Outcome workflows = cluster_.Run({"workflow", "list", "--json"});
    QCOMPARE(workflows.Document()["workflows"][0].value("app", ""), std::string("tiny-wan-i2v"));
    QCOMPARE(workflows.Document()["workflows"][1].value("app", ""), std::string("tiny-wan-t2v"));
  }
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::E2eTest)
#include "e2e_test.moc"
