// What all parts of a history share: true time, chance, the events to come, and the records.
#pragma once

#include <algorithm>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/nodemanager/paxos/sim/invariants.h"
#include "tests/nodemanager/paxos/sim/plan.h"

namespace onepiece::paxos::sim {

struct Event {
  enum class Kind : std::uint8_t {
    kMessage,   ///< Arrives at host `node`. `argument` is its place in the network.
    kRequest,   ///< Arrives at host `node`. `argument` is its place in the network.
    kReply,     ///< Arrives at client `node`. `argument` is its place in the network.
    kTimer,     ///< Fires at host `node`. `argument` is its generation, as in the next three.
    kDisk,      ///< The write of host `node` is durable.
    kWake,      ///< Host `node` goes on, or starts.
    kClient,    ///< The timer of client `node` fires.
    kFault,     ///< The next fault is due.
    kDisaster,  ///< The disaster of Plan::disasters number `argument` happens.
    kAttack,    ///< The second half of a lease attack is due. Host `node` wants to lead.
    kPhase,     ///< The world looks whether the phase of the history is over.
  };
  Nanos at = 0;
  std::uint64_t order = 0;  ///< Events at one instant happen in the order of Push().
  Kind kind = Kind::kPhase;
  std::uint32_t node = 0;
  std::uint32_t argument = 0;
};

class Events {
 public:
  void Push(Nanos at, Event::Kind kind, std::size_t node = 0, std::uint32_t argument = 0) {
    heap_.push_back({at, ++order_, kind, static_cast<std::uint32_t>(node), argument});
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }
  /// REQUIRES: not empty.
  Event Pop() {
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    const Event next = heap_.back();
    heap_.pop_back();
    return next;
  }
  [[nodiscard]] bool empty() const { return heap_.empty(); }

 private:
  static bool Later(const Event& a, const Event& b) {
    return a.at != b.at ? a.at > b.at : a.order > b.order;
  }
  std::vector<Event> heap_;
  std::uint64_t order_ = 0;
};

/// The readable story of a history. It costs nothing when nobody listens.
class Trace {
 public:
  explicit Trace(std::ostream* out) : out_(out) {}
  [[nodiscard]] bool on() const { return out_ != nullptr; }
  void Line(Nanos now, std::string_view who, std::string_view what) {
    const std::string digits = std::to_string(now / kMicrosecond);
    *out_ << std::string(digits.size() < 9 ? 9 - digits.size() : 0, ' ') << digits << " us  " << who
          << "  " << what << '\n';
  }

 private:
  std::ostream* out_;
};

struct Context {
  Context(Plan drawn, WorldMutant wrong, std::ostream* story)
      : plan(std::move(drawn)), random(plan.seed), trace(story), mutant(wrong) {}

  Plan plan;
  Random random;
  Events events;
  Invariants invariants;
  Tally tally;
  Trace trace;
  WorldMutant mutant;
  Nanos now = 0;
  /// The present group. An operator who begins a new one counts on.
  std::uint64_t group = 1;
};

}  // namespace onepiece::paxos::sim
