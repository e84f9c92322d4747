// The state machine of a host: the toy, and in some histories the NodeManager's own beside it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "nodemanager/paxos/types.h"
#include "nodemanager/state/state_machine.h"
#include "tests/nodemanager/paxos/sim/plan.h"
#include "tests/nodemanager/paxos/sim/toy_state.h"

namespace onepiece::paxos::sim {

/// What the log's commands do. A command is a client's request to the toy. Where the real state
/// machine runs too, a command for that follows in the same payload.
///
/// Threading: thread-confined.
class Machine {
 public:
  struct Done {
    Request request;
    Result result;
  };

  /// Loads `bytes` of Save(). Null or empty bytes give the initial state.
  static Machine Load(bool real, const std::string* bytes);
  [[nodiscard]] std::shared_ptr<const std::string> Save() const;

  /// The payload of a command, as a leader proposes it under `version` of the history's programs (1
  /// or 2). The real state machine's command is drawn from `random`.
  [[nodiscard]] std::shared_ptr<const std::string> Encode(const Request& request,
                                                          std::uint32_t version,
                                                          Random& random) const;
  /// The payload of the first entry of a new group.
  [[nodiscard]] std::shared_ptr<const std::string> EncodeGeneration() const;
  /// Returns what a client's request did, or nothing when a generation began.
  std::optional<Done> Apply(const std::string& payload, WorldMutant mutant);

  /// The hash of the state after `slot`. Serialising the real one takes long, so only some slots
  /// have it in their hash.
  [[nodiscard]] std::uint64_t HashAt(Slot slot) const;
  [[nodiscard]] const ToyState& toy() const { return toy_; }
  /// What the real state machine did that it must never do, or nothing.
  [[nodiscard]] const std::string& wrong() const { return wrong_; }

 private:
  void ApplyReal(std::string_view bytes);

  ToyState toy_;
  std::optional<nodemanager::StateMachine> real_;
  std::string wrong_;
};

}  // namespace onepiece::paxos::sim
