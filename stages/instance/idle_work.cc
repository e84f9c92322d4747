#include "stages/instance/idle_work.h"

#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "spdlog/spdlog.h"

namespace onepiece::instance {
namespace {

constexpr base::Duration kFirstBackoff = std::chrono::seconds(1);
constexpr base::Duration kLongestBackoff = std::chrono::seconds(60);
constexpr base::Duration kLookAgain = std::chrono::hours(1);  // Changes wake the thread earlier.

std::string HowItEnded(int wait_status) {
  if (WIFSIGNALED(wait_status)) return "ended by signal " + std::to_string(WTERMSIG(wait_status));
  return "ended with code " + std::to_string(WEXITSTATUS(wait_status));
}

}  // namespace

IdleWork::IdleWork(IdleWorkOptions options, base::Clock& clock)
    : options_(std::move(options)),
      name_(options_.command.empty()
                ? ""
                : std::filesystem::path(options_.command.front()).filename().string()),
      clock_(clock),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (options_.command.empty()) return;
  thread_ = std::jthread([this](const std::stop_token& stop) { Loop(stop); });
}

IdleWork::~IdleWork() {
  Stop();
  // This comes after Stop, because a child that runs heeds only wake_fd_, not the stop token. It
  // waits until the child is gone, however long that takes.
  thread_ = {};
  ::close(wake_fd_);
}

void IdleWork::Start() {
  const base::MutexLock lock(mutex_);
  wanted_ = !options_.command.empty();
  changed_.NotifyAll();
}

void IdleWork::Stop() {
  base::MutexLock lock(mutex_);
  wanted_ = false;
  // A running child ends the phase itself (Ended). Stop waits for that.
  if (phase_ != Phase::kRunning) phase_ = Phase::kStopped;
  backoff_ = {};
  Wake();
  changed_.NotifyAll();
  if (options_.command.empty()) return;
  base::Clock& clock = base::SystemClock();  // A process takes real time to end.
  const bool gone = clock.WaitUntil(
      changed_, lock, {}, clock.Now() + kGiveBackLimit,
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return phase_ != Phase::kRunning; });
  if (!gone) spdlog::warn("idle work {}, pid {}, was killed but is not gone yet", name_, pid_);
}

void IdleWork::Wake() const {
  const std::uint64_t one = 1;
  // This fails only if the counter is full, and then the descriptor is readable anyway.
  [[maybe_unused]] const auto written = ::write(wake_fd_, &one, sizeof one);
}

std::string IdleWork::status() const {
  const base::MutexLock lock(mutex_);
  if (!wanted_) return "";
  switch (phase_) {
    case Phase::kRunning:
      return name_ + ", pid " + std::to_string(pid_);
    case Phase::kWaiting:
      return name_ + " " + why_;
    case Phase::kDone:
      return name_ + " is done";
    case Phase::kStopped:
      break;
  }
  return name_ + " starts";
}

void IdleWork::Loop(const std::stop_token& stop) {
  base::MutexLock lock(mutex_);
  while (!stop.stop_requested()) {
    const bool due =
        phase_ == Phase::kStopped || (phase_ == Phase::kWaiting && clock_.Now() >= due_);
    if (wanted_ && due) {
      std::optional<LowPriorityChild> child = Spawn();
      if (!child) continue;
      lock.Unlock();
      const auto started = clock_.Now();
      const int wait_status = child->Tend(wake_fd_);
      const auto took = clock_.Now() - started;
      lock.Lock();
      Ended(wait_status, took);
      continue;
    }
    const Phase seen = phase_;
    const auto until = phase_ == Phase::kWaiting ? due_ : clock_.Now() + kLookAgain;
    clock_.WaitUntil(changed_, lock, stop, until, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return phase_ != seen || (wanted_ && phase_ == Phase::kStopped);
    });
  }
}

std::optional<LowPriorityChild> IdleWork::Spawn() {
  std::uint64_t former = 0;
  // The lock is held, so this clears only what earlier calls of Stop have left. A Stop that comes
  // after it ends the new child, even before Tend polls.
  [[maybe_unused]] const auto cleared = ::read(wake_fd_, &former, sizeof former);
  if (options_.data_dir.empty()) {
    WaitForNextTime("needs a data directory (data_dir)");
    return std::nullopt;
  }
  auto child = LowPriorityChild::Spawn(options_.command, options_.data_dir + "/idle-work");
  if (!child.ok()) {
    WaitForNextTime("cannot start: " + base::Message(child.status()));
    return std::nullopt;
  }
  phase_ = Phase::kRunning;
  pid_ = child->pid();
  spdlog::info("idle work {} runs as pid {}", name_, pid_);
  return *std::move(child);
}

void IdleWork::Ended(int wait_status, base::Duration took) {
  // A child that ran for long before it failed does not inherit the pause of those before it.
  if (took > kLongestBackoff) backoff_ = {};
  if (!wanted_) {
    phase_ = Phase::kStopped;
  } else if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
    phase_ = Phase::kDone;
    spdlog::info("idle work {} is done", name_);
  } else {
    WaitForNextTime(HowItEnded(wait_status));
  }
  changed_.NotifyAll();
}

void IdleWork::WaitForNextTime(const std::string& why) {
  backoff_ = std::clamp(2 * backoff_, kFirstBackoff, kLongestBackoff);
  due_ = clock_.Now() + backoff_;
  phase_ = Phase::kWaiting;
  why_ = why;
  spdlog::warn("idle work {} {}; again in {} s, see idle-work/log in the data directory", name_,
               why, std::chrono::duration_cast<std::chrono::seconds>(backoff_).count());
}

}  // namespace onepiece::instance
