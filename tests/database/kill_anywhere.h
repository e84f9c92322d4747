// A process that writes for ever, killed again and again.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <QtTest>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <random>

#include "tests/eventually.h"

namespace onepiece::database {

/// Memory that the process shares with this one to report its work.
template <typename T>
class SharedWith {
 public:
  SharedWith()
      : shared_(new (mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                          -1, 0)) T) {}
  ~SharedWith() { munmap(shared_, sizeof(T)); }
  SharedWith(const SharedWith&) = delete;
  SharedWith& operator=(const SharedWith&) = delete;
  T& operator*() const { return *shared_; }
  T* operator->() const { return shared_; }

 private:
  T* const shared_;
};

/// Forks a process that does `work`, which never returns, kills it at a random moment, and checks
/// what it left; `kills` times, or until a check has failed. Prints the seed.
template <typename Work, typename Check>
void KillAnywhere(int kills, const Work& work, const Check& check) {
  const char* given = std::getenv("ONEPIECE_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (int kill = 0; kill < kills; ++kill) {
    const pid_t child = fork();
    if (child == 0) work();
    testing::Pause(std::chrono::microseconds(random() % (kill % 3 == 0 ? 5'000 : 40'000)));
    ::kill(child, SIGKILL);
    int status = 0;
    QCOMPARE(waitpid(child, &status, 0), child);
    QVERIFY2(WIFSIGNALED(status), qPrintable(QString("exit %1").arg(WEXITSTATUS(status))));
    check();
    if (QTest::currentTestFailed()) return;
  }
}

}  // namespace onepiece::database
