#include "cluster/database/digest.h"

#include <cstddef>
#include <string_view>

#include "cluster/base/canonical_bytes.h"
#include "cluster/base/split_mix64.h"
#include "cluster/job/job_record.h"

namespace onepiece::database {
namespace {

// Reads at most 8 bytes, little-endian on every machine, because digests travel between machines.
std::uint64_t Load(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    value |= std::uint64_t{static_cast<std::uint8_t>(bytes[i])} << (8 * i);
  }
  return value;
}

std::uint64_t Hash(std::string_view bytes, std::uint64_t seed) {
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;  // Keeps words of zeros apart.
  std::uint64_t hash = seed ^ bytes.size();
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    hash = base::Mix64(hash + kStep + Load(bytes.substr(at, 8)));
  }
  return base::Mix64(hash + kStep);
}

std::uint64_t HashOf(const base::Uid& uid) {
  const auto* const bytes = reinterpret_cast<const char*>(uid.bytes().data());
  return Hash({bytes, uid.bytes().size()}, 0);
}

}  // namespace

int BucketOf(const base::Uid& uid) { return static_cast<int>(HashOf(uid) >> 56); }

std::uint64_t DigestOf(const v1::JobRecord& record, bool has_bytes) {
  const std::uint64_t seed = has_bytes ? 1 : 0;
  if (!record.has_bytes() && !record.has_time_left())
    return Hash(base::CanonicalBytes(record), seed);
  v1::JobRecord shared = record;
  shared.clear_has_bytes();
  shared.clear_time_left();
  return Hash(base::CanonicalBytes(shared), seed);
}

void Digests::Add(const base::Uid& uid, std::uint64_t digest) {
  values_[static_cast<std::size_t>(BucketOf(uid))] += base::Mix64(digest ^ HashOf(uid));
}

void Digests::Remove(const base::Uid& uid, std::uint64_t digest) {
  values_[static_cast<std::size_t>(BucketOf(uid))] -= base::Mix64(digest ^ HashOf(uid));
}

std::vector<int> Digests::Differing(std::span<const std::uint64_t> theirs) const {
  std::vector<int> buckets;
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    const auto i = static_cast<std::size_t>(bucket);
    if (theirs.size() != values_.size() || theirs[i] != values_[i]) buckets.push_back(bucket);
  }
  return buckets;
}

}  // namespace onepiece::database
