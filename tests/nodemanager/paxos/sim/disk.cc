#include "tests/nodemanager/paxos/sim/disk.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace onepiece::paxos::sim {
namespace {

void Put(std::vector<AcceptedEntry>& log, const AcceptedEntry& accepted) {
  if (log.empty() || log.back().slot < accepted.slot) {
    log.push_back(accepted);
    return;
  }
  const auto place =
      std::lower_bound(log.begin(), log.end(), accepted.slot,
                       [](const AcceptedEntry& entry, Slot slot) { return entry.slot < slot; });
  if (place->slot == accepted.slot) {
    *place = accepted;
  } else {
    log.insert(place, accepted);
  }
}

}  // namespace

std::string Write(DurableState& state, const Writes& writes) {
  if (writes.promise) {
    if (writes.promised < state.promised) {
      return absl::StrCat("promise of round ", state.promised.round, " falls to ",
                          writes.promised.round);
    }
    state.promised = writes.promised;
  }
  for (const AcceptedEntry& accepted : writes.accepted) Put(state.log, accepted);
  if (writes.install != nullptr) {
    if (writes.install->index < state.snapshot.index) {
      return absl::StrCat("snapshot of slot ", state.snapshot.index.value, " falls to ",
                          writes.install->index.value);
    }
    state.snapshot = *writes.install;
  }
  const auto keep = std::find_if(
      state.log.begin(), state.log.end(),
      [&writes](const AcceptedEntry& entry) { return entry.slot > writes.drop_through; });
  state.log.erase(state.log.begin(), keep);
  state.chosen = std::max({state.chosen, writes.chosen, state.snapshot.index});
  if (state.log.empty()) return "";
  const Slot first = state.log.front().slot;
  const Slot last = state.log.back().slot;
  if (last - first + 1 != state.log.size() || first > state.snapshot.index + 1) {
    return absl::StrCat("log from ", first.value, " to ", last.value, " of ", state.log.size(),
                        " entries after a snapshot of ", state.snapshot.index.value, " has a gap");
  }
  return "";
}

void Disk::ForgetPromise() {
  state_.promised = {};
  for (const AcceptedEntry& accepted : state_.log) {
    state_.promised = std::max(state_.promised, accepted.ballot);
  }
}

}  // namespace onepiece::paxos::sim
