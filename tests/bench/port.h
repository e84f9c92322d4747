// A way to hand messages from process to process, as the measurements see it: our ring, the peers
// and the limits behind one interface. Internal to onepiece-bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tests/bench/control.h"

namespace onepiece::bench {

/// Who a process of a measurement is. Streams: one consumer on core 0, producers on core 1.
/// Ping-pong: pong on core 0, ping on core 1, each sends and receives.
enum class Role : std::uint8_t { kConsumer, kProducer, kPong, kPing };

/// How the ring waits, and what it checks.
struct Mode {
  bool checksum = true;  ///< Payloads are checksummed.
  bool spin = true;      ///< Receivers spin; else they sleep at once.
};

/// What a port is opened for.
struct Link {
  Control* control = nullptr;
  Role role = Role::kConsumer;
  int index = 0;                  ///< Of this producer.
  int producers = 1;              ///< In the measurement.
  std::size_t message_bytes = 0;  ///< Longest message.
  Mode mode;
  std::string name;  ///< Of the measurement; unique on the machine, fit for a file name.
};

/// Threading: One thread. Everything that cannot go on ends the process (Die).
class Port {
 public:
  virtual ~Port() = default;
  /// Returns when the transport has taken the message; its bytes may be reused only after Flush.
  virtual void Send(std::span<const std::byte> message) = 0;
  /// Waits for the next message, copies it to `into` unless the transport itself has put it into
  /// private memory, and returns its length.
  virtual std::size_t Receive(std::span<std::byte> into) = 0;
  /// Returns when everything sent has left this process.
  virtual void Flush() {}
};

/// Opens both directions for kPing and kPong, one for the others; returns when connected.
std::unique_ptr<Port> OpenRingPort(const Link& link);
std::unique_ptr<Port> OpenZeroMqPort(const Link& link);
std::unique_ptr<Port> OpenUcxPort(const Link& link);
std::unique_ptr<Port> OpenGrpcPort(const Link& link);
std::unique_ptr<Port> OpenBoostPort(const Link& link);
/// The limits: one copy into shared memory and a flag; one cache line back and forth; a bare futex.
std::unique_ptr<Port> OpenMemcpyPort(const Link& link);
std::unique_ptr<Port> OpenPingPongPort(const Link& link);
std::unique_ptr<Port> OpenFutexPort(const Link& link);

/// By name: "ring" and what it is compared with. Dies when there is none of that name.
std::unique_ptr<Port> OpenPort(const std::string& name, const Link& link);

/// How many messages of this size a bounded queue of a peer holds: enough to pipeline, and within
/// 256 MiB.
inline std::size_t QueueDepth(std::size_t message_bytes) {
  constexpr std::size_t kBudget = std::size_t{256} << 20;
  const std::size_t fits = kBudget / (message_bytes + 1);
  return fits < 3 ? 3 : (fits > 1000 ? 1000 : fits);
}

}  // namespace onepiece::bench
