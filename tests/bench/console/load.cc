#include "tests/bench/console/load.h"

#include <time.h>

#include <QAbstractItemModel>
#include <QCoreApplication>
#include <QDeadlineTimer>
#include <QEventLoop>
#include <QTimer>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>

#include "cluster/session/log_tail.h"
#include "tests/eventually.h"
#include "tests/gui/app/window.h"
#include "tests/session/fake_cluster.h"

namespace onepiece::bench {
namespace {

using std::chrono::steady_clock;

constexpr int kWarmUpTicks = 5;
// The interval at which the page of logs takes new lines.
constexpr auto kLogTick = std::chrono::milliseconds(200);

double Ms(steady_clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

double ThreadCpuMs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

Spread SpreadOf(std::vector<double> times) {
  if (times.empty()) return {};
  std::sort(times.begin(), times.end());
  const auto rank = [&](std::size_t percent) {
    return times[(times.size() * percent + 99) / 100 - 1];
  };
  return {rank(50), rank(95), times.back()};
}

/// Posts an event to the GUI thread, and the next one after that one has arrived. The destructor
/// waits for the thread and not for the event.
class Watchdog {
 public:
  Watchdog() : thread_([this](const std::stop_token& stop) { Run(stop); }) {}
  double Take() { return longest_ms_.exchange(0); }

 private:
  void Run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const auto posted = steady_clock::now();
      auto answered = std::make_shared<std::binary_semaphore>(0);
      QMetaObject::invokeMethod(
          qApp, [answered] { answered->release(); }, Qt::QueuedConnection);
      while (!answered->try_acquire_for(std::chrono::milliseconds(50)) && !stop.stop_requested()) {
      }
      const double waited_ms = Ms(steady_clock::now() - posted);
      if (waited_ms > longest_ms_) longest_ms_ = waited_ms;
      testing::Pause(std::chrono::milliseconds(2));
    }
  }

  std::atomic<double> longest_ms_ = 0;
  std::jthread thread_;
};

class Run {
 public:
  explicit Run(const ConsoleLoad& load) : load_(load), scene_(load.scene) {
    window_->shown_cluster().Show(scene_.snapshot(), testing::LiveLink());
    Prepare();
  }
  ~Run() { next_.wait(); }

  std::vector<PageTimes> Measure() {
    std::vector<PageTimes> all;
    auto* inspector = window_->findChild<gui::Inspector*>();
    inspector->Inspect(QStringLiteral("node/instance-2"));
    for (const gui::View* page : window_.pages()) all.push_back(MeasurePage(page->id()));
    const auto& jobs = scene_.snapshot()->jobs.value->jobs;
    if (!jobs.empty() && window_->ShowPage(QStringLiteral("jobs"))) {
      inspector->Inspect(QStringLiteral("job/") + QString::fromStdString(jobs.back().job->uid()));
      all.push_back(MeasurePage(QStringLiteral("jobs")));
      all.back().page = QStringLiteral("jobs, one inspected");
    }
    if (load_.log_lines > 0) all.push_back(MeasureLogs());
    return all;
  }

 private:
  /// Makes snapshots on another thread, as a session does. The GUI thread has no part in it.
  void Prepare() {
    next_ = std::async(std::launch::async, [this] { return scene_.Step(); });
  }

  PageTimes MeasurePage(const QString& id) {
    window_->ShowPage(id);
    testing::TestWindow::Settle();
    std::vector<double> wall, cpu;
    watchdog_.Take();
    for (int tick = 0; tick < load_.ticks + kWarmUpTicks; ++tick) {
      const auto due = steady_clock::now() + std::chrono::milliseconds(testing::Scene::kTickMs);
      auto snapshot = next_.get();
      Prepare();
      const double cpu_start = ThreadCpuMs();
      const auto start = steady_clock::now();
      const std::int64_t now_ms = snapshot->at_ms;
      window_->shown_cluster().Show(std::move(snapshot), testing::LiveLink(now_ms));
      QCoreApplication::processEvents();
      if (tick >= kWarmUpTicks) {
        wall.push_back(Ms(steady_clock::now() - start));
        cpu.push_back(ThreadCpuMs() - cpu_start);
      } else {
        watchdog_.Take();
      }
      if (load_.paced) WaitUntil(due);
    }
    PageTimes times{id, static_cast<int>(wall.size())};
    times.wall = SpreadOf(std::move(wall));
    times.cpu = SpreadOf(std::move(cpu));
    times.stall_ms = watchdog_.Take();
    return times;
  }

  /// This code shows no snapshots. The session does, and the page takes lines by itself.
  PageTimes MeasureLogs() {
    testing::FakeCluster cluster;
    cluster.SetUp(static_cast<int>(session::LogTail::kMaxProcesses) - 3);
    auto log = [&, number = 0]() mutable {  // A line of every process.
      ++number;
      cluster.Log(number % 50 == 0 ? v1::LOG_WARNING : v1::LOG_INFO,
                  "job 0b5e8a3c-1111-4222-8333-abcdefabcdef: step " + std::to_string(number));
    };
    window_->ShowPage(QStringLiteral("logs"));
    const QAbstractItemModel* lines = window_->page()->ExportModel();
    window_->shown_cluster().Follow(std::make_shared<session::Session>(
        session::ClusterAddress{"fake", {cluster.address()}, false}));
    const QDeadlineTimer filled(std::chrono::seconds(60));
    for (; lines->rowCount() < load_.log_lines && !filled.hasExpired();) {
      log();
      WaitUntil(steady_clock::now() + std::chrono::milliseconds(10));
    }
    std::vector<double> wall, cpu;
    double stall_ms = 0;
    for (int tick = 0; tick < load_.ticks + kWarmUpTicks; ++tick) {
      watchdog_.Take();
      const double cpu_start = ThreadCpuMs();
      for (int i = 0; i < load_.log_lines_per_tick; ++i) log();
      WaitUntil(steady_clock::now() + kLogTick);
      if (tick < kWarmUpTicks) continue;
      wall.push_back(watchdog_.Take());
      cpu.push_back(ThreadCpuMs() - cpu_start);
      stall_ms = std::max(stall_ms, wall.back());
    }
    PageTimes times{QStringLiteral("logs, %1 lines").arg(lines->rowCount()),
                    static_cast<int>(wall.size())};
    times.wall = SpreadOf(std::move(wall));
    times.cpu = SpreadOf(std::move(cpu));
    times.stall_ms = stall_ms;
    window_->shown_cluster().Follow(nullptr);
    return times;
  }

  static void WaitUntil(steady_clock::time_point due) {
    const double left_ms = Ms(due - steady_clock::now());
    if (left_ms <= 0) return;
    QEventLoop loop;
    QTimer::singleShot(static_cast<int>(left_ms), Qt::PreciseTimer, &loop, &QEventLoop::quit);
    loop.exec();
  }

  const ConsoleLoad& load_;
  testing::Scene scene_;
  std::future<std::shared_ptr<const session::Snapshot>> next_;
  testing::TestWindow window_;
  Watchdog watchdog_;
};

}  // namespace

std::vector<PageTimes> MeasurePages(const ConsoleLoad& load) { return Run(load).Measure(); }

}  // namespace onepiece::bench
