#include "tests/bench/database/load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "cluster/base/clock.h"
#include "cluster/base/status.h"

namespace onepiece::bench {
namespace {

/// Seconds of processor that another process has used.
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

/// Resident memory, shared memory included.
double ResidentBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  double size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

using Operation = absl::FunctionRef<absl::Status(Session&, std::uint32_t key)>;

/// Client i does the keys i, i + clients, …
absl::StatusOr<Phase> RunPhase(const Store& store, std::vector<std::unique_ptr<Session>>& sessions,
                               std::size_t values, Operation operation) {
  std::mutex mutex;
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
      for (std::size_t key = client; key < values && status.ok(); key += sessions.size()) {
        const auto begun = base::SystemClock().Now();
        status = operation(*sessions[client], static_cast<std::uint32_t>(key));
        mine.push_back(
            std::chrono::duration<double, std::micro>(base::SystemClock().Now() - begun).count());
      }
      const std::lock_guard lock(mutex);
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

absl::StatusOr<Turn> RunTurn(Store& store, const Value& value, const TurnOptions& options) {
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < options.clients; ++i) {
    ONEPIECE_ASSIGN_OR_RETURN(sessions.emplace_back(), store.Connect());
  }
  Turn turn;
  const double before = ResidentBytes(store.pid());
  ONEPIECE_ASSIGN_OR_RETURN(
      turn.put, RunPhase(store, sessions, options.values,
                         [&](Session& session, auto key) { return session.Put(key, value); }));
  ONEPIECE_ASSIGN_OR_RETURN(
      turn.get, RunPhase(store, sessions, options.values,
                         [&](Session& session, auto key) { return session.Get(key, value); }));
  turn.memory_ratio = (ResidentBytes(store.pid()) - before) /
                      static_cast<double>(options.values * value.bytes.size());
  sessions.clear();
  ONEPIECE_RETURN_IF_ERROR(store.Clear());
  return turn;
}

}  // namespace onepiece::bench
