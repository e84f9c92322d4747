// Executes chains as lists of work requests on one queue pair of a reliable connection.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cluster/fabric/fabric.h"
#include "cluster/fabric/verbs/memory.h"
#include "cluster/fabric/verbs/queue_pair.h"

namespace onepiece::fabric::verbs {

/// The peer's memory, as this end's queue pair may use it. A value type.
struct PeerMemory {
  std::uint64_t address = 0;  ///< Virtual address in the peer.
  std::uint64_t length_bytes = 0;
  std::uint32_t key = 0;      ///< The region's rkey.
  bool has_doorbell = false;  ///< The peer posts receives, so Notify has an effect.
  Rights rights = Rights::kReadWrite;
};

/// A chain normally is one list, posted by one call, with only the last request signalled. A chain
/// that needs more requests than the device takes, or more than Staging::kBytes for small pieces,
/// is posted as several lists, one after the other. counters().round_trips counts the posts, and
/// the fences that wait for an earlier read.
///
/// A piece or a result below kRegisterFrom bytes is copied through registered staging memory, or
/// travels inside the request if the whole write fits. Larger ones are registered for the call.
class VerbsChannel final : public Channel {
 public:
  // Upper bounds; the device may allow less.
  static constexpr std::uint32_t kDepth = 64;         ///< Requests in one list.
  static constexpr std::uint32_t kPieces = 16;        ///< Pieces in one request.
  static constexpr std::uint32_t kInlineBytes = 128;  ///< Bytes of a write inside its request.
  static constexpr std::size_t kRegisterFrom = 64 * 1024;

  /// Takes a connected `pair`. Borrows `clock`.
  VerbsChannel(std::shared_ptr<Device> device, std::shared_ptr<StagingPool> pool,
               std::unique_ptr<QueuePair> pair, const PeerMemory& target, base::Clock& clock);
  /// Reads the last word of the region, so that a wrong key or length shows at once. After any
  /// error destroy the channel.
  ///
  /// REQUIRES: no Execute yet; length_bytes >= 8.
  /// Errors: INVALID_ARGUMENT (WRONG_REGION), UNAVAILABLE (PEER_GONE, CHANNEL_BROKEN),
  /// DEADLINE_EXCEEDED (CHAIN_TIMEOUT).
  absl::Status Probe(base::MonotonicTime deadline);

 protected:
  absl::Status Run(std::span<const Op> chain, base::MonotonicTime deadline) override;

 private:
  /// A result that waits in staging memory for its completion.
  struct StagedResult {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::size_t bytes = 0;
  };
  absl::Status Perform(std::span<const Op> chain, base::MonotonicTime deadline);
  absl::Status Add(const Op& op);
  absl::Status AddWrite(std::uint64_t offset, Op::Pieces pieces);
  absl::Status AddInline(std::uint64_t offset, Op::Pieces pieces);
  absl::Status AddStaged(std::uint64_t& offset, std::span<const std::byte> piece);
  absl::Status AddSegment(std::uint64_t& offset, std::span<const std::byte> bytes,
                          std::uint32_t lkey);
  absl::Status AddRead(std::uint64_t offset, std::span<std::byte> into);
  absl::Status AddAtomic(const Op& op);
  absl::Status AddNotify();
  /// Makes one request and `staged_bytes` of staging memory free. It may post and complete earlier
  /// requests for that.
  absl::Status Reserve(std::size_t staged_bytes);
  ibv_send_wr& NextRequest(ibv_wr_opcode opcode, std::uint64_t offset);
  static void AddTo(ibv_send_wr& request, std::span<const std::byte> bytes, std::uint32_t lkey);
  std::span<std::byte> Stage(std::size_t most);
  absl::StatusOr<std::uint32_t> Register(std::span<const std::byte> bytes, int access);
  absl::Status Flush();
  absl::Status Failed(const ibv_wc& completion);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<StagingPool> pool_;
  const PeerMemory target_;
  base::Clock& clock_;
  std::unique_ptr<QueuePair> pair_;  // Null once a chain has failed.
  const std::uint32_t depth_;
  const std::uint32_t max_pieces_;
  const std::uint32_t max_inline_;
  const std::uint32_t max_request_bytes_;
  // The rest belongs to the chain under way.
  std::span<const Op> chain_;
  base::MonotonicTime deadline_{};
  std::size_t op_index_ = 0;
  Staging staging_;
  std::size_t staged_ = 0;
  std::vector<Handle<ibv_mr>> registered_;
  std::vector<StagedResult> results_;
  std::array<ibv_send_wr, kDepth> requests_;
  std::array<ibv_sge, kDepth * kPieces> segments_;  // kPieces for each request.
  std::uint32_t request_count_ = 0;
  bool open_write_ = false;  // The last request is a write that may take more.
  std::uint32_t open_bytes_ = 0;
  bool reads_before_ = false;  // A read was added since the last post: a later write needs a fence.
  std::uint64_t posted_ = 0;   // Requests.
  std::uint64_t trips_ = 0;    // Waits for the device.
  ibv_wc_status wrong_ = IBV_WC_SUCCESS;  // The status of the completion that failed.
};

}  // namespace onepiece::fabric::verbs
