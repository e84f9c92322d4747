// The faults of a replica: of its process, its host's cable, its host's packets.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tests/chaos/group.h"
#include "tests/chaos/hosts.h"
#include "tests/nodemanager/paxos/sim/random.h"

namespace onepiece::chaos {

enum class Fault : std::uint8_t {
  kKill,       ///< SIGKILL; healed by a restart.
  kPause,      ///< SIGSTOP; healed by SIGCONT.
  kLinkDown,   ///< The cable is pulled.
  kDeaf,       ///< Its host loses what arrives,
  kMute,       ///< or what it sends.
  kDeafToOne,  ///< The same for one peer only.
  kMuteToOne,
};
inline constexpr int kFaults = 7;
const char* NameOf(Fault fault);

/// Threading: thread-confined, the group's thread.
class Nemesis {
 public:
  explicit Nemesis(Group& group, Hosts& hosts) : group_(group), hosts_(hosts) {}

  /// Returns what could not be done, like Heal(). REQUIRES: the replica suffers nothing yet.
  std::string Strike(int replica, Fault fault, paxos::sim::Random& random);
  /// Ends the replica's fault.
  std::string Heal(int replica);

 private:
  Group& group_;
  Hosts& hosts_;
  std::array<std::optional<Fault>, Group::kReplicas> suffers_;
};

}  // namespace onepiece::chaos
