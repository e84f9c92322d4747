// Judges whether what the clients saw is possible for registers that do one thing at a time.
//
// Wing and Gong, "Testing and Verifying Concurrent Objects" (1993): search for an order of the
// operations that keeps real time and that the register allows. Lowe, "Testing for Linearizability"
// (2017): remember what was tried (the set of operations done, and the value), so that no place is
// searched twice. Herlihy and Wing (1990): the objects of a history can be judged one by one, so
// each register is judged by itself.
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
  std::uint64_t expected = 0;  ///< Used by kCompareAndSet.
  std::uint64_t written = 0;   ///< Not used by kRead. It is unique and never 0.
  std::uint64_t before = 0;    ///< The value that an answered kRead or kCompareAndSet met.
  Nanos called = 0;
  /// When the answer came, or kNever. An operation without answer may have happened at any time
  /// after its call, or not at all.
  Nanos returned = kNever;
};

/// Judges each register of `history`. Returns nothing when the history is linearisable, and
/// otherwise, as text, the operations of a register that no order explains.
/// REQUIRES: `written` is unique.
std::optional<std::string> FindNonLinearisable(const std::vector<Operation>& history);

/// The operation as a line of a report.
std::string Describe(const Operation& operation);

}  // namespace onepiece::paxos::sim
