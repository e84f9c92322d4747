// Collective operations on tensors among some ranks of a group. Private to stages/model.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stages/model/parallel_plan.h"

namespace onepiece::model {

/// Returns the memory of a contiguous tensor.
sdk::Group::Bytes BytesOf(const at::Tensor& x);

/// The ranks first, first + stride, … of a group. A rank's index among them is its place.
///
/// A group of a worker's ends when a later one begins (sdk::GroupDescriptor::epoch), so the
/// branches of a plan and the neighbours of Ulysses cannot be groups of their own. All lanes that
/// part a group call the same operations at the same time, and each moves bytes among its own
/// ranks.
///
/// Threading: as the group.
class Lane {
 public:
  /// REQUIRES: this rank is one of them.
  Lane(const Parallel& parallel, int first, int stride, int count);

  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] int place() const { return place_; }

  /// Puts the parts [batch, tokens, width] of all places together along the tokens. `offsets` says
  /// where each part begins, and at its end their number.
  ///
  /// Errors: those of sdk::Group.
  [[nodiscard]] absl::StatusOr<at::Tensor> Gather(const at::Tensor& part,
                                                  const std::vector<std::int64_t>& offsets) const;

  /// Gives place i the i-th of `send` elements of `sent`, and returns what they gave, one after the
  /// other: `receive` elements from each. `sent` is contiguous.
  [[nodiscard]] absl::StatusOr<at::Tensor> AllToAll(const at::Tensor& sent,
                                                    const std::vector<std::int64_t>& send,
                                                    const std::vector<std::int64_t>& receive) const;

  /// A tensor on its way to the next place, while one comes from the place before. Holds both, and
  /// ends the exchange when it is destroyed: whoever throws meanwhile must not free memory that is
  /// being written to.
  class Travel {
   public:
    Travel(const Lane& lane, at::Tensor sent, at::Tensor received);
    ~Travel();
    Travel(const Travel&) = delete;
    Travel& operator=(const Travel&) = delete;
    /// Returns what came. Call it once.
    absl::StatusOr<at::Tensor> Finish();

   private:
    sdk::Group& group_;
    const sdk::Group::Deadline deadline_;
    at::Tensor sent_, received_;
    absl::Status status_;
    bool under_way_ = false;
  };

 private:
  [[nodiscard]] int RankAt(int place) const { return first_ + stride_ * (place % count_); }
  [[nodiscard]] absl::Status GatherBytes(sdk::Group::Bytes all,
                                         const std::vector<std::size_t>& sizes) const;

  Parallel parallel_;
  int first_ = 0, stride_ = 1, count_ = 1, place_ = 0;
};

}  // namespace onepiece::model
