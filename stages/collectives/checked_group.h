// What all implementations of sdk::Group have in common: arguments that are checked before anything
// is sent, groups of one rank, and an end that is for good.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "stages/sdk/group.h"

namespace onepiece::collectives {

enum class Operation : std::uint8_t {
  kBroadcast = 1,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kExchange,
  kBarrier,
};
/// As people read it: "all_gather". A number that is none of the above gives "an unknown
/// operation".
const char* NameOf(Operation operation);

/// What all members of a group must say alike of one call.
struct Call {
  std::uint32_t number = 0;  ///< Of the group's calls, from 1.
  Operation operation{};
  std::uint16_t detail = 0;  ///< The root, or the element type and the reduction.
  std::uint64_t sizes = 0;   ///< A hash of the sizes.
};

/// A group that checks its arguments, keeps its first error, and leaves the rest to the functions
/// with Do. These are called for groups of two ranks and more, with arguments that fit.
class CheckedGroup : public sdk::Group {
 public:
  [[nodiscard]] const sdk::GroupDescriptor& descriptor() const final { return descriptor_; }
  [[nodiscard]] int rank() const final { return rank_; }

  absl::Status Broadcast(Bytes data, int root, Deadline deadline) final;
  absl::Status AllGather(ConstBytes part, Sizes sizes, Bytes all, Deadline deadline) final;
  absl::Status ReduceScatter(ConstBytes all, Sizes sizes, Bytes part, sdk::ElementType type,
                             sdk::Reduction reduction, Deadline deadline) final;
  absl::Status AllReduce(Bytes data, sdk::ElementType type, sdk::Reduction reduction,
                         Deadline deadline) final;
  absl::Status AllToAll(ConstBytes sent, Sizes send_sizes, Bytes received, Sizes receive_sizes,
                        Deadline deadline) final;
  absl::Status StartExchange(ConstBytes sent, int to, Bytes received, int from,
                             Deadline deadline) final;
  absl::Status FinishExchange(Deadline deadline) final;
  absl::Status Barrier(Deadline deadline) final;

 protected:
  CheckedGroup(sdk::GroupDescriptor descriptor, int rank)
      : descriptor_(std::move(descriptor)), rank_(rank) {}

  /// How elements are reduced.
  struct Arithmetic {
    sdk::ElementType type{};
    sdk::Reduction reduction{};
  };

  /// Parts an array of `bytes` among the ranks, as evenly as whole elements can be.
  struct Parts {
    std::vector<std::size_t> sizes;
    std::size_t own_begin = 0;  ///< Where this rank's begins.
  };
  [[nodiscard]] Parts EvenParts(std::size_t bytes, sdk::ElementType type) const;

  virtual absl::Status DoBroadcast(const Call& call, Bytes data, int root, Deadline deadline) = 0;
  /// This rank's part is in its place already.
  virtual absl::Status DoAllGather(const Call& call, Sizes sizes, Bytes all, Deadline deadline) = 0;
  virtual absl::Status DoReduceScatter(const Call& call, ConstBytes all, Sizes sizes, Bytes part,
                                       Arithmetic arithmetic, Deadline deadline) = 0;
  virtual absl::Status DoAllReduce(const Call& call, Bytes data, Arithmetic arithmetic,
                                   Deadline deadline) = 0;
  /// What this rank sends itself is in its place already.
  virtual absl::Status DoAllToAll(const Call& call, ConstBytes sent, Sizes send_sizes,
                                  Bytes received, Sizes receive_sizes, Deadline deadline) = 0;
  /// Neither rank is this one.
  virtual absl::Status DoStartExchange(const Call& call, ConstBytes sent, int to, Bytes received,
                                       int from, Deadline deadline) = 0;
  virtual absl::Status DoFinishExchange(Deadline deadline) = 0;
  virtual absl::Status DoBarrier(const Call& call, Deadline deadline) = 0;

 private:
  enum class Exchanging : std::uint8_t { kNo, kYes, kWithItself };

  absl::Status CheckMayCall(Operation operation) const;
  absl::Status CheckSizes(Operation operation, Sizes sizes, std::size_t total,
                          std::size_t unit) const;
  absl::Status CheckRank(Operation operation, int rank) const;
  Call NextCall(Operation operation, std::uint16_t detail, std::uint64_t sizes);
  absl::Status Keep(absl::Status status);

  const sdk::GroupDescriptor descriptor_;
  const int rank_;
  std::uint32_t calls_ = 0;
  Exchanging exchanging_ = Exchanging::kNo;
  absl::Status end_;
};

}  // namespace onepiece::collectives
