// Ways to hand messages from process to process, behind one interface: our ring, the peers and the
// machine's limits. Internal to onepiece-bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tests/bench/control.h"

namespace onepiece::bench {

/// The role of a process in a measurement. Streams: one consumer on core 0, producers on core 1.
/// Ping-pong: pong on core 0, ping on core 1, each sends and receives.
enum class Role : std::uint8_t { kConsumer, kProducer, kPong, kPing };

/// How the ring waits and what it checks.
struct Mode {
  bool checksum = true;  ///< Payloads are checksummed.
  bool spin = true;      ///< Receivers spin. Otherwise they sleep at once.
};

/// The measurement for which a port is opened.
struct Link {
  Control* control = nullptr;
  Role role = Role::kConsumer;
  int index = 0;                  ///< The index of this producer.
  int producers = 1;              ///< The producers in the measurement.
  std::size_t message_bytes = 0;  ///< The longest message.
  Mode mode;
  std::string name;  ///< The measurement's name, unique on the machine and fit for a file name.
};

/// Threading: one thread. Everything that cannot go on ends the process (Die).
class Port {
 public:
  virtual ~Port() = default;
  /// Returns when the transport has taken the message. The caller may reuse its bytes after Flush.
  virtual void Send(std::span<const std::byte> message) = 0;
  /// Waits for the next message, copies it to `into` unless the transport has put it into private
  /// memory, and returns its length.
  virtual std::size_t Receive(std::span<std::byte> into) = 0;
  /// Returns when all sent messages have left this process.
  virtual void Flush() {}
};

/// Opens both directions for kPing and kPong and one direction for the others. Returns when
/// connected.
std::unique_ptr<Port> OpenRingPort(const Link& link);
std::unique_ptr<Port> OpenZeroMqPort(const Link& link);
std::unique_ptr<Port> OpenUcxPort(const Link& link);
std::unique_ptr<Port> OpenGrpcPort(const Link& link);
std::unique_ptr<Port> OpenBoostPort(const Link& link);
/// The machine's limits: one copy into shared memory and a flag; one cache line back and forth; a
/// bare futex.
std::unique_ptr<Port> OpenMemcpyPort(const Link& link);
std::unique_ptr<Port> OpenPingPongPort(const Link& link);
std::unique_ptr<Port> OpenFutexPort(const Link& link);

/// Opens a port by name: "ring" or a peer. Ends the process if there is none of that name.
std::unique_ptr<Port> OpenPort(const std::string& name, const Link& link);

/// Returns how many messages of this size a peer's bounded queue holds: enough to pipeline, and
/// within 256 MiB.
inline std::size_t QueueDepth(std::size_t message_bytes) {
  constexpr std::size_t kBudget = std::size_t{256} << 20;
  const std::size_t fits = kBudget / (message_bytes + 1);
  return fits < 3 ? 3 : (fits > 1000 ? 1000 : fits);
}

}  // namespace onepiece::bench
