// The index of the values that a process holds, in memory that peers read one-sidedly. A get costs
// this process no processor time.
//
// The layout is a table of buckets. A bucket has 512 bytes, eight lines of eight words, and a
// value's key alone tells its bucket. A line is {uid high, uid low, ordinal << 32 | segment,
// offset, length, crc32c of the bytes, 0, check}. The check mixes the seven other words, so a
// reader notices a line that is being written (docs/database.md). The CRC checks the value's bytes:
// when a slab goes to another value while a peer reads it, the peer sees a miss and never a wrong
// value. Pilaf (USENIX ATC 2013) works the same way.
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
/// The entry of `key` in the 64 words of its bucket; nullopt when it is not there or torn.
std::optional<ValueEntry> FindInBucket(const ValueKey& key, std::span<const std::uint64_t> bucket);

/// The index as its owner sees it.
///
/// Ownership: owns its region. `fabric` must outlive it.
///
/// Threading: thread-safe.
class ValueIndex {
 public:
  /// Makes an index for about `values` values, with enough buckets that full ones are rare.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_SIZE), and those of Fabric::Register.
  static absl::StatusOr<std::unique_ptr<ValueIndex>> Create(fabric::Fabric& fabric,
                                                            std::uint64_t values);
  virtual ~ValueIndex() = default;
  /// Returns false when the key's bucket is full. Then peers must ask for the value by message.
  virtual bool Put(const ValueKey& key, const ValueEntry& entry) = 0;
  /// Removes the entry of `key`, if there is one. No read that starts after it returns finds the
  /// entry.
  virtual void Remove(const ValueKey& key) = 0;
  /// Lets the process of node `peer` in, as Slabs::Enroll does, and holds up no other call.
  virtual absl::StatusOr<fabric::RemoteRegion> Enroll(const std::string& peer,
                                                      const fabric::Offer& offer) = 0;
  /// Forgets peers that are dead. Call it from time to time.
  virtual void Trim() = 0;

 protected:
  ValueIndex() = default;
};

}  // namespace onepiece::values
