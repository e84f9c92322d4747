// The deterministic harness. The producers, the consumer and the recovery of one ring are fibers of
// one thread, on a simulated fabric and a clock that only the schedule moves. Every operation of
// the fabric is a scheduling point and a place for a fault. A schedule is a list of choices, drawn
// from a seed or given. The choice 0 always means to go on without a fault, so a failing schedule
// shrinks by setting choices to 0.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace onepiece::ring {

class Choices {
 public:
  /// Choices drawn at random from `seed`.
  explicit Choices(std::uint64_t seed) : random_(seed) {}
  /// The given choices, and then 0 forever.
  explicit Choices(std::vector<std::uint32_t> given) : given_(std::move(given)), replay_(true) {}
  /// A number less than `n`. REQUIRES: n > 0.
  std::uint32_t Draw(std::uint32_t n);
  [[nodiscard]] const std::vector<std::uint32_t>& taken() const { return taken_; }

 private:
  std::mt19937_64 random_;
  std::vector<std::uint32_t> given_;
  bool replay_ = false;
  std::vector<std::uint32_t> taken_;
};

/// Faults of the protocol on purpose. The harness must catch each of them.
enum class Mutant : std::uint8_t {
  kNone,
  kBreakLockWithoutFence,
  kSkipHoleWithoutFence,
  kTailBeforeReserved,
  kCommittedBeforePayload,
  kSkipWithoutTailGuard,
};

/// What happened in one schedule, or in many.
struct Tally {
  std::uint64_t schedules = 0;
  std::uint64_t fenced = 0;        ///< Schedules in which an owner was fenced or the ring moved.
  std::uint64_t wrapped_full = 0;  ///< Schedules in which a producer met a full ring past a lap.
  std::uint64_t revoking = 0;      ///< Schedules on a backend that can revoke.
  std::uint64_t per_producer = 0;  ///< Schedules with a segment for each producer.
  std::uint64_t steps = 0;
  std::uint64_t sent = 0;
  std::uint64_t deaths = 0;
  std::uint64_t tears = 0;
  std::uint64_t splits = 0;
  std::uint64_t stalls = 0;
  std::uint64_t lates = 0;
  std::uint64_t cuts = 0;
  std::uint64_t unknown = 0;
  std::uint64_t resends = 0;
  std::uint64_t reconnects = 0;
  std::uint64_t moves = 0;
  std::uint64_t holes = 0;
  std::uint64_t locks = 0;
  std::uint64_t duplicates = 0;  ///< Dropped by the consumer.
  void Add(const Tally& other);
};

struct Verdict {
  std::string violation;  ///< Empty when every check held.
  std::string trace;      ///< Filled on request.
  Tally tally;
};

/// Runs one schedule to its end and checks it.
Verdict RunSchedule(Choices& choices, Mutant mutant, bool trace);

/// A shorter list of choices that still fails, and what it does. REQUIRES: `choices` fails.
struct Shrunk {
  std::vector<std::uint32_t> choices;
  Verdict verdict;
};
Shrunk Shrink(std::vector<std::uint32_t> choices, Mutant mutant);

}  // namespace onepiece::ring
