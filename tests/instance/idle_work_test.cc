// Idle work: it runs with the lowest priority, gives the instance back in time, and restarts.
#include "stages/instance/idle_work.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <QtTest>
#include <fstream>
#include <string>

#include "stages/instance/low_priority_child.h"
#include "tests/eventually.h"
#include "tests/test_main.h"

namespace onepiece::instance {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Eventually;

constexpr auto kIdleLimit = seconds(20);
constexpr char kObeys[] = "echo started; exec sleep 1000";
// A shell that ignores SIGTERM, and its child in the same process group.
constexpr char kIgnores[] =
    "trap '' TERM; sleep 1000 & echo started; while true; do sleep 1000; done";

double Milliseconds(base::Duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

class IdleWorkTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void init() {
    folder_ = std::make_unique<QTemporaryDir>();
    QVERIFY(folder_->isValid());
  }

  void Start_RunsAsTheLowestOfTheLow() {
    IdleWork work(Script(kObeys), clock_);
    QCOMPARE(work.status(), std::string());
    work.Start();
    const pid_t pid = AwaitStarted(work);
    QVERIFY(pid > 0);
    QCOMPARE(::getpriority(PRIO_PROCESS, static_cast<id_t>(pid)), 19);
    QCOMPARE(::sched_getscheduler(pid), SCHED_IDLE);
    QCOMPARE(::getpgid(pid), pid);
    QCOMPARE(work.status(), "sh, pid " + std::to_string(pid));
    work.Start();
    QCOMPARE(work.status(), "sh, pid " + std::to_string(pid));
  }

  void Stop_GivesTheInstanceBackInTime_data() {
    QTest::addColumn<QString>("script");
    QTest::addColumn<bool>("obeys");
    QTest::newRow("ends on SIGTERM") << kObeys << true;
    QTest::newRow("ignores SIGTERM") << kIgnores << false;
  }
  void Stop_GivesTheInstanceBackInTime() {
    QFETCH(QString, script);
    QFETCH(bool, obeys);
    IdleWork work(Script(script.toStdString()), clock_);
    work.Start();
    const pid_t pid = AwaitStarted(work);
    QVERIFY(pid > 0);
    base::Clock& real = base::SystemClock();
    const auto before = real.Now();
    work.Stop();
    const auto took = real.Now() - before;
    qInfo("given back after %.1f ms", Milliseconds(took));
    QVERIFY(took < IdleWork::kGiveBackLimit);
    if (!obeys) QVERIFY(took >= LowPriorityChild::kTermLimit);
    QCOMPARE(work.status(), std::string());
    QVERIFY(::kill(pid, 0) != 0);
    // Nothing is left of its group either.
    QVERIFY(Eventually(kIdleLimit, [&] { return ::kill(-pid, 0) != 0; }));
    work.Stop();
  }

  void Start_RunsAgainAfterStop() {
    IdleWork work(Script(kObeys), clock_);
    work.Start();
    const pid_t first = AwaitStarted(work);
    work.Stop();
    ClearLog();
    work.Start();
    const pid_t second = AwaitStarted(work);
    QVERIFY(second > 0 && second != first);
  }

  void Loop_StartsWhatFailedAgainAndWaitsLongerEachTime() {
    IdleWork work(Script("echo started; exit 3"), clock_);
    work.Start();
    QVERIFY(AwaitStatus(work, "sh ended with code 3"));
    int runs = 1;
    for (const auto backoff : {1, 2, 4, 8, 16, 32, 60, 60}) {
      QVERIFY(Eventually(kIdleLimit, [&] { return Runs() == runs; }));
      QVERIFY(AwaitStatus(work, "sh ended with code 3"));
      clock_.Advance(seconds(backoff) - milliseconds(1));
      testing::Pause(milliseconds(20));
      QCOMPARE(Runs(), runs);  // Not yet.
      clock_.Advance(milliseconds(1));
      ++runs;
      QVERIFY(Eventually(kIdleLimit, [&] { return Runs() == runs; }));
    }
  }

  void Loop_StartsWhatWasKilledAgain() {
    IdleWork work(Script(kObeys), clock_);
    work.Start();
    const pid_t first = AwaitStarted(work);
    ::kill(first, SIGKILL);
    QVERIFY(AwaitStatus(work, "sh ended by signal 9"));
    ClearLog();
    clock_.Advance(seconds(1));
    const pid_t second = AwaitStarted(work);
    QVERIFY(second > 0 && second != first);
  }

  void Loop_LeavesWhatIsDoneAlone() {
    IdleWork work(Script("echo started; exit 0"), clock_);
    work.Start();
    QVERIFY(AwaitStatus(work, "sh is done"));
    clock_.Advance(std::chrono::hours(3));
    testing::Pause(milliseconds(20));
    QCOMPARE(work.status(), std::string("sh is done"));
    QCOMPARE(Runs(), 1);
    work.Stop();
    work.Start();  // The instance is idle again.
    QVERIFY(Eventually(kIdleLimit, [&] { return Runs() == 2; }));
  }

  void Loop_SaysWhyItCannotStart() {
    IdleWork missing({.command = {"no-such-program"}, .data_dir = Path()}, clock_);
    missing.Start();
    QVERIFY(Eventually(kIdleLimit, [&] {
      return missing.status().find("there is no such program") != std::string::npos;
    }));
    IdleWork homeless({.command = {"sh"}, .data_dir = ""}, clock_);
    homeless.Start();
    QVERIFY(Eventually(kIdleLimit,
                       [&] { return homeless.status().find("data_dir") != std::string::npos; }));
  }

  void Start_DoesNothingWithoutACommand() {
    IdleWork work({.command = {}, .data_dir = Path()}, clock_);
    work.Start();
    QCOMPARE(work.status(), std::string());
    work.Stop();
  }

  void Log_HasABound() {
    // 5 MiB of output.
    IdleWork work(Script("head -c 5242880 /dev/zero; echo; echo end; exec sleep 1000"), clock_);
    work.Start();
    QVERIFY(Eventually(kIdleLimit, [&] { return Log().ends_with("end\n"); }));
    const auto size = QFileInfo(LogPath()).size(), old = QFileInfo(LogPath() + ".old").size();
    QVERIFY(size > 0 && size <= LowPriorityChild::kLogBytes);
    QVERIFY(old > 0 && old <= LowPriorityChild::kLogBytes);
  }

  void Child_DiesWithTheProcessThatStartedIt() {
    int pipe_fds[2];
    QCOMPARE(::pipe(pipe_fds), 0);
    const std::vector<std::string> command = {"sleep", "1000"};
    const std::string folder = Path();
    const pid_t parent = ::fork();
    if (parent == 0) {
      const auto child = LowPriorityChild::Spawn(command, folder);
      const pid_t pid = child.ok() ? child->pid() : -1;
      [[maybe_unused]] const auto written = ::write(pipe_fds[1], &pid, sizeof pid);
      ::pause();
      ::_exit(0);
    }
    pid_t pid = -1;
    QCOMPARE(::read(pipe_fds[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
    QVERIFY(pid > 0 && ::kill(pid, 0) == 0);
    ::kill(parent, SIGKILL);
    ::waitpid(parent, nullptr, 0);
    // The process that reaps orphans here may leave it a zombie.
    QVERIFY(Eventually(kIdleLimit, [&] {
      std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
      std::string number, name, state;
      return !(stat >> number >> name >> state) || state == "Z" || state == "X";
    }));
    ::close(pipe_fds[0]);
    ::close(pipe_fds[1]);
  }

 private:
  IdleWorkOptions Script(const std::string& script) const {
    return {.command = {"sh", "-c", script}, .data_dir = Path()};
  }
  std::string Path() const { return folder_->path().toStdString(); }
  QString LogPath() const { return folder_->path() + "/idle-work/log"; }
  std::string Log() const {
    QFile file(LogPath());
    return file.open(QIODevice::ReadOnly) ? file.readAll().toStdString() : "";
  }
  void ClearLog() const { QFile::resize(LogPath(), 0); }
  int Runs() const { return QString::fromStdString(Log()).count("started"); }

  static bool AwaitStatus(const IdleWork& work, const std::string& status) {
    return Eventually(kIdleLimit, [&] { return work.status() == status; });
  }
  /// The child's pid, once its script has begun.
  pid_t AwaitStarted(const IdleWork& work) const {
    if (!Eventually(kIdleLimit, [&] { return Runs() > 0; })) return -1;
    const std::string status = work.status();
    const auto at = status.find("pid ");
    return at == std::string::npos ? -1 : std::stoi(status.substr(at + 4));
  }

  std::unique_ptr<QTemporaryDir> folder_;
  base::ManualClock clock_;
};

}  // namespace onepiece::instance

ONEPIECE_TEST(onepiece::instance::IdleWorkTest)
#include "idle_work_test.moc"
