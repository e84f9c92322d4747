// The disk of one replica: what a crash leaves, and what it takes.
#pragma once

#include <string>

#include "nodemanager/paxos/types.h"

namespace onepiece::paxos::sim {

/// Does `writes` to `state`, as the replica's database does. Returns what is wrong with them (a
/// promise that falls, a log with a gap); empty when all is well.
std::string Write(DurableState& state, const Writes& writes);

/// One batch is under way at a time. A crash finds it whole or not at all; a disk that would give
/// half of it back is found out by its checksums, and the host comes back with an empty one.
class Disk {
 public:
  /// An empty disk, of a new life.
  void Format(DurableState state) {
    state_ = std::move(state);
    under_way_.reset();
  }
  [[nodiscard]] const DurableState& state() const { return state_; }
  [[nodiscard]] bool busy() const { return under_way_ != nullptr; }
  /// REQUIRES: not busy.
  void Begin(const Writes& writes) { under_way_ = std::make_unique<Writes>(writes); }
  /// The batch is durable: returns what is wrong with it, or nothing. REQUIRES: busy.
  std::string End() {
    const auto done = std::move(under_way_);
    return Write(state_, *done);
  }
  /// The batch is lost, or was never to be.
  void Drop() { under_way_.reset(); }
  [[nodiscard]] const Writes& under_way() const { return *under_way_; }
  /// What only a mutant does.
  void ForgetPromise();

 private:
  DurableState state_;
  std::unique_ptr<Writes> under_way_;
};

}  // namespace onepiece::paxos::sim
