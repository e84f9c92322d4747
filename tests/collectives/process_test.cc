// Workers as real processes. One of them dies or stops before each step of each operation; the
// others must name it in time, and go on without it.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <QtTest>
#include <array>
#include <atomic>
#include <filesystem>
#include <functional>

#include "cluster/base/check.h"
#include "stages/collectives/socket_rendezvous.h"
#include "tests/collectives/operations.h"
#include "tests/collectives/tripped_fabric.h"
#include "tests/collectives/worlds.h"
#include "tests/eventually.h"
#include "tests/open_files.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::collectives {
namespace {

constexpr std::uint32_t kMembers = 3;
constexpr std::chrono::milliseconds kCallTime(250);

/// What a worker tells the test, in memory that both have.
struct Report {
  std::atomic<int> tripped;      ///< Is about to die or to stop.
  std::atomic<int> got_through;  ///< Ended the call under test without that.
  std::atomic<int> named;        ///< Got the error that it should get.
  std::atomic<int> finished;     ///< Has done all that it was to do.
  std::array<char, 400> trouble;

  void Complain(const std::string& what) {
    std::strncpy(trouble.data(), what.c_str(), trouble.size() - 1);
  }
};
using Board = std::array<Report, 8>;

/// Processes that end with the test. REQUIRES: the test has one thread when they are made.
class Processes {
 public:
  ~Processes() { KillAll(); }
  void Start(const std::function<void()>& body) {
    const pid_t pid = fork();
    ONEPIECE_CHECK(pid >= 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      body();
      _exit(0);
    }
    pids_.push_back(pid);
  }
  void Kill(std::size_t which) {
    kill(pids_[which], SIGKILL);
    waitpid(pids_[which], nullptr, 0);
    pids_[which] = -1;
  }
  void Continue(std::size_t which) const {
    if (pids_[which] > 0) kill(pids_[which], SIGCONT);
  }
  /// Waits until the process has ended, or a signal has stopped it.
  void AwaitSignalled(std::size_t which) {
    int status = 0;
    waitpid(pids_[which], &status, WUNTRACED);
    if (!WIFSTOPPED(status)) pids_[which] = -1;
  }
  void KillAll() {
    for (std::size_t i = 0; i < pids_.size(); ++i) {
      if (pids_[i] > 0) Kill(i);
    }
    pids_.clear();
  }

 private:
  std::vector<pid_t> pids_;
};

struct Scene {
  std::string uri;  ///< Of the fabric.
  std::string hub;  ///< The hub's socket.
  /// A byte for each worker to come says that the hub listens. The hub has a thread, so it begins
  /// after the workers' processes.
  std::array<int, 2> start;
  Board* board;
};

/// Opens the world of a worker's process.
absl::StatusOr<std::unique_ptr<FabricWorld>> OpenInProcess(const Scene& scene,
                                                           fabric::Fabric& fabric,
                                                           std::uint32_t index) {
  char byte = 0;
  ONEPIECE_CHECK(read(scene.start[0], &byte, 1) == 1);
  ONEPIECE_ASSIGN_OR_RETURN(const auto seat, JoinRendezvous(scene.hub, index, kMembers));
  return FabricWorld::Open(
      fabric, *seat, {.index = index, .workers = kMembers, .slot_bytes = 64, .slots = 2}, Soon());
}

struct Trip {
  Operation operation{};
  int victim = 0;  ///< Its rank, which is also its place in the world.
  int step = 0;    ///< Before this operation on the fabric, counted from the call's beginning.
  int signal = 0;
};

/// The call under test. The seed gives each rank a few chunks.
absl::Status CallUnderTest(sdk::Group& group, Operation operation) {
  return Try(group, operation, 1003, 400, After(kCallTime));
}

void BeVictim(const Scene& scene, const Trip& trip) {
  Report& report = (*scene.board)[static_cast<std::size_t>(trip.victim)];
  int steps = -1;  // Not counted yet.
  auto inner = *fabric::Fabric::Open(scene.uri);
  TrippedFabric fabric(*inner, [&](const fabric::Op&) {
    if (steps < 0 || steps++ != trip.step) return;
    report.tripped.store(1);
    raise(trip.signal);
  });
  auto world = OpenInProcess(scene, fabric, static_cast<std::uint32_t>(trip.victim));
  if (!world.ok()) return report.Complain(world.status().ToString());
  auto group = (*world)->MakeGroup(GroupOfAll(kMembers, 1));
  if (const auto met = (*group)->Barrier(Soon()); !met.ok()) return report.Complain(met.ToString());
  steps = 0;
  const auto status = CallUnderTest(**group, trip.operation);
  steps = -1;
  if (report.tripped.load() == 0) report.got_through.store(1);
  // One that was stopped goes on here in its own group, whose time has passed.
  if (status.ok()) (void)(*group)->Barrier(After(kCallTime));
  report.finished.store(1);
}

/// Names the victim in this call or the next one, and goes on with the other survivor.
void Survive(FabricWorld& world, const Trip& trip, Report& report) {
  auto group = world.MakeGroup(GroupOfAll(kMembers, 1));
  if (const auto met = (*group)->Barrier(Soon()); !met.ok()) return report.Complain(met.ToString());
  const auto began = base::SystemClock().Now();
  auto status = CallUnderTest(**group, trip.operation);
  if (status.ok()) status = (*group)->Barrier(After(kCallTime));
  const auto took = base::SystemClock().Now() - began;
  if (status.ok()) return;
  const char* reason = trip.signal == SIGKILL ? "RANK_LOST" : "RANK_SILENT";
  if (Reason(status) != reason || sdk::FailedRank(status) != trip.victim) {
    return report.Complain(status.ToString());
  }
  // Two calls, and the pauses of a busy machine.
  if (took > base::Scaled(2 * kCallTime + std::chrono::seconds(5))) {
    return report.Complain("too late");
  }
  if ((*group)->Barrier(Soon()) != status) return report.Complain("the group has not ended");
  report.named.store(1);
  sdk::GroupDescriptor rest{.job = "job", .epoch = 2, .members = {}, .offsets = {}};
  for (std::uint32_t i = 0; i < kMembers; ++i) {
    if (static_cast<int>(i) != trip.victim) rest.members.push_back(i);
  }
  auto next = world.MakeGroup(rest);
  if (!next.ok()) return report.Complain(next.status().ToString());
  for (const Operation operation : kOperations) {
    if (const auto again = Try(**next, operation, 5, 400, Soon()); !again.ok()) {
      return report.Complain("afterwards: " + again.ToString());
    }
  }
}

void BeSurvivor(const Scene& scene, const Trip& trip, std::uint32_t index) {
  Report& report = (*scene.board)[index];
  auto fabric = *fabric::Fabric::Open(scene.uri);
  const std::size_t descriptors = testing::OpenFiles();
  {
    auto world = OpenInProcess(scene, *fabric, index);
    if (!world.ok()) return report.Complain(world.status().ToString());
    Survive(**world, trip, report);
  }
  if (testing::OpenFiles() != descriptors) report.Complain("descriptors are left");
  report.finished.store(1);
}

}  // namespace

class ProcessTest : public QObject {
  Q_OBJECT

  QTemporaryDir folder_;
  Board* board_ = nullptr;
  Scene scene_;
  std::string cluster_;

  void BeginScene() {
    std::memset(static_cast<void*>(board_), 0, sizeof *board_);
    // ONEPIECE_TEST_FABRIC=ucx://lo runs these tests there; docs/collaboration.md says what does
    // not hold there yet.
    const QString other = qEnvironmentVariable("ONEPIECE_TEST_FABRIC");
    scene_ = {.uri = other.isEmpty() ? "shm://" + cluster_ : other.toStdString(),
              .hub = folder_.filePath("hub").toStdString(),
              .start = {-1, -1},
              .board = board_};
    QCOMPARE(pipe(scene_.start.data()), 0);
  }
  void LetWorkersMeet(int workers) const {
    for (int i = 0; i < workers; ++i) QCOMPARE(write(scene_.start[1], "x", 1), ssize_t{1});
  }
  void EndScene() {
    for (const int fd : scene_.start) ::close(fd);
    // What the dead held.
    QVERIFY(fabric::UnlinkStale(cluster_).ok());
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      const std::string name = entry.path().filename().string();
      QVERIFY2(name.find("." + cluster_ + ".") == std::string::npos, name.c_str());
    }
  }
  [[nodiscard]] std::string Trouble() const {
    std::string text;
    for (const Report& report : *board_) {
      if (report.trouble[0] != '\0') text += std::string(report.trouble.data()) + "\n";
    }
    return text;
  }

  /// One trip. `got_through`: the call has fewer steps.
  void Run(const Trip& trip, bool& got_through) {
    BeginScene();
    Processes processes;
    for (std::uint32_t i = 0; i < kMembers; ++i) {
      processes.Start([this, &trip, i] {
        if (static_cast<int>(i) == trip.victim) return BeVictim(scene_, trip);
        BeSurvivor(scene_, trip, i);
      });
    }
    const auto hub = RendezvousHub::Listen(scene_.hub, kMembers);
    QVERIFY2(hub.ok(), hub.status().ToString().c_str());
    LetWorkersMeet(kMembers);
    const auto victim = static_cast<std::size_t>(trip.victim);
    processes.AwaitSignalled(victim);
    const auto survivors_are = [&](std::atomic<int> Report::*what) {
      for (std::size_t i = 0; i < kMembers; ++i) {
        if (i != victim && ((*board_)[i].*what).load() == 0) return false;
      }
      return true;
    };
    const bool tripped = (*board_)[victim].tripped.load() == 1;
    if (tripped) {
      // The stopped one goes on while the others are in their next group.
      (void)testing::Eventually(
          [&] { return survivors_are(&Report::named) || !Trouble().empty(); });
      processes.Continue(victim);
    }
    (void)testing::Eventually([&] { return survivors_are(&Report::finished); });
    QVERIFY2(Trouble().empty(), Trouble().c_str());
    QVERIFY(survivors_are(&Report::finished));
    got_through = (*board_)[victim].got_through.load() == 1;
    QVERIFY(tripped != got_through);
    if (tripped) QVERIFY(survivors_are(&Report::named));
    processes.KillAll();
    EndScene();
  }

 private Q_SLOTS:
  void initTestCase() {
    cluster_ = "collectives-process-" + std::to_string(getpid());
    void* memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ONEPIECE_CHECK(memory != MAP_FAILED);
    board_ = new (memory) Board();
  }

  void RankThatEndsOrStops_IsNamedByAll_data() {
    QTest::addColumn<int>("operation");
    QTest::addColumn<int>("signal");
    for (const Operation operation : kOperations) {
      for (const int signal : {SIGKILL, SIGSTOP}) {
        QTest::addRow("%s, %s", NameOf(operation), signal == SIGKILL ? "killed" : "stopped")
            << static_cast<int>(operation) << signal;
      }
    }
  }
  void RankThatEndsOrStops_IsNamedByAll() {
    QFETCH(int, operation);
    QFETCH(int, signal);
    // A stop takes a deadline's time, so a short run takes a few of its steps.
    const int stride = signal == SIGKILL || LongRun() ? 1 : 7;
    int trips = 0;
    for (int victim = 0; victim < static_cast<int>(kMembers); ++victim) {
      for (int step = (victim * 3) % stride;; step += stride) {
        bool got_through = false;
        const Trip trip{static_cast<Operation>(operation), victim, step, signal};
        Run(trip, got_through);
        if (QTest::currentTestFailed()) {
          qWarning("victim %d, step %d", victim, step);
          return;
        }
        if (got_through) break;
        ++trips;
      }
    }
    qInfo("%d trips", trips);
    QVERIFY(trips > 0);
  }

  void WorkerThatDied_IsTakenInAgain() {
    BeginScene();
    Processes processes;
    std::array<int, 2> again{};
    QCOMPARE(pipe(again.data()), 0);
    const auto meet = [](FabricWorld& world, std::uint64_t epoch) {
      auto group = world.MakeGroup(GroupOfAll(kMembers, epoch));
      return group.ok() ? Try(**group, Operation::kAllReduce, epoch, 3000, Soon()) : group.status();
    };
    for (std::uint32_t i = 0; i < kMembers; ++i) {
      processes.Start([&, i] {
        Report& report = (*board_)[i];
        auto fabric = *fabric::Fabric::Open(scene_.uri);
        auto world = OpenInProcess(scene_, *fabric, i);
        auto status = world.ok() ? meet(**world, 1) : world.status();
        if (!status.ok()) return report.Complain(status.ToString());
        const auto group = (*world)->MakeGroup(GroupOfAll(kMembers, 2));
        const auto unused = (*world)->MakeGroup(GroupOfAll(kMembers, 2));
        report.got_through.store(1);
        if (i == 1) {
          while (true) pause();
        }
        status = (*group)->Barrier(Soon());
        if (Reason(status) != "RANK_LOST") return report.Complain(status.ToString());
        const auto seat = JoinRendezvous(scene_.hub, i, kMembers);
        status = (*world)->Reconnect(std::array{1U}, **seat, Soon());
        if (!status.ok()) return report.Complain(status.ToString());
        if (Reason((*group)->Barrier(Soon())) != "RANK_LOST") return report.Complain("goes on");
        status = (*unused)->Barrier(Soon());
        if (Reason(status) != "GROUP_ENDED") return report.Complain(status.ToString());
        status = meet(**world, 3);
        if (!status.ok()) return report.Complain(status.ToString());
        report.finished.store(1);
      });
    }
    // The one that takes the place of worker 1. It waits for its byte until that one has died.
    processes.Start([&] {
      char byte = 0;
      ONEPIECE_CHECK(read(again[0], &byte, 1) == 1);
      auto fabric = *fabric::Fabric::Open(scene_.uri);
      auto world = OpenInProcess(scene_, *fabric, 1);
      const auto status = world.ok() ? meet(**world, 3) : world.status();
      if (!status.ok()) return (*board_)[1].Complain(status.ToString());
      (*board_)[1].finished.store(1);
    });
    const auto hub = RendezvousHub::Listen(scene_.hub, kMembers);
    LetWorkersMeet(kMembers);
    const auto all_are = [&](std::atomic<int> Report::*what) {
      return testing::Eventually([&] {
        for (std::size_t i = 0; i < kMembers; ++i) {
          if (((*board_)[i].*what).load() == 0) return false;
        }
        return true;
      });
    };
    QVERIFY(all_are(&Report::got_through));
    processes.Kill(1);
    QCOMPARE(write(again[1], "x", 1), ssize_t{1});
    LetWorkersMeet(1);
    const bool finished = all_are(&Report::finished);
    QVERIFY2(finished && Trouble().empty(), Trouble().c_str());
    processes.KillAll();
    for (const int fd : again) ::close(fd);
    EndScene();
  }
};

}  // namespace onepiece::collectives

ONEPIECE_TEST(onepiece::collectives::ProcessTest)
#include "process_test.moc"
