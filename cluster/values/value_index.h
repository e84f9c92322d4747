// What values a process holds, in memory that peers read one-sidedly: a get costs no CPU here.
//
// Layout: a table of buckets of 512 bytes, eight lines of eight words; a value's bucket follows
// from its key alone. A line is {uid high, uid low, ordinal << 32 | segment, offset, length, crc32c
// of the bytes, 0, check}; check is the mix of the seven others, so a reader that meets a line in
// the making sees that (docs/database.md). The bytes themselves are checked by their CRC: a slab
// that was given to another value while a peer read it is a miss, never a wrong value (the way of
// Pilaf, USENIX ATC 2013).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/base/ids.h"
#include "cluster/fabric/fabric.h"
#include "cluster/values/slabs.h"

namespace onepiece::values {

/// Value number `ordinal` of a job's result.
struct ValueKey {
  base::Uid uid;
  std::uint32_t ordinal = 0;
  friend bool operator==(const ValueKey&, const ValueKey&) = default;
};

struct ValueEntry {
  Place place;
  std::uint32_t crc32c = 0;
};

inline constexpr std::uint64_t kBucketBytes = 512;
/// Where the bucket of `key` begins in a table of `table_bytes`.
std::uint64_t BucketOffset(const ValueKey& key, std::uint64_t table_bytes);
/// The entry of `key` in a bucket as it was read (64 words); nullopt: not there, or torn.
std::optional<ValueEntry> FindInBucket(const ValueKey& key, std::span<const std::uint64_t> bucket);

/// Owner's side.
///
/// Ownership: Owns its region. `fabric` outlives it.
/// Threading: Thread-safe.
class ValueIndex {
 public:
  /// For up to about `values` values (rounded up so that full buckets are rare).
  static absl::StatusOr<std::unique_ptr<ValueIndex>> Create(fabric::Fabric& fabric,
                                                            std::uint64_t values);
  virtual ~ValueIndex() = default;
  /// False: its bucket is full; peers have to ask for the value by message.
  virtual bool Put(const ValueKey& key, const ValueEntry& entry) = 0;
  /// No-op when it is not there. After it returns no later read finds the entry.
  virtual void Remove(const ValueKey& key) = 0;
  /// Lets the process of node `peer` in, as Slabs::Enroll does.
  virtual absl::StatusOr<fabric::RemoteRegion> Enroll(const std::string& peer,
                                                      const fabric::Offer& offer) = 0;

 protected:
  ValueIndex() = default;
};

}  // namespace onepiece::values
