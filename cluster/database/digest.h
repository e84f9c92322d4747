// What two databases compare to find what one of them lacks. Pure.
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

/// The bucket of a job: from a mix of its uid, as uids of one moment share their first bytes.
int BucketOf(const base::Uid& uid);
/// Of a record as peers would hold it (has_bytes left out), and of whether its bytes are here.
std::uint64_t DigestOf(const v1::JobRecord& record, bool has_bytes);

/// One digest for each bucket: the sum of the digests of its jobs, mixed with their uids, so that
/// jobs may be added and taken out in any order.
class Digests {
 public:
  void Add(const base::Uid& uid, std::uint64_t digest);
  void Remove(const base::Uid& uid, std::uint64_t digest);
  [[nodiscard]] const std::array<std::uint64_t, kBuckets>& values() const { return values_; }
  /// The buckets that differ. `theirs` of another size: all of them.
  [[nodiscard]] std::vector<int> Differing(std::span<const std::uint64_t> theirs) const;

 private:
  std::array<std::uint64_t, kBuckets> values_{};
};

}  // namespace onepiece::database
