#include "cluster/local/silence.h"

#include <algorithm>

namespace onepiece::local {

std::optional<std::string> SilenceJudge::Hear(const SilentNodes& silent, base::MonotonicTime now) {
  for (auto& [id, node] : known_) {
    const auto still = silent.find(id);
    if (still == silent.end() || still->second != node.pid) node.since.reset();
    // A node that has been well for as long as it was given is a node like any other again.
    const bool well = !node.since.has_value() && now - node.given_up_at >= node.limit;
    if (well) node.limit = limits_.first;
  }
  std::optional<std::string> longest;
  for (const auto& [id, pid] : silent) {
    Node& node = known_.try_emplace(id, Node{.limit = limits_.first}).first->second;
    if (!node.since.has_value()) node.since = now;
    node.pid = pid;
    if (now - *node.since < node.limit) continue;
    if (!longest.has_value() || *node.since < *known_.at(*longest).since) longest = id;
  }
  if (!longest.has_value() || (nodes_ > 1 && silent.size() >= nodes_)) return std::nullopt;
  Node& given_up = known_.at(*longest);
  given_up.since.reset();
  given_up.given_up_at = now;
  given_up.limit = std::min(given_up.limit * 2, limits_.longest);
  return longest;
}

void SilenceJudge::HearNothing() {
  for (auto& [id, node] : known_) node.since.reset();
}

}  // namespace onepiece::local
