// The workers that compute one job together, as a stage sees them: collective operations over
// contiguous memory (docs/collaboration.md).
//
// A group is a descriptor, not a connection: the ways between all workers exist beforehand
// (stages/collectives), so making a group exchanges no message.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onepiece::sdk {

/// The type of the elements that a reduction adds.
enum class ElementType : std::uint8_t { kF32, kF64, kF16, kBF16, kI32, kI64 };

enum class Reduction : std::uint8_t { kSum, kMax };

/// Who computes one job, and which part of it is whose. A value. All members must hold equal ones.
struct GroupDescriptor {
  /// Names the job and grows with each change of its members. Of two groups that share a worker,
  /// the one with the greater epoch is the later one: messages of earlier ones are left out.
  std::string job;
  std::uint64_t epoch = 0;
  /// The members by rank: members[rank] is a worker's place in its world (stages/collectives).
  /// No worker twice.
  std::vector<std::uint32_t> members;
  /// Where each rank's part of the sharded axis begins, and at the end its extent: one number more
  /// than members, from 0, none less than the one before. Empty: parts are as even as can be, the
  /// first ones greater.
  std::vector<std::int64_t> offsets;

  bool operator==(const GroupDescriptor&) const = default;
};

/// Errors: INVALID_ARGUMENT (BAD_GROUP: no members, a worker twice, offsets that do not fit).
absl::Status CheckDescriptor(const GroupDescriptor& group);

/// Returns where `count` parts of `extent` elements begin that are as even as can be, the first
/// ones greater, and at the end `extent`.
std::vector<std::int64_t> EvenOffsets(std::size_t count, std::int64_t extent);

/// Returns where the ranks' parts of an axis of `extent` elements begin, and at the end `extent`.
///
/// Errors: INVALID_ARGUMENT (BAD_GROUP: `offsets` are those of another extent).
absl::StatusOr<std::vector<std::int64_t>> PartOffsets(const GroupDescriptor& group,
                                                      std::int64_t extent);

/// Collective operations of one job's workers, as one of them sees them.
///
/// Every member calls the same operations in the same order with matching arguments. The memory is
/// that of the group's device (host memory for CPU groups; for NCCL memory of the worker's CUDA
/// device, in the order of the current stream). It is used until the call returns.
///
/// Threading: one thread at a time.
///
/// Blocking: each call returns by its deadline.
///
/// Errors: INVALID_ARGUMENT (BAD_SHAPE: sizes that do not fit; BAD_CALL: an exchange is not
/// finished, or there is none to finish; nothing was sent), UNAVAILABLE (RANK_LOST: a member's
/// process is dead), DEADLINE_EXCEEDED (RANK_SILENT: a member has not come in time), ABORTED
/// (RANK_DIFFERS: a member called another operation, or the same with other sizes; GROUP_ENDED: a
/// member has gone on to a later epoch, or gave up waiting for this one), INTERNAL. All but
/// INVALID_ARGUMENT name the rank in the message and, by FailedRank(), for programs; they end the
/// group: every later call returns the same error. Its members go on with a descriptor of a
/// greater epoch.
class Group {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  using Bytes = std::span<std::byte>;
  using ConstBytes = std::span<const std::byte>;
  using Sizes = std::span<const std::size_t>;

  virtual ~Group() = default;

  [[nodiscard]] virtual const GroupDescriptor& descriptor() const = 0;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] int size() const { return static_cast<int>(descriptor().members.size()); }

  /// Gives every rank what `root` has in `data`.
  virtual absl::Status Broadcast(Bytes data, int root, Deadline deadline) = 0;

  /// Puts the parts of all ranks one after the other: rank i gives sizes[i] bytes, which may be 0.
  /// `part` may lie in `all` at its own place.
  virtual absl::Status AllGather(ConstBytes part, Sizes sizes, Bytes all, Deadline deadline) = 0;

  /// Reduces the `all` of every rank elementwise, and gives rank i the i-th part, of sizes[i] bytes
  /// (whole elements). Ranks are added in the same order everywhere.
  virtual absl::Status ReduceScatter(ConstBytes all, Sizes sizes, Bytes part, ElementType type,
                                     Reduction reduction, Deadline deadline) = 0;

  /// Reduces `data` elementwise over all ranks, in place; every rank gets the same bits.
  virtual absl::Status AllReduce(Bytes data, ElementType type, Reduction reduction,
                                 Deadline deadline) = 0;

  /// Sends the i-th part of `sent` (send_sizes[i] bytes) to rank i, and puts what rank i sends
  /// (receive_sizes[i] bytes) at the i-th place of `received`. The two must not overlap.
  virtual absl::Status AllToAll(ConstBytes sent, Sizes send_sizes, Bytes received,
                                Sizes receive_sizes, Deadline deadline) = 0;

  /// Begins to send `sent` to rank `to` and to receive `received` from rank `from`, so that the
  /// caller can compute meanwhile. FinishExchange must follow before any other call. The two must
  /// not overlap.
  virtual absl::Status StartExchange(ConstBytes sent, int to, Bytes received, int from,
                                     Deadline deadline) = 0;
  virtual absl::Status FinishExchange(Deadline deadline) = 0;

  /// Returns when all ranks have called it.
  virtual absl::Status Barrier(Deadline deadline) = 0;
};

/// Makes an error of a group that names a rank. Implementations of Group use it.
absl::Status RankError(absl::StatusCode code, const std::string& reason, int rank,
                       const std::string& message);

/// Returns the rank that an error of a group names, or -1.
int FailedRank(const absl::Status& status);

}  // namespace onepiece::sdk
