// An unreliable network that carries messages between hosts, and requests between clients and
// hosts.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nodemanager/paxos/message.h"
#include "tests/nodemanager/paxos/sim/context.h"
#include "tests/nodemanager/paxos/sim/toy_state.h"

namespace onepiece::paxos::sim {

/// A host's answer to a Request.
struct Reply {
  enum class Kind : std::uint8_t { kDone, kNotLeader, kLater };
  std::uint32_t client = 0;
  std::uint32_t number = 0;
  Kind kind = Kind::kDone;
  Result result;                    ///< Used by kDone.
  std::optional<std::size_t> hint;  ///< Used by kNotLeader: the host that leads, if it is known.
};

/// A message, and the group of the replica that sent it (0: none yet). In the product the group
/// stands in the hello that begins each stream.
struct Sent {
  std::uint64_t group = 0;
  Message message;
};

/// The message as a line of a trace.
std::string Describe(const Message& message);

/// Holds things that are on their way. Each has a place until it is taken.
template <typename T>
class Places {
 public:
  std::uint32_t Put(T thing) {
    if (free_.empty()) {
      things_.push_back(std::move(thing));
      return static_cast<std::uint32_t>(things_.size() - 1);
    }
    const std::uint32_t place = free_.back();
    free_.pop_back();
    things_[place] = std::move(thing);
    return place;
  }
  T Take(std::uint32_t place) {
    free_.push_back(place);
    return std::move(things_[place]);
  }

 private:
  std::vector<T> things_;
  std::vector<std::uint32_t> free_;
};

class Network {
 public:
  Network(Context& context, std::size_t hosts)
      : c_(context), hosts_(hosts), links_(hosts * hosts) {}

  /// `replica` lives, or lived, at `host`.
  void Registered(ReplicaId replica, std::size_t host) { homes_.emplace_back(replica, host); }
  [[nodiscard]] std::optional<std::size_t> HostOf(ReplicaId replica) const;

  /// Sends the message to the home of message.to, or to every other host when that is 0.
  void Send(std::size_t from, Sent sent);
  void Send(std::size_t host, const Request& request);
  void Send(const Reply& reply);
  Sent TakeMessage(std::uint32_t place) { return messages_.Take(place); }
  Request TakeRequest(std::uint32_t place) { return requests_.Take(place); }
  Reply TakeReply(std::uint32_t place) { return replies_.Take(place); }

  /// Messages from `from` to `to` are lost before `until`.
  void Cut(std::size_t from, std::size_t to, Nanos until);
  /// Messages from `from` to `to` wait until `until`.
  void Clog(std::size_t from, std::size_t to, Nanos until);
  /// Each message from `from` to `to` takes `extra` longer before `until`.
  void Slow(std::size_t from, std::size_t to, Nanos until, Nanos extra);
  /// Ends all faults of all links, but not the chances of loss and delay.
  void Heal() { links_.assign(links_.size(), Link{}); }
  /// Ends the chances of loss, repetition and long delays too.
  void Calm();

 private:
  struct Link {
    Nanos cut_until = 0, clogged_until = 0, slow_until = 0, extra = 0;
  };
  [[nodiscard]] Link& At(std::size_t from, std::size_t to) { return links_[from * hosts_ + to]; }
  void SendOver(std::size_t from, std::size_t to, Sent sent);
  /// How long the next thing takes, or nullopt when it is lost.
  std::optional<Nanos> Delay();

  Context& c_;
  std::size_t hosts_;
  std::vector<Link> links_;
  std::vector<std::pair<ReplicaId, std::size_t>> homes_;
  Places<Sent> messages_;
  Places<Request> requests_;
  Places<Reply> replies_;
};

}  // namespace onepiece::paxos::sim
