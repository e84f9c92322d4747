// The disk of one replica: what a crash leaves on it, and what a crash takes.
#pragma once

#include <string>

#include "nodemanager/paxos/types.h"

namespace onepiece::paxos::sim {

/// Does `writes` to `state`, as the replica's database does. Returns what is wrong with them (a
/// promise that falls, a log with a gap), or nothing.
std::string Write(DurableState& state, const Writes& writes);

/// A disk with one batch under way at a time. After a crash the batch is there whole or not at all.
/// Checksums would find a disk that gives half of it back, so the nemesis lets such a host come
/// back with an empty disk.
class Disk {
 public:
  /// Makes the disk empty, for a new replica.
  void Format(DurableState state) {
    state_ = std::move(state);
    under_way_.reset();
  }
  [[nodiscard]] const DurableState& state() const { return state_; }
  [[nodiscard]] bool busy() const { return under_way_ != nullptr; }
  /// Begins a batch.
  /// REQUIRES: not busy().
  void Begin(const Writes& writes) { under_way_ = std::make_unique<Writes>(writes); }
  /// The batch becomes durable. Returns what is wrong with it, or nothing.
  /// REQUIRES: busy().
  std::string End() {
    const auto done = std::move(under_way_);
    return Write(state_, *done);
  }
  /// Loses the batch, if there is one.
  void Drop() { under_way_.reset(); }
  [[nodiscard]] const Writes& under_way() const { return *under_way_; }
  /// Forgets the promise. Only a mutant does that.
  void ForgetPromise();

 private:
  DurableState state_;
  std::unique_ptr<Writes> under_way_;
};

}  // namespace onepiece::paxos::sim
