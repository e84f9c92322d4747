// Decides which process of a cluster has been silent for so long that it must be started again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cluster/base/clock.h"

namespace onepiece::local {

/// Processes that run and that the NodeManager does not hear, by node id.
using SilentNodes = std::map<std::string, std::int32_t>;

struct SilenceLimits {
  base::Duration first{};    ///< For how long a process may be silent.
  base::Duration longest{};  ///< The limit doubles each time that the same node is given up.
};

/// Judges what the NodeManager says from time to time.
///
/// A process is given up when every answer within its limit named it silent. An answer that does
/// not come says nothing about anybody: all are measured anew afterwards. When all nodes are
/// silent, the fault lies with the NodeManager or on the way to it, and nobody is given up.
///
/// Threading: thread-compatible. It has no clock: `now` comes from the caller.
class SilenceJudge {
 public:
  SilenceJudge(SilenceLimits limits, std::size_t nodes) : limits_(limits), nodes_(nodes) {}

  /// Takes an answer. Returns the node to give up, at most one for each answer.
  std::optional<std::string> Hear(const SilentNodes& silent, base::MonotonicTime now);
  /// The NodeManager does not answer.
  void HearNothing();

 private:
  struct Node {
    std::int32_t pid = 0;
    std::optional<base::MonotonicTime> since;  ///< Of the silence, or none.
    base::MonotonicTime given_up_at{};
    base::Duration limit{};
  };

  const SilenceLimits limits_;
  const std::size_t nodes_;  ///< That report to the NodeManager.
  std::map<std::string, Node> known_;
};

}  // namespace onepiece::local
