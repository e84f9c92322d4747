#include "nodemanager/replication/wal_check.h"

#include <cstdint>
#include <fstream>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace onepiece::nodemanager {
namespace {

constexpr std::size_t kHeaderBytes = 32, kFrameHeaderBytes = 24, kSectorBytes = 512;
// Its lowest bit says that checksums are made of big-endian words.
constexpr std::uint32_t kMagic = 0x377f0682;

std::uint32_t Word(std::string_view bytes, std::size_t offset, bool big_endian = true) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    const auto byte = static_cast<unsigned char>(bytes[offset + i]);
    word |= std::uint32_t{byte} << 8 * (big_endian ? 3 - i : i);
  }
  return word;
}

struct Checksum {
  std::uint32_t s0 = 0, s1 = 0;
  friend bool operator==(const Checksum&, const Checksum&) = default;

  static Checksum At(std::string_view bytes, std::size_t offset) {
    return {Word(bytes, offset), Word(bytes, offset + 4)};
  }
  void Add(std::string_view bytes, bool big_endian) {
    for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      s0 += Word(bytes, i, big_endian) + s1;
      s1 += Word(bytes, i + 4, big_endian) + s0;
    }
  }
};

// A write-ahead log in memory.
struct Wal {
  std::string_view bytes, salts;
  std::size_t frame_bytes = 0, frames = 0;
  bool big_endian = false;

  [[nodiscard]] std::size_t Offset(std::size_t frame) const {
    return kHeaderBytes + frame * frame_bytes;
  }
  // False for frames of an earlier use of the file: SQLite begins the log again over old frames,
  // with new salts.
  [[nodiscard]] bool OfThisLog(std::size_t frame) const {
    return bytes.substr(Offset(frame) + 8, 8) == salts;
  }
  // True for the last frame of a transaction, which holds the size of the database.
  [[nodiscard]] bool Commits(std::size_t frame) const {
    return Word(bytes, Offset(frame) + 4) != 0;
  }
  // True when the frame's header lies in one sector. Disks write sectors whole, so such a header
  // was written at once, and a crash cannot have mixed old and new parts.
  [[nodiscard]] bool HeaderInOneSector(std::size_t frame) const {
    return Offset(frame) % kSectorBytes + kFrameHeaderBytes <= kSectorBytes;
  }
  // True when the frame's checksum is right. Checksums are cumulative, and the one in the frame
  // before is taken as right.
  [[nodiscard]] bool Holds(std::size_t frame) const {
    const std::size_t at = Offset(frame);
    Checksum sum = Checksum::At(bytes, frame == 0 ? kHeaderBytes - 8 : at - frame_bytes + 16);
    sum.Add(bytes.substr(at, 8), big_endian);
    sum.Add(bytes.substr(at + kFrameHeaderBytes, frame_bytes - kFrameHeaderBytes), big_endian);
    return OfThisLog(frame) && sum == Checksum::At(bytes, at + 16);
  }
};

std::optional<Wal> ReadHeader(std::string_view bytes) {
  Wal wal{.bytes = bytes, .salts = bytes.substr(16, 8)};
  const std::uint32_t magic = Word(bytes, 0), page_bytes = Word(bytes, 8);
  wal.big_endian = (magic & 1) != 0;
  Checksum sum;
  sum.Add(bytes.substr(0, kHeaderBytes - 8), wal.big_endian);
  if ((magic & ~1U) != kMagic || sum != Checksum::At(bytes, kHeaderBytes - 8)) return std::nullopt;
  if (page_bytes < 512 || page_bytes > 65536) return std::nullopt;
  wal.frame_bytes = kFrameHeaderBytes + page_bytes;
  wal.frames = (bytes.size() - kHeaderBytes) / wal.frame_bytes;
  return wal;
}

}  // namespace

std::string FindWalDamage(const std::string& path) {
  // Opening and closing a second descriptor drops the process's POSIX locks on that file. SQLite
  // keeps its locks on the database file and not on its log, so it loses none here.
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // SQLite writes and syncs the header before any frame, or replaces it within its sector. So a
  // shorter file holds nothing that was durable.
  if (bytes.size() < kHeaderBytes + kFrameHeaderBytes + kSectorBytes) return "";
  const std::optional<Wal> wal = ReadHeader(bytes);
  if (!wal) return "header of the write-ahead log";
  std::size_t bad = 0;
  while (bad < wal->frames && wal->Holds(bad)) ++bad;
  // A transaction that ends at or after the bad frame was durable if a later frame holds, because
  // SQLite wrote that frame only after the sync.
  bool committed = false;
  for (std::size_t frame = bad; frame < wal->frames; ++frame) {
    const bool holds = wal->Holds(frame);
    if (holds && committed)
      return absl::StrCat("frame ", bad, " of the write-ahead log, before later transactions");
    committed |=
        wal->OfThisLog(frame) && wal->Commits(frame) && (holds || wal->HeaderInOneSector(frame));
  }
  return "";
}

}  // namespace onepiece::nodemanager
