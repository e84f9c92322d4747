#include "tests/chaos/nemesis.h"

#include <signal.h>

namespace onepiece::chaos {

const char* NameOf(Fault fault) {
  switch (fault) {
    case Fault::kKill:
      return "kill";
    case Fault::kPause:
      return "pause";
    case Fault::kLinkDown:
      return "link_down";
    case Fault::kDeaf:
      return "deaf";
    case Fault::kMute:
      return "mute";
    case Fault::kDeafToOne:
      return "deaf_to_one";
    case Fault::kMuteToOne:
      return "mute_to_one";
  }
  return "?";
}

std::string Nemesis::Strike(int replica, Fault fault, paxos::sim::Random& random) {
  suffers_[static_cast<std::size_t>(replica)] = fault;
  const int other = (replica + 1 + static_cast<int>(random.Below(2))) % Group::kReplicas;
  switch (fault) {
    case Fault::kKill:
      group_.Kill(replica);
      return "";
    case Fault::kPause:
      group_.Signal(replica, SIGSTOP);
      return "";
    case Fault::kLinkDown:
      return hosts_.SetLink(replica, false);
    case Fault::kDeaf:
      return hosts_.Drop(replica, "input");
    case Fault::kMute:
      return hosts_.Drop(replica, "output");
    case Fault::kDeafToOne:
      return hosts_.Drop(replica, "input", Hosts::Address(other));
    case Fault::kMuteToOne:
      return hosts_.Drop(replica, "output", Hosts::Address(other));
  }
  return "unknown fault";
}

std::string Nemesis::Heal(int replica) {
  std::optional<Fault>& fault = suffers_[static_cast<std::size_t>(replica)];
  if (!fault) return "";
  const Fault ended = *fault;
  fault.reset();
  switch (ended) {
    case Fault::kKill: {
      const absl::Status started = group_.Start(replica);
      return started.ok() ? "" : started.ToString();
    }
    case Fault::kPause:
      group_.Signal(replica, SIGCONT);
      return "";
    case Fault::kLinkDown:
      return hosts_.SetLink(replica, true);
    case Fault::kDeaf:
    case Fault::kMute:
    case Fault::kDeafToOne:
    case Fault::kMuteToOne:
      return hosts_.DropNothing(replica);
  }
  return "unknown fault";
}

}  // namespace onepiece::chaos
