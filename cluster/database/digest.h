// The digests that two databases compare to find what one of them lacks. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cluster/base/ids.h"
#include "onepiece/v1/database.pb.h"

namespace onepiece::database {

inline constexpr int kBuckets = 256;

/// Returns the bucket of a job. It depends on a hash of the uid, because uids that were made at the
/// same time share their first bytes.
int BucketOf(const base::Uid& uid);
/// Returns the digest of a record as peers would hold it (without has_bytes), and of whether this
/// database has the bytes of its result.
std::uint64_t DigestOf(const v1::JobRecord& record, bool has_bytes);

/// Holds one digest for each bucket. It is the sum of the digests of the bucket's jobs, each mixed
/// with the job's uid, so that jobs can be added and removed in any order.
class Digests {
 public:
  void Add(const base::Uid& uid, std::uint64_t digest);
  void Remove(const base::Uid& uid, std::uint64_t digest);
  [[nodiscard]] const std::array<std::uint64_t, kBuckets>& values() const { return values_; }
  /// Returns the buckets that differ: all of them when `theirs` has another size.
  [[nodiscard]] std::vector<int> Differing(std::span<const std::uint64_t> theirs) const;

 private:
  std::array<std::uint64_t, kBuckets> values_{};
};

}  // namespace onepiece::database
