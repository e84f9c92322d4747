// Was what the clients saw possible for one register that does one thing at a time?
//
// Wing and Gong, "Testing and Verifying Concurrent Objects" (1993): search for an order of the
// operations that keeps real time and that the register allows. Lowe, "Testing for
// Linearizability" (2017): remember what was tried (set of operations done, value), so the same
// place is never searched twice. Herlihy and Wing (1990): the objects of a history can be judged
// one by one, hence one register at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/nodemanager/paxos/sim/random.h"

namespace onepiece::paxos::sim {

/// One call of a client, on one register. All registers begin as 0.
struct Operation {
  enum class Kind : std::uint8_t { kRead, kWrite, kCompareAndSet };
  static constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

  Kind kind = Kind::kRead;
  std::uint32_t client = 0;
  std::uint32_t key = 0;
  std::uint64_t expected = 0;  ///< kCompareAndSet.
  std::uint64_t written = 0;   ///< Not kRead: never 0, and of this operation alone.
  std::uint64_t before = 0;    ///< kRead, kCompareAndSet, answered: the value that it met.
  Nanos called = 0;
  Nanos returned =
      kNever;  ///< kNever: no answer came; it may have happened, then or later, or not.
};

/// Judges each register of `history`. Returns the operations of one that no order explains, as
/// text; nothing when the history is linearisable. REQUIRES: `written` is unique.
std::optional<std::string> FindNonLinearisable(const std::vector<Operation>& history);

/// As a line of a report.
std::string Describe(const Operation& operation);

}  // namespace onepiece::paxos::sim
