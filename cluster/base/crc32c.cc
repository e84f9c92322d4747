#include "cluster/base/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace onepiece::base {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // Reflected form.

constexpr std::array<std::uint32_t, 256> MakeByteTable() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}
constexpr auto kByteTable = MakeByteTable();

// "Append n zero bytes" is linear over GF(2): a 32×32 bit matrix, one column a word.
using Matrix = std::array<std::uint32_t, 32>;

std::uint32_t Multiply(const Matrix& matrix, std::uint32_t vector) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; vector != 0; vector >>= 1, ++i) {
    if ((vector & 1) != 0) sum ^= matrix[i];
  }
  return sum;
}

Matrix Square(const Matrix& matrix) {
  Matrix square;
  for (std::size_t i = 0; i < 32; ++i) square[i] = Multiply(matrix, matrix[i]);
  return square;
}

// powers[k] appends 2^k zero bytes.
const std::array<Matrix, 64>& ZeroBytePowers() {
  static const auto powers = [] {
    std::array<Matrix, 64> result;
    Matrix one_bit;
    one_bit[0] = kPolynomial;
    for (std::size_t i = 1; i < 32; ++i) one_bit[i] = std::uint32_t{1} << (i - 1);
    result[0] = Square(Square(Square(one_bit)));
    for (std::size_t k = 1; k < 64; ++k) result[k] = Square(result[k - 1]);
    return result;
  }();
  return powers;
}

std::uint32_t AppendZeros(std::uint32_t crc, std::uint64_t count) {
  for (std::size_t k = 0; count != 0; count >>= 1, ++k) {
    if ((count & 1) != 0) crc = Multiply(ZeroBytePowers()[k], crc);
  }
  return crc;
}

// All functions below work on the raw register (already inverted).
std::uint32_t ExtendSoftware(std::uint32_t crc, const std::uint8_t* data, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) crc = (crc >> 8) ^ kByteTable[(crc ^ data[i]) & 0xff];
  return crc;
}

#if defined(__x86_64__)
constexpr std::size_t kStreamBytes = 4096;

// "Append kStreamBytes zeros" as four byte-indexed tables, so that joining the streams costs four
// look-ups.
std::uint32_t ShiftStream(std::uint32_t crc) {
  static const auto tables = [] {
    std::array<std::array<std::uint32_t, 256>, 4> result;
    for (std::uint32_t byte = 0; byte < 4; ++byte) {
      for (std::uint32_t i = 0; i < 256; ++i)
        result[byte][i] = AppendZeros(i << (8 * byte), kStreamBytes);
    }
    return result;
  }();
  return tables[0][crc & 0xff] ^ tables[1][(crc >> 8) & 0xff] ^ tables[2][(crc >> 16) & 0xff] ^
         tables[3][crc >> 24];
}

enum class Copy : bool { kNo, kYes };

// Takes the next eight bytes into the checksum, and copies them when asked to.
template <Copy kCopy>
__attribute__((target("sse4.2"), always_inline)) inline std::uint64_t Step64(
    std::uint64_t crc, const std::uint8_t* data, std::uint8_t* to) {
  std::uint64_t word;
  std::memcpy(&word, data, sizeof word);
  if constexpr (kCopy == Copy::kYes) std::memcpy(to, &word, sizeof word);
  return _mm_crc32_u64(crc, word);
}

// The crc32 instruction has a latency of three cycles and a throughput of one: three streams keep
// it busy. Copying in the same loop is hidden behind it (or it behind memory), where copying first
// costs its own time.
template <Copy kCopy>
__attribute__((target("sse4.2"))) std::uint32_t ExtendHardware(std::uint32_t crc,
                                                               const std::uint8_t* __restrict data,
                                                               std::size_t size,
                                                               std::uint8_t* __restrict to) {
  std::uint64_t a = crc;
  std::size_t at = 0;
  for (; size - at >= 3 * kStreamBytes; at += 3 * kStreamBytes) {
    std::uint64_t b = 0;
    std::uint64_t c = 0;
#pragma GCC unroll 4
    for (std::size_t i = at; i < at + kStreamBytes; i += 8) {
      a = Step64<kCopy>(a, data + i, to + i);
      b = Step64<kCopy>(b, data + kStreamBytes + i, to + kStreamBytes + i);
      c = Step64<kCopy>(c, data + 2 * kStreamBytes + i, to + 2 * kStreamBytes + i);
    }
    const std::uint32_t ab =
        ShiftStream(static_cast<std::uint32_t>(a)) ^ static_cast<std::uint32_t>(b);
    a = ShiftStream(ab) ^ static_cast<std::uint32_t>(c);
  }
  for (; size - at >= 8; at += 8) a = Step64<kCopy>(a, data + at, to + at);
  auto tail = static_cast<std::uint32_t>(a);
  for (; at < size; ++at) {
    if constexpr (kCopy == Copy::kYes) to[at] = data[at];
    tail = _mm_crc32_u8(tail, data[at]);
  }
  return tail;
}

bool HasCrc32Instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2") != 0;
  return has;
}
#endif

std::uint32_t ExtendRaw(std::uint32_t crc, const std::byte* data, std::size_t size) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(data);
#if defined(__x86_64__)
  // `to` is only computed with, never used; the data's own address keeps that arithmetic defined.
  if (HasCrc32Instruction()) {
    return ExtendHardware<Copy::kNo>(crc, bytes, size, const_cast<std::uint8_t*>(bytes));
  }
#endif
  return ExtendSoftware(crc, bytes, size);
}

}  // namespace

std::uint32_t Crc32c(std::span<const std::byte> data) { return ExtendCrc32c(0, data); }

std::uint32_t ExtendCrc32c(std::uint32_t crc, std::span<const std::byte> data) {
  return ~ExtendRaw(~crc, data.data(), data.size());
}

std::uint32_t CombineCrc32c(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t length_b) {
  return AppendZeros(crc_a, length_b) ^ crc_b;
}

std::uint32_t CopyWithCrc32c(std::span<const std::byte> from, std::span<std::byte> to) {
  const std::uint32_t start = ~std::uint32_t{0};
#if defined(__x86_64__)
  if (HasCrc32Instruction()) {
    return ~ExtendHardware<Copy::kYes>(start, reinterpret_cast<const std::uint8_t*>(from.data()),
                                       from.size(), reinterpret_cast<std::uint8_t*>(to.data()));
  }
#endif
  // Blocks that stay in the first-level caches: the checksum then reads what the copy has just
  // brought in.
  constexpr std::size_t kBlockBytes = 12288;
  std::uint32_t raw = start;
  for (std::size_t at = 0; at < from.size(); at += kBlockBytes) {
    const std::size_t count = std::min(kBlockBytes, from.size() - at);
    std::memcpy(to.data() + at, from.data() + at, count);
    raw = ExtendSoftware(raw, reinterpret_cast<const std::uint8_t*>(to.data() + at), count);
  }
  return ~raw;
}

}  // namespace onepiece::base
