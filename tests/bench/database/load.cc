#include "tests/bench/database/load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <fstream>
#include <sstream>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"

namespace onepiece::bench {
namespace {

/// Returns the processor seconds that another process has used.
double ProcessSeconds(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string skipped;
  double user = 0, system = 0;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double OwnSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Returns the resident memory, including shared memory.
double ResidentBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  double size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

using Operation = absl::FunctionRef<absl::Status(Session&, std::uint32_t key)>;

/// Client i uses the keys i, i + clients, …, and ends with `last` of its last key, which counts for
/// the rate but not for the times of single operations.
absl::StatusOr<Phase> RunPhase(const Store& store, Sessions& sessions, std::size_t values,
                               Operation operation, Operation last) {
  base::Mutex mutex;
  std::vector<double> took_us;
  absl::Status failed;
  std::barrier start(static_cast<std::ptrdiff_t>(sessions.size()) + 1);
  std::vector<std::jthread> clients;
  for (std::size_t client = 0; client < sessions.size(); ++client) {
    clients.emplace_back([&, client] {
      std::vector<double> mine;
      mine.reserve(values / sessions.size() + 1);
      absl::Status status;
      start.arrive_and_wait();
      std::uint32_t key = 0;
      for (std::size_t i = client; i < values && status.ok(); i += sessions.size()) {
        key = static_cast<std::uint32_t>(i);
        const auto begun = base::SystemClock().Now();
        status = operation(*sessions[client], key);
        mine.push_back(
            std::chrono::duration<double, std::micro>(base::SystemClock().Now() - begun).count());
      }
      if (status.ok() && !mine.empty()) status = last(*sessions[client], key);
      const base::MutexLock lock(mutex);
      took_us.insert(took_us.end(), mine.begin(), mine.end());
      if (failed.ok()) failed = status;
    });
  }
  const double cpu = ProcessSeconds(store.pid()) + OwnSeconds();
  const auto begun = base::SystemClock().Now();
  start.arrive_and_wait();
  clients.clear();
  const double seconds = std::chrono::duration<double>(base::SystemClock().Now() - begun).count();
  const double used = ProcessSeconds(store.pid()) + OwnSeconds() - cpu;
  ONEPIECE_RETURN_IF_ERROR(failed);
  std::ranges::sort(took_us);
  const auto count = static_cast<double>(took_us.size());
  return Phase{.rate = count / seconds,
               .p50_us = took_us[took_us.size() / 2],
               .p99_us = took_us[std::min(took_us.size() - 1, took_us.size() * 99 / 100)],
               .cpu_us = 1e6 * used / count};
}

}  // namespace

absl::StatusOr<Turn> RunTurn(Store& store, Sessions& sessions, const Value& value,
                             std::size_t values) {
  const auto put = [&](Session& session, std::uint32_t key) { return session.Put(key, value); };
  const auto get = [&](Session& session, std::uint32_t key) { return session.Get(key, value); };
  const auto nothing = [](Session&, std::uint32_t) { return absl::OkStatus(); };
  Turn turn;
  const double before = ResidentBytes(store.pid());
  ONEPIECE_ASSIGN_OR_RETURN(turn.put, RunPhase(store, sessions, values, put, get));
  ONEPIECE_ASSIGN_OR_RETURN(turn.get, RunPhase(store, sessions, values, get, nothing));
  turn.memory_ratio =
      (ResidentBytes(store.pid()) - before) / static_cast<double>(values * value.bytes.size());
  ONEPIECE_RETURN_IF_ERROR(store.Clear());
  return turn;
}

}  // namespace onepiece::bench
