// One end of a reliable connection: how it is made, completes requests, and is destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/fabric/verbs/device.h"
#include "cluster/fabric/wire.h"

namespace onepiece::fabric::verbs {

/// The address of a queue pair and its limits. Travels in Offer and RemoteRegion. A value type.
struct Endpoint {
  ibv_gid gid{};
  std::uint16_t lid = 0;
  std::uint32_t queue_pair = 0;  ///< 24 bits.
  std::uint32_t psn = 0;         ///< 24 bits: the number of the first packet that it sends.
  ibv_mtu mtu = IBV_MTU_256;
  std::uint8_t link_layer = 0;
  /// How many reads and atomics it may have in flight, and how many it answers at a time.
  std::uint8_t reads_out = 0;
  std::uint8_t reads_in = 0;

  void AppendTo(std::string& out) const;
  /// nullopt when the bytes are not an endpoint.
  static std::optional<Endpoint> Read(WireReader& reader);
};

/// The completions of one queue pair.
///
/// Threading: one thread at a time.
class CompletionQueue {
 public:
  enum class Waiting {
    kSleeps,  ///< Polls for a while, then sleeps in the kernel. Costs a descriptor.
    kSpins,   ///< For waits of microseconds.
  };
  /// Errors: INTERNAL or RESOURCE_EXHAUSTED (VERBS_FAILED).
  static absl::StatusOr<std::unique_ptr<CompletionQueue>> Create(Device& device, int depth,
                                                                 Waiting waiting);
  [[nodiscard]] ibv_cq* get() const { return queue_.get(); }
  /// The next completion. nullopt once `deadline` passes on `clock`, or once as much real time has
  /// passed as was left until then, so that a clock that stands still never hangs a wait.
  std::optional<ibv_wc> Next(base::Clock& clock, base::MonotonicTime deadline);

 private:
  CompletionQueue(Handle<ibv_comp_channel> channel, Handle<ibv_cq> queue)
      : channel_(std::move(channel)), queue_(std::move(queue)) {}
  std::optional<ibv_wc> Poll();
  void Sleep(base::Duration limit);

  const Handle<ibv_comp_channel> channel_;  // Null: spins.
  const Handle<ibv_cq> queue_;
};

/// How to make a queue pair on a device.
struct QueuePairOptions {
  ibv_pd* domain = nullptr;
  std::uint32_t send_depth = 0;
  std::uint32_t pieces = 1;         ///< The pieces of one work request.
  std::uint32_t inline_bytes = 0;   ///< A wish; the device may give less.
  ibv_srq* receives = nullptr;      ///< May be null.
  ibv_cq* receive_queue = nullptr;  ///< Null: the send queue's.
  CompletionQueue::Waiting waiting = CompletionQueue::Waiting::kSpins;
};

/// One end of a connection.
///
/// Threading: one thread at a time.
class QueuePair {
 public:
  /// Errors: INTERNAL or RESOURCE_EXHAUSTED (VERBS_FAILED).
  static absl::StatusOr<std::unique_ptr<QueuePair>> Create(std::shared_ptr<Device> device,
                                                           const QueuePairOptions& options);
  ~QueuePair() { (void)Destroy(); }
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  [[nodiscard]] Endpoint local() const;
  [[nodiscard]] const ibv_qp_cap& abilities() const { return abilities_; }
  /// Makes the connection. `access` are the IBV_ACCESS_REMOTE_ flags of the other end. Call it at
  /// most once.
  ///
  /// Errors: INVALID_ARGUMENT (WRONG_FABRIC), UNAVAILABLE (PEER_UNREACHABLE), INTERNAL
  /// (VERBS_FAILED).
  absl::Status Connect(const Endpoint& remote, int access);
  /// Posts a list with one call.
  /// Errors: INTERNAL (VERBS_FAILED).
  absl::Status Post(ibv_send_wr* first);
  CompletionQueue& completions() { return *completions_; }
  /// Takes every right from the other end. Operations that are under way may still be carried out.
  absl::Status ClearAccess();
  /// Puts the queue pair into the error state and waits until all its requests are completed, which
  /// takes milliseconds. Idempotent.
  void Stop();
  /// Stops the queue pair and takes it from the device. Returns true when the device does nothing
  /// for it any more, neither for this end nor for the other. Only Destroy may be called after it.
  /// It never goes through RESET, because Soft-RoCE (Linux 6.1) then runs the responder twice at
  /// once, which breaks the kernel.
  bool Destroy();

 private:
  QueuePair(std::shared_ptr<Device> device, std::unique_ptr<CompletionQueue> completions,
            Handle<ibv_qp> pair, const ibv_qp_cap& abilities, std::uint32_t psn)
      : device_(std::move(device)),
        completions_(std::move(completions)),
        pair_(std::move(pair)),
        abilities_(abilities),
        psn_(psn) {}
  absl::Status Modify(ibv_qp_attr& attributes, int mask, const char* what);
  void Drain();

  const std::shared_ptr<Device> device_;
  const std::unique_ptr<CompletionQueue> completions_;
  Handle<ibv_qp> pair_;  // Null once destroyed.
  const ibv_qp_cap abilities_;
  const std::uint32_t psn_;
  bool stopped_ = false;
};

}  // namespace onepiece::fabric::verbs
