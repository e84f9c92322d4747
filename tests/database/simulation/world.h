// One history of the data plane in one thread: simulated time, a network that loses and delays, and
// processes that die, pause and come back. Everything follows from the seed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "tests/database/simulation/fiber.h"

namespace onepiece::simulation {

using base::Duration;

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() { EndFibers(""); }

  // --- Time and chance.
  base::ManualClock& clock() { return clock_; }
  [[nodiscard]] base::MonotonicTime Now() const { return clock_.Now(); }
  /// How much time has passed since the beginning.
  [[nodiscard]] Duration Passed() const { return Now() - start_; }
  /// Runs `what` after `delay`.
  void After(Duration delay, std::function<void()> what);
  /// Runs what is due until `end` has passed since the beginning.
  void RunUntil(Duration end);
  std::uint64_t Random() { return random_(); }
  /// A number of 0 to n − 1.
  std::uint64_t Pick(std::uint64_t n) { return random_() % n; }
  bool Chance(double share) { return static_cast<double>(random_() >> 11) * 0x1.0p-53 < share; }
  Duration Between(Duration from, Duration to) {
    return from + Duration(static_cast<std::int64_t>(
                      Pick(static_cast<std::uint64_t>((to - from).count()) + 1)));
  }
  base::Uid NewUid();

  // --- Processes. What was sent to an earlier life is lost.
  struct Process {
    std::uint64_t life = 0;
    bool alive = false;
    bool paused = false;
    std::vector<std::function<void()>> waiting;  ///< What came while it was paused.
    base::MonotonicTime healthy_since{};
  };
  void Start(const std::string& node);
  void Kill(const std::string& node);
  void Pause(const std::string& node);
  void Continue(const std::string& node);
  /// The links between the two lose everything until they are joined.
  void Cut(const std::string& a, const std::string& b);
  void Join(const std::string& a, const std::string& b);
  [[nodiscard]] bool IsCut(const std::string& a, const std::string& b) const;
  [[nodiscard]] const Process& At(const std::string& node) const { return processes_.at(node); }
  /// Where a life of a process listens: another life has another address.
  struct Place {
    std::string node;
    std::uint64_t life = 0;
  };
  [[nodiscard]] std::string AddressOf(const std::string& node) const;
  [[nodiscard]] static Place PlaceOf(const std::string& address);
  [[nodiscard]] bool Listens(const Place& place) const;

  // --- Threads. A fiber ends with its process, and stands still while that is paused.
  /// Begins a thread of `node`.
  void Spawn(const std::string& node, std::function<void()> body);
  /// The running thread waits.
  void Sleep(Duration duration);
  /// Ends all threads. What they refer to must still live.
  void EndAll() { EndFibers(""); }

  // --- Network.
  /// Runs `what` at `to` after a while, unless the message or its receiver is lost.
  void Send(const std::string& from, const std::string& to, std::function<void()> what);
  /// The same, and nothing is lost and sent again: a one-sided write, whose sender hears nothing.
  void Write(const std::string& from, const std::string& to, std::function<void()> what);
  /// The same for a timer of `node`: it is lost with its process, and waits while that is paused.
  void Later(const std::string& node, Duration delay, std::function<void()> what);
  template <typename Answer>
  struct Reply {
    std::optional<Answer> answer;
    bool refused = false;  ///< Nobody is there. If there is no answer either, it took too long.
  };
  static constexpr Duration kTimeout = std::chrono::seconds(2);
  /// A call: `handle` runs at `to`, and then `done` at `from` with its answer, or after `timeout`.
  template <typename Answer>
  void Call(const std::string& from, const Place& to, std::function<Answer()> handle,
            std::function<void(Reply<Answer>)> done, Duration timeout = kTimeout);
  /// The same for the running thread of `from`, which waits for the answer.
  template <typename Answer>
  Reply<Answer> Ask(const std::string& from, const Place& to, std::function<Answer()> handle,
                    Duration timeout = kTimeout);
  /// The same for a handler that waits itself.
  template <typename Answer>
  Reply<Answer> AskThread(const std::string& from, const Place& to, std::function<Answer()> handle,
                          Duration timeout);
  enum class Put : std::uint8_t { kDone, kRefused, kUnknown };
  /// The running thread writes into the memory of `to`, also while that is paused.
  Put PutAt(const std::string& from, const Place& to, const std::function<void()>& deposit);

  double loss = 0;   ///< Share of the messages that are lost, and so come later.
  double doubt = 0;  ///< Share of the answers that never come.

  // --- What happened.
  /// A line for whoever replays a seed; kept only when ONEPIECE_SEED names one alone.
  void Tell(const std::string& what) const;
  static bool Tells();
  void Violation(const std::string& what);
  [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }

 private:
  struct Event {
    base::MonotonicTime at;
    std::uint64_t number;
    std::function<void()> what;
    bool operator>(const Event& other) const {
      return std::pair(at, number) > std::pair(other.at, other.number);
    }
  };
  struct Thread {
    std::string node;
    std::unique_ptr<Fiber> fiber;
  };
  /// Runs `what` in this life of `node`: now, when its pause ends, or never.
  void RunAt(const std::string& node, std::uint64_t life, std::function<void()> what);
  /// Resumes a thread. Does nothing when it has ended.
  void Run(std::uint64_t thread);
  /// Ends the threads of a process, or all of them.
  void EndFibers(const std::string& node);
  [[nodiscard]] Duration Way() { return Between(kShortest, Chance(0.02) ? kSlow : kUsual); }

  static constexpr Duration kShortest = std::chrono::microseconds(50);
  static constexpr Duration kUsual = std::chrono::milliseconds(2);
  static constexpr Duration kSlow = std::chrono::milliseconds(800);
  base::ManualClock clock_;
  const base::MonotonicTime start_ = clock_.Now();
  std::mt19937_64 random_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t last_event_ = 0;
  std::map<std::string, Process> processes_;
  std::map<std::uint64_t, Thread> threads_;
  std::uint64_t last_thread_ = 0, running_ = 0;
  std::set<std::pair<std::string, std::string>> cut_;
  std::vector<std::string> violations_;
};

template <typename Answer>
void World::Call(const std::string& from, const Place& to, std::function<Answer()> handle,
                 std::function<void(Reply<Answer>)> done, Duration timeout) {
  const auto open = std::make_shared<bool>(true);
  // An answer to an earlier life of the caller is lost.
  const Place back{from, At(from).life};
  const auto once = [this, back, open, done = std::move(done)](Reply<Answer> reply) {
    if (Listens(back) && std::exchange(*open, false)) done(std::move(reply));
  };
  if (!Listens(to)) {
    return Later(from, std::chrono::milliseconds(1),
                 [once] { once({.answer = std::nullopt, .refused = true}); });
  }
  Send(from, to.node, [this, from, to, handle = std::move(handle), once] {
    Answer answer = handle();
    if (Chance(doubt)) return;
    Send(to.node, from,
         [once, answer = std::move(answer)] { once({.answer = answer, .refused = false}); });
  });
  Later(from, timeout, [once] { once({}); });
}

template <typename Answer>
World::Reply<Answer> World::Ask(const std::string& from, const Place& to,
                                std::function<Answer()> handle, Duration timeout) {
  Reply<Answer> got;
  const std::uint64_t me = running_;
  Call<Answer>(
      from, to, std::move(handle),
      [this, &got, me](Reply<Answer> reply) {
        got = std::move(reply);
        Run(me);
      },
      timeout);
  Fiber::Suspend();
  return got;
}

template <typename Answer>
World::Reply<Answer> World::AskThread(const std::string& from, const Place& to,
                                      std::function<Answer()> handle, Duration timeout) {
  Reply<Answer> got;
  const std::uint64_t me = running_;
  const auto open = std::make_shared<bool>(true);
  const Place back{from, At(from).life};
  const auto once = [this, back, open, &got, me](Reply<Answer> reply) {
    if (!Listens(back) || !std::exchange(*open, false)) return;
    got = std::move(reply);
    Run(me);
  };
  if (Listens(to)) {
    Send(from, to.node, [this, from, to, handle = std::move(handle), once] {
      Spawn(to.node, [this, from, to, handle, once] {
        Answer answer = handle();
        Send(to.node, from,
             [once, answer = std::move(answer)] { once({.answer = answer, .refused = false}); });
      });
    });
    Later(from, timeout, [once] { once({}); });
  } else {
    Later(from, std::chrono::milliseconds(1),
          [once] { once({.answer = std::nullopt, .refused = true}); });
  }
  Fiber::Suspend();
  return got;
}

}  // namespace onepiece::simulation
