// One history of the data plane in one thread: simulated time, a network that loses and delays,
// processes that die, pause and come back, and a ledger of what was told to whom. Everything
// follows from the seed.
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
#include "onepiece/v1/database.pb.h"

namespace onepiece::simulation {

using base::Duration;

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // --- Time and chance.
  base::ManualClock& clock() { return clock_; }
  [[nodiscard]] base::MonotonicTime Now() const { return clock_.Now(); }
  /// Runs `what` after `delay`.
  void After(Duration delay, std::function<void()> what);
  /// Runs what is due until `end` has passed since the beginning.
  void RunUntil(Duration end);
  /// A number of 0 to n − 1.
  std::uint64_t Pick(std::uint64_t n) { return random_() % n; }
  bool Chance(double share) { return static_cast<double>(random_() >> 11) * 0x1.0p-53 < share; }
  Duration Between(Duration from, Duration to) {
    return from + Duration(static_cast<std::int64_t>(
                      Pick(static_cast<std::uint64_t>((to - from).count()) + 1)));
  }
  base::Uid NewUid();

  // --- Processes. What was sent to an earlier life is lost. A process that was declared dead while
  // it was paused comes back under another incarnation.
  struct Process {
    std::uint64_t life = 0;
    std::uint64_t incarnation = 0;
    bool alive = false;
    bool paused = false;
    std::vector<std::function<void()>> waiting;  ///< What came while it was paused.
    base::MonotonicTime healthy_since{};
    base::MonotonicTime down_since{};
  };
  void Start(const std::string& node);
  void Kill(const std::string& node);
  void Pause(const std::string& node);
  void Continue(const std::string& node);
  /// The links between the two lose everything until they are joined.
  void Cut(const std::string& a, const std::string& b);
  void Join(const std::string& a, const std::string& b);
  [[nodiscard]] const Process& At(const std::string& node) const { return processes_.at(node); }
  /// What the NodeManager says: a process that has been silent for 3 s is dead.
  [[nodiscard]] bool Routed(const std::string& node) const;
  [[nodiscard]] bool IsOver(const std::string& node, std::uint64_t incarnation) const;

  // --- Network.
  /// Runs `what` at `to` after a while, unless the message or its receiver is lost.
  void Send(const std::string& from, const std::string& to, std::function<void()> what);
  /// The same, and nothing is lost and sent again: a one-sided write.
  void Write(const std::string& from, const std::string& to, std::function<void()> what);
  /// The same for a timer of `node`: it is lost with its process, and waits while that is paused.
  void Later(const std::string& node, Duration delay, std::function<void()> what);
  template <typename Answer>
  struct Reply {
    std::optional<Answer> answer;
    bool refused = false;  ///< Nobody is there. If there is no answer either, it took too long.
  };
  /// A call: `handle` runs at `to`, and then `done` at `from` with its answer, or after 2 s.
  template <typename Answer>
  void Call(const std::string& from, const std::string& to, std::function<Answer()> handle,
            std::function<void(Reply<Answer>)> done);

  double loss = 0;  ///< Share of the messages that are lost, and so come later.

  // --- What happened.
  /// A line for whoever replays a seed; kept only when ONEPIECE_SEED names one.
  void Tell(const std::string& what);
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
  /// Runs `what` in this life of `node`: now, when its pause ends, or never.
  void RunAt(const std::string& node, std::uint64_t life, std::function<void()> what);

  base::ManualClock clock_;
  const base::MonotonicTime start_ = clock_.Now();
  std::mt19937_64 random_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t last_event_ = 0;
  std::map<std::string, Process> processes_;
  std::set<std::pair<std::string, std::string>> cut_;
  std::vector<std::string> violations_;
};

template <typename Answer>
void World::Call(const std::string& from, const std::string& to, std::function<Answer()> handle,
                 std::function<void(Reply<Answer>)> done) {
  const auto open = std::make_shared<bool>(true);
  const auto once = [open, done = std::move(done)](Reply<Answer> reply) {
    if (std::exchange(*open, false)) done(std::move(reply));
  };
  if (!At(to).alive) {
    return Later(from, std::chrono::milliseconds(1),
                 [once] { once({.answer = std::nullopt, .refused = true}); });
  }
  Send(from, to, [this, from, to, handle = std::move(handle), once] {
    Send(to, from, [once, answer = handle()] { once({.answer = answer, .refused = false}); });
  });
  Later(from, std::chrono::seconds(2), [once] { once({}); });
}

}  // namespace onepiece::simulation
