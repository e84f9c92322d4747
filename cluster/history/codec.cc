#include "cluster/history/codec.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cluster/base/check.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/status.h"

namespace onepiece::history {
namespace {

// A higher level saves 3 % of the bytes for twice the time.
constexpr int kLevel = 3;
constexpr std::size_t kPlanes = sizeof(double);
constexpr std::size_t kMaxVarintBytes = 5;
constexpr std::size_t kMaxLayoutBytes = Codec::kMaxSeries * kMaxVarintBytes;
constexpr std::size_t kMaxRollupBytes =
    kMaxVarintBytes + Codec::kMaxSeries * (2 * kMaxVarintBytes + 3 * kPlanes);

// Appends the doubles' bits plane by plane: the first bytes of all, then the second bytes and so
// on.
void AppendPlanes(std::span<const std::uint64_t> bits, std::string& out) {
  const std::size_t start = out.size(), count = bits.size();
  out.resize(start + count * kPlanes);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t plane = 0; plane < kPlanes; ++plane) {
      out[start + plane * count + i] = static_cast<char>(bits[i] >> (8 * (kPlanes - 1 - plane)));
    }
  }
}

// Undoes AppendPlanes().
// REQUIRES: bytes.size() == count * kPlanes.
std::vector<std::uint64_t> ReadPlanes(std::string_view bytes, std::size_t count) {
  std::vector<std::uint64_t> bits(count);
  for (std::size_t plane = 0; plane < kPlanes; ++plane) {
    for (std::size_t i = 0; i < count; ++i) {
      bits[i] = (bits[i] << 8) | static_cast<unsigned char>(bytes[plane * count + i]);
    }
  }
  return bits;
}

std::uint64_t Bits(double value) { return std::bit_cast<std::uint64_t>(value); }
double Value(std::uint64_t bits) { return std::bit_cast<double>(bits); }

void AppendVarint(std::uint32_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

std::optional<std::uint32_t> ReadVarint(std::string_view& in) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 35 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) {
      if (value > UINT32_MAX) return std::nullopt;
      return static_cast<std::uint32_t>(value);
    }
  }
  return std::nullopt;
}

// Reads ascending ids that are written as differences.
class IdReader {
 public:
  std::optional<std::uint32_t> Next(std::string_view& in) {
    const auto step = ReadVarint(in);
    // Only the first id may be 0. A later step of 0 would name a series twice.
    if (!step || (*step == 0 && !first_) || *step > UINT32_MAX - last_) return std::nullopt;
    first_ = false;
    last_ += *step;
    return last_;
  }

 private:
  std::uint32_t last_ = 0;
  bool first_ = true;
};

}  // namespace

absl::Status Damaged(std::string_view what) {
  return base::MakeError(absl::StatusCode::kDataLoss, "DAMAGED", what);
}

std::uint32_t RowSum(std::int64_t at_ms, std::string_view blob, std::uint32_t before) {
  const auto bytes = std::bit_cast<std::array<std::byte, sizeof(at_ms)>>(at_ms);
  return base::ExtendCrc32c(base::ExtendCrc32c(before, bytes), std::as_bytes(std::span(blob)));
}

std::uint32_t FrameSum(const FramePlace& place, std::string_view blob) {
  const std::array<std::int64_t, 3> leans_on = {place.tick, place.layout_sum, place.shape_sum};
  return RowSum(place.at_ms, blob, base::Crc32c(std::as_bytes(std::span(leans_on))));
}

std::uint32_t RollupSum(int level_s, std::int64_t at_ms, std::string_view blob) {
  return RowSum(at_ms, blob, RowSum(level_s, {}));
}

std::uint32_t GapSum(std::int64_t from_ms, std::int64_t to_ms, std::string_view reason) {
  return RowSum(from_ms, reason, RowSum(to_ms, {}));
}

Codec::Codec() : packer_(ZSTD_createCCtx()), expander_(ZSTD_createDCtx()) {
  ONEPIECE_CHECK(packer_ != nullptr && expander_ != nullptr);
}

Codec::~Codec() {
  ZSTD_freeCCtx(packer_);
  ZSTD_freeDCtx(expander_);
}

std::string Codec::Compress(std::string_view plain) {
  std::string packed(ZSTD_compressBound(plain.size()), '\0');
  const std::size_t size =
      ZSTD_compressCCtx(packer_, packed.data(), packed.size(), plain.data(), plain.size(), kLevel);
  ONEPIECE_CHECK(ZSTD_isError(size) == 0);
  packed.resize(size);
  return packed;
}

absl::StatusOr<std::string> Codec::Expand(std::string_view packed, std::size_t max_bytes) {
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size > max_bytes)
    return Damaged("not compressed as a recording is");
  std::string plain(size, '\0');
  const std::size_t got =
      ZSTD_decompressDCtx(expander_, plain.data(), plain.size(), packed.data(), packed.size());
  if (ZSTD_isError(got) != 0 || got != plain.size()) return Damaged("compressed bytes are wrong");
  return plain;
}

std::string Codec::PackFrame(std::span<const double> values, std::span<const double> reference) {
  std::vector<std::uint64_t> bits(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    bits[i] = Bits(values[i]) ^ (reference.empty() ? 0 : Bits(reference[i]));
  }
  std::string plain;
  AppendPlanes(bits, plain);
  return Compress(plain);
}

absl::StatusOr<std::vector<double>> Codec::UnpackFrame(std::string_view packed, std::size_t count,
                                                       std::span<const double> reference) {
  // The text is not moved out of its StatusOr, because g++ 12 then warns that the bytes of a short
  // text are uninitialised.
  const auto plain = Expand(packed, count * kPlanes);
  if (!plain.ok()) return plain.status();
  if (plain->size() != count * kPlanes || (!reference.empty() && reference.size() != count))
    return Damaged("a tick has another number of series than it says");
  const std::vector<std::uint64_t> bits = ReadPlanes(*plain, count);
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = Value(bits[i] ^ (reference.empty() ? 0 : Bits(reference[i])));
  }
  return values;
}

std::string Codec::PackLayout(const Layout& layout) {
  std::string plain;
  std::uint32_t last = 0;
  for (const std::uint32_t id : layout) {
    AppendVarint(id - last, plain);
    last = id;
  }
  return Compress(plain);
}

absl::StatusOr<Layout> Codec::UnpackLayout(std::string_view packed) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string plain, Expand(packed, kMaxLayoutBytes));
  Layout layout;
  IdReader reader;
  for (std::string_view rest = plain; !rest.empty();) {
    const auto id = reader.Next(rest);
    if (!id || layout.size() >= kMaxSeries) return Damaged("a list of series is wrong");
    layout.push_back(*id);
  }
  return layout;
}

std::string Codec::PackRollup(std::span<const RollupCell> cells) {
  std::string plain;
  std::uint32_t last = 0;
  std::vector<std::uint64_t> min, mean, max;
  AppendVarint(static_cast<std::uint32_t>(cells.size()), plain);
  for (const RollupCell& cell : cells) {
    AppendVarint(cell.series - last, plain);
    AppendVarint(cell.count, plain);
    last = cell.series;
    // A number that did not change is 0 in two of the three.
    min.push_back(Bits(cell.min));
    mean.push_back(Bits(cell.mean) ^ Bits(cell.min));
    max.push_back(Bits(cell.max) ^ Bits(cell.min));
  }
  for (const auto* bits : {&min, &mean, &max}) AppendPlanes(*bits, plain);
  return Compress(plain);
}

absl::StatusOr<std::vector<RollupCell>> Codec::UnpackRollup(std::string_view packed) {
  const auto plain = Expand(packed, kMaxRollupBytes);  // Not moved, as in UnpackFrame().
  if (!plain.ok()) return plain.status();
  std::string_view rest = *plain;
  const auto count = ReadVarint(rest);
  if (!count || *count > kMaxSeries) return Damaged("a rollup is wrong");
  std::vector<RollupCell> cells(*count);
  IdReader reader;
  for (RollupCell& cell : cells) {
    const auto id = reader.Next(rest);
    const auto samples = id ? ReadVarint(rest) : std::nullopt;
    if (!samples) return Damaged("a rollup is wrong");
    cell.series = *id;
    cell.count = *samples;
  }
  const std::size_t bytes = cells.size() * kPlanes;
  if (rest.size() != 3 * bytes) return Damaged("a rollup is wrong");
  const auto min = ReadPlanes(rest.substr(0, bytes), cells.size());
  const auto mean = ReadPlanes(rest.substr(bytes, bytes), cells.size());
  const auto max = ReadPlanes(rest.substr(2 * bytes), cells.size());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    cells[i].min = Value(min[i]);
    cells[i].mean = Value(mean[i] ^ min[i]);
    cells[i].max = Value(max[i] ^ min[i]);
  }
  return cells;
}

}  // namespace onepiece::history
