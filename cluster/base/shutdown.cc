#include "cluster/base/shutdown.h"

#include <signal.h>

#include "cluster/base/check.h"

namespace onepiece::base {
namespace {

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, number);
  return set;
}

}  // namespace

ShutdownSignals::ShutdownSignals() {
  const sigset_t set = Signals();
  ONEPIECE_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  ONEPIECE_CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
}

int ShutdownSignals::Wait() {
  const sigset_t set = Signals();
  int number = 0;
  ONEPIECE_CHECK(sigwait(&set, &number) == 0);
  return number;
}

std::optional<int> ShutdownSignals::WaitFor(Duration limit) {
  const sigset_t set = Signals();
  timespec time{};
  time.tv_sec = limit / std::chrono::seconds(1);
  time.tv_nsec = (limit % std::chrono::seconds(1)).count();
  const int number = sigtimedwait(&set, nullptr, &time);
  if (number < 0) return std::nullopt;
  return number;
}

}  // namespace onepiece::base
