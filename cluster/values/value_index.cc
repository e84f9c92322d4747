#include "cluster/values/value_index.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/split_mix64.h"
#include "cluster/base/status.h"
#include "cluster/values/enrollments.h"

namespace onepiece::values {
namespace {

constexpr std::size_t kLineWords = 8;
constexpr std::size_t kLineBytes = 8 * kLineWords;
constexpr std::size_t kBucketWords = kBucketBytes / 8;
constexpr std::size_t kBucketLines = kBucketWords / kLineWords;
constexpr std::size_t kCheckWord = kLineWords - 1;
// The mean number of lines in a bucket of a full index. About one bucket in 1000 is then full, as
// the Poisson distribution says.
constexpr std::uint64_t kMeanLines = 2;
constexpr std::uint64_t kMaxValues = std::uint64_t{1} << 24;

using Line = std::array<std::uint64_t, kLineWords>;

constexpr std::uint64_t Mix(std::uint64_t value) {
  return base::Mix64(value + 0x9e3779b97f4a7c15);  // The step keeps 0 from staying 0.
}

std::uint64_t MixAll(std::span<const std::uint64_t> words) {
  std::uint64_t mixed = 0;
  for (const std::uint64_t word : words) mixed = Mix(mixed ^ word);
  return mixed;
}

std::array<std::uint64_t, 2> UidWords(const base::Uid& uid) {
  return std::bit_cast<std::array<std::uint64_t, 2>>(uid.bytes());
}

Line MakeLine(const ValueKey& key, const ValueEntry& entry) {
  const auto uid = UidWords(key.uid);
  Line line = {uid[0],
               uid[1],
               std::uint64_t{key.ordinal} << 32 | entry.place.segment,
               entry.place.offset,
               entry.place.length,
               entry.crc32c,
               0,
               0};
  line[kCheckWord] = MixAll(std::span(line).first<kCheckWord>());
  return line;
}

bool IsOf(const ValueKey& key, std::span<const std::uint64_t> line) {
  const auto uid = UidWords(key.uid);
  return line[0] == uid[0] && line[1] == uid[1] && line[2] >> 32 == key.ordinal &&
         line[kCheckWord] == MixAll(line.first(kCheckWord));
}

class RegionIndex final : public ValueIndex {
 public:
  explicit RegionIndex(std::unique_ptr<fabric::Region> region) : region_(std::move(region)) {}

  bool Put(const ValueKey& key, const ValueEntry& entry) override;
  void Remove(const ValueKey& key) override;
  absl::StatusOr<fabric::RemoteRegion> Enroll(const std::string& peer,
                                              const fabric::Offer& offer) override;
  void Trim() override { enrollments_.DropDead(); }

 private:
  std::byte* BucketOf(const ValueKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::span<std::byte> table = region_->bytes();
    return table.data() + BucketOffset(key, table.size());
  }
  static std::byte* FindLine(const ValueKey& key, std::byte* bucket);
  static std::byte* FreeLine(std::byte* bucket);

  // Its bytes are written under mutex_ only.
  const std::unique_ptr<fabric::Region> region_;
  base::Mutex mutex_;
  Enrollments enrollments_;
};

std::byte* RegionIndex::FindLine(const ValueKey& key, std::byte* bucket) {
  for (std::size_t i = 0; i < kBucketLines; ++i) {
    Line line;
    fabric::LoadWords(bucket + i * kLineBytes, line);
    if (IsOf(key, line)) return bucket + i * kLineBytes;
  }
  return nullptr;
}

std::byte* RegionIndex::FreeLine(std::byte* bucket) {
  for (std::size_t i = 0; i < kBucketLines; ++i) {
    Line line;
    fabric::LoadWords(bucket + i * kLineBytes, line);
    if (line == Line{}) return bucket + i * kLineBytes;
  }
  return nullptr;
}

bool RegionIndex::Put(const ValueKey& key, const ValueEntry& entry) {
  const base::MutexLock lock(mutex_);
  std::byte* bucket = BucketOf(key);
  std::byte* line = FindLine(key, bucket);
  if (line == nullptr) line = FreeLine(bucket);
  if (line == nullptr) return false;
  // The line changes in place, so that a key never has two lines. Meanwhile its check is wrong, and
  // a reader sees a miss.
  fabric::StoreWords(line, MakeLine(key, entry));
  return true;
}

void RegionIndex::Remove(const ValueKey& key) {
  const base::MutexLock lock(mutex_);
  std::byte* line = FindLine(key, BucketOf(key));
  if (line == nullptr) return;
  // The check goes first, so a reader never sees a valid line with some words gone. A line of zeros
  // has a wrong check, because MixAll of zeros is not 0.
  fabric::StoreWord(line + 8 * kCheckWord, 0);
  fabric::StoreWords(line, Line{});
}

absl::StatusOr<fabric::RemoteRegion> RegionIndex::Enroll(const std::string& peer,
                                                         const fabric::Offer& offer) {
  return enrollments_.Enroll(*region_, peer, offer, fabric::Rights::kReadOnly);
}

}  // namespace

std::uint64_t BucketOffset(const ValueKey& key, std::uint64_t table_bytes) {
  const std::uint64_t buckets = table_bytes / kBucketBytes;
  if (buckets == 0) return 0;
  const auto uid = UidWords(key.uid);
  const std::array<std::uint64_t, 3> words = {uid[0], uid[1], key.ordinal};
  return MixAll(words) % buckets * kBucketBytes;
}

std::optional<ValueEntry> FindInBucket(const ValueKey& key, std::span<const std::uint64_t> bucket) {
  for (; bucket.size() >= kLineWords; bucket = bucket.subspan(kLineWords)) {
    const auto line = bucket.first(kLineWords);
    if (!IsOf(key, line)) continue;
    return ValueEntry{.place = {.segment = static_cast<std::uint32_t>(line[2]),
                                .offset = line[3],
                                .length = line[4]},
                      .crc32c = static_cast<std::uint32_t>(line[5])};
  }
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<ValueIndex>> ValueIndex::Create(fabric::Fabric& fabric,
                                                               std::uint64_t values) {
  if (values == 0 || values > kMaxValues) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_SIZE",
                           "an index is for 1 to 16777216 values, not " + std::to_string(values));
  }
  const std::uint64_t buckets = (values + kMeanLines - 1) / kMeanLines;
  ONEPIECE_ASSIGN_OR_RETURN(auto region, fabric.Register(buckets * kBucketBytes, "value-index"));
  // A fresh region is zeros, which is a table of free lines.
  return std::make_unique<RegionIndex>(std::move(region));
}

}  // namespace onepiece::values
