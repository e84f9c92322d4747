// A state machine that is small enough to see through: a few registers, one counter, and the last
// result of every client.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/nodemanager/paxos/sim/history.h"

namespace onepiece::paxos::sim {

/// What a client asks for. (client, number) is its request id, and a retry has the same one.
struct Request {
  std::uint32_t client = 0;
  std::uint32_t number = 0;  ///< Counts a client's requests from 1. One is open at a time.
  Operation::Kind kind = Operation::Kind::kRead;
  std::uint32_t key = 0;
  std::uint64_t expected = 0, written = 0;
  /// Context::group when it was sent. The connections to a lost group's hosts end with them, so no
  /// request of its time reaches a later group. It is not encoded.
  std::uint64_t group = 0;
};

struct Result {
  std::uint64_t before = 0;  ///< The register's value that the operation met.
  std::uint64_t epoch = 0;   ///< The counter afterwards.
};

enum class Retries : std::uint8_t { kRemembered, kForgotten };

class ToyState {
 public:
  static constexpr std::uint32_t kKeys = 6;

  static std::shared_ptr<const std::string> Encode(const Request& request);
  static Request Decode(const std::string& command);
  /// The command that a new generation begins with, and whether `command` is that.
  static std::shared_ptr<const std::string> EncodeGeneration();
  static bool IsGeneration(const std::string& command);

  /// Executes a command once. A retry gets the remembered result. A command that its client gave up
  /// changes nothing after a later command of that client was executed.
  Result Apply(const Request& request, Retries retries);
  /// The epochs from now on are greater than all that the lost generation can have reached.
  void BeginGeneration();
  [[nodiscard]] Result Read(std::uint32_t key) const { return {registers_[key % kKeys], epoch_}; }

  /// Grows with every executed command.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  /// The hash of the whole state. Apply() keeps it up to date.
  [[nodiscard]] std::uint64_t hash() const { return hash_; }
  /// The number of the client's last executed command.
  [[nodiscard]] std::uint32_t last_number(std::uint32_t client) const;

  [[nodiscard]] std::shared_ptr<const std::string> Save() const;
  /// Loads `bytes` of Save(). Empty bytes give the initial state.
  static ToyState Load(const std::string& bytes);

  /// The size of a command of Encode() or EncodeGeneration(). More may follow it.
  static constexpr std::size_t kCommandBytes = 32;

 private:
  struct Session {
    std::uint32_t number = 0;
    Result result;
  };
  static std::uint64_t HashOf(std::uint32_t key, std::uint64_t value) {
    return Mix(Mix(1, key), value);
  }
  static std::uint64_t HashOf(std::uint32_t client, const Session& session) {
    return Mix(Mix(Mix(Mix(2, client), session.number), session.result.before),
               session.result.epoch);
  }

  std::array<std::uint64_t, kKeys> registers_{};
  std::uint64_t epoch_ = 0;
  std::vector<Session> sessions_;  // By client.
  std::uint64_t hash_ = 0;         // The sum over all parts that were ever set.
};

}  // namespace onepiece::paxos::sim
