// A group of a world of the fabric.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stages/collectives/checked_group.h"
#include "stages/collectives/mesh.h"

namespace onepiece::collectives {

/// Every call is a set of messages, at most one to each rank and one from each, and it moves all of
/// them at once, a chunk at a time. So ranks that all send before they receive block nobody, and a
/// slow rank holds up nobody but those who need its data.
///
/// Ownership: borrows the mesh.
class FabricGroup final : public CheckedGroup {
 public:
  /// REQUIRES: the descriptor is good, and `rank` is this worker's.
  FabricGroup(Mesh& mesh, sdk::GroupDescriptor descriptor, int rank);

 private:
  struct Outgoing {
    int rank = 0;
    ConstBytes data;
    std::size_t sent = 0;
    bool done = false;
  };
  struct Incoming {
    int rank = 0;
    Bytes into;
    /// This rank's own contribution, when `rank` is this one.
    ConstBytes own = {};
    std::size_t received = 0;
    bool done = false;
  };
  struct Transfers {
    Call call;
    std::uint8_t phase = 0;
    std::vector<Outgoing> outgoing;
    std::vector<Incoming> incoming;
    /// With it, all of `incoming`, which then have the same size and place, are reduced in their
    /// order.
    std::optional<Arithmetic> arithmetic;
  };

  absl::Status DoBroadcast(const Call& call, Bytes data, int root, Deadline deadline) override;
  absl::Status DoAllGather(const Call& call, Sizes sizes, Bytes all, Deadline deadline) override;
  absl::Status DoReduceScatter(const Call& call, ConstBytes all, Sizes sizes, Bytes part,
                               Arithmetic arithmetic, Deadline deadline) override;
  absl::Status DoAllReduce(const Call& call, Bytes data, Arithmetic arithmetic,
                           Deadline deadline) override;
  absl::Status DoAllToAll(const Call& call, ConstBytes sent, Sizes send_sizes, Bytes received,
                          Sizes receive_sizes, Deadline deadline) override;
  absl::Status DoStartExchange(const Call& call, ConstBytes sent, int to, Bytes received, int from,
                               Deadline deadline) override;
  absl::Status DoFinishExchange(Deadline deadline) override;
  absl::Status DoBarrier(const Call& call, Deadline deadline) override;

  void Begin(const Call& call, std::uint8_t phase);
  void AddGather(Sizes sizes, Bytes all);
  void AddReduction(ConstBytes all, Sizes sizes, Bytes part, Arithmetic arithmetic);
  absl::Status ReduceAllDirectly(Bytes data, Arithmetic arithmetic, Deadline deadline);

  /// Moves the transfers to their end.
  absl::Status Run(Deadline deadline);
  absl::Status CheckStanding();
  /// Moves what can be moved now, and returns whether that was anything.
  absl::StatusOr<bool> Advance(Deadline deadline);
  absl::StatusOr<bool> Push(Outgoing& message, Deadline deadline);
  absl::StatusOr<bool> Pull(std::size_t which, Deadline deadline);
  absl::StatusOr<bool> PullOwn(std::size_t which);
  /// How far the message may be taken in, in bytes.
  [[nodiscard]] std::size_t LimitOf(std::size_t which) const;
  void TakeIn(std::size_t which, ConstBytes chunk);
  absl::Status CheckHeader(const Incoming& message, const ChunkHeader& header);
  [[nodiscard]] bool AllDone() const;

  absl::Status Rest(Deadline deadline);
  [[nodiscard]] std::vector<int> Awaited();
  absl::Status FindLost(Deadline deadline);
  absl::Status BlameTheSilent(base::MonotonicTime now);

  Link& LinkTo(int rank);
  base::MonotonicTime Now() const { return mesh_.fabric.clock().Now(); }
  /// Chains get more time than the call, because one that meets its deadline breaks its channel.
  [[nodiscard]] base::MonotonicTime ChainDeadline(Deadline deadline) const;
  absl::Status LinkFailed(int rank);
  absl::Status GoneOn(int rank, std::uint64_t epoch);
  absl::Status Heard(int from, const Notice& notice);
  /// Makes the error, and tells the other members.
  absl::Status End(Notice::Why why, int rank, const std::string& message);

  Mesh& mesh_;
  const GroupKey key_;
  const std::uint64_t generation_;
  Transfers transfers_;
  std::vector<std::byte> scratch_;  // As large as the largest part reduced so far.
  base::MonotonicTime next_death_check_{};
};

}  // namespace onepiece::collectives
