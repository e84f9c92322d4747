// The simulated clients. Each client does one operation at a time, retries it under the same
// request id, and records what it was told.
#pragma once

#include <vector>

#include "tests/nodemanager/paxos/sim/network.h"

namespace onepiece::paxos::sim {

class Clients {
 public:
  Clients(Context& context, Network& network, std::size_t hosts);

  void Start();
  /// No client begins a new operation after this.
  void Stop() { stopped_ = true; }
  void TimerFired(std::size_t client, std::uint32_t generation);
  void Receive(const Reply& reply);

  /// Each client asks only these hosts from now on. A client that asks at random may ask dead hosts
  /// for ten seconds, which says nothing about the group.
  void AskOnly(std::vector<std::size_t> hosts) { choices_ = std::move(hosts); }
  /// The group is lost, and another one begins with `state`. What was under way has no answer.
  void BeginGeneration(const ToyState& state);

  /// The operations of each generation that have ended. After Close() also those that are still
  /// under way.
  [[nodiscard]] const std::vector<std::vector<Operation>>& histories() const { return histories_; }
  void Close();
  /// The number of each client's last acknowledged command.
  [[nodiscard]] std::vector<std::uint32_t> acknowledged() const;
  /// When the newest acknowledged command was called.
  [[nodiscard]] Nanos newest_acknowledged_call() const { return newest_call_; }

 private:
  struct Client {
    bool busy = false;
    Request request;
    std::uint64_t known_epoch = 0;  // The newest epoch in any answer when it called.
    Nanos called = 0;
    std::size_t host = 0;          // The host that it asks.
    bool elsewhere = true;         // It asks another host when no answer comes.
    std::uint32_t generation = 0;  // The generation of its timer. Older ones are void.
    std::uint32_t number = 0;
    std::uint32_t acknowledged = 0;
    std::uint64_t seen[ToyState::kKeys] = {};  // The newest value that it knows of each register.
  };

  void SetTimer(std::size_t index, Nanos after);
  void Abandon();
  void Begin(std::size_t index);
  void Ask(std::size_t index);
  void End(std::size_t index, Nanos returned, std::uint64_t before);
  [[nodiscard]] std::size_t AnyHost() {
    return choices_[static_cast<std::size_t>(c_.random.Below(choices_.size()))];
  }

  Context& c_;
  Network& network_;
  std::vector<std::size_t> choices_;  // The hosts that clients ask.
  std::vector<Client> clients_;
  std::vector<std::vector<Operation>> histories_{1};
  std::uint64_t last_value_ = 0;
  Nanos newest_call_ = -1;
  bool stopped_ = false;
};

}  // namespace onepiece::paxos::sim
