#include "stages/collectives/slots.h"

#include "cluster/base/split_mix64.h"

namespace onepiece::collectives {
namespace {

constexpr std::uint64_t kOddConstant = 0x9E3779B97F4A7C15;

std::uint64_t HashWords(std::span<const std::uint64_t> words) {
  std::uint64_t hash = kOddConstant;
  for (const std::uint64_t word : words) hash = base::Mix64((hash ^ word) * kOddConstant);
  return hash;
}

}  // namespace

GroupKey KeyOf(const sdk::GroupDescriptor& descriptor) {
  std::uint64_t hash = HashWords(std::array<std::uint64_t, 3>{
      descriptor.job.size(), descriptor.members.size(), descriptor.offsets.size()});
  const auto add = [&hash](std::uint64_t word) {
    hash = base::Mix64((hash ^ word) * kOddConstant);
  };
  for (const char letter : descriptor.job) add(static_cast<unsigned char>(letter));
  for (const std::uint32_t member : descriptor.members) add(member);
  for (const std::int64_t offset : descriptor.offsets) add(static_cast<std::uint64_t>(offset));
  return {.epoch = descriptor.epoch, .hash = hash};
}

HeaderWords Encode(const ChunkHeader& header) {
  HeaderWords words{header.sequence,
                    header.group.epoch,
                    header.group.hash,
                    std::uint64_t{header.call.number} << 32 |
                        static_cast<std::uint64_t>(header.call.operation) << 24 |
                        std::uint64_t{header.phase} << 16 | header.call.detail,
                    header.call.sizes,
                    header.message_bytes,
                    std::uint64_t{header.chunk_bytes} << 32 | header.read};
  words.back() = HashWords(std::span(words).first<7>());
  return words;
}

std::optional<ChunkHeader> Decode(std::span<const std::uint64_t, 8> words, std::uint64_t sequence) {
  if (words[0] != sequence || words[7] != HashWords(words.first<7>())) return std::nullopt;
  ChunkHeader header{.sequence = words[0], .group = {.epoch = words[1], .hash = words[2]}};
  header.call = {.number = static_cast<std::uint32_t>(words[3] >> 32),
                 .operation = static_cast<Operation>((words[3] >> 24) & 0xFF),
                 .detail = static_cast<std::uint16_t>(words[3] & 0xFFFF),
                 .sizes = words[4]};
  header.phase = static_cast<std::uint8_t>((words[3] >> 16) & 0xFF);
  header.message_bytes = words[5];
  header.chunk_bytes = static_cast<std::uint32_t>(words[6] >> 32);
  header.read = static_cast<std::uint32_t>(words[6]);
  return header;
}

NoticeWords Encode(const Notice& notice) {
  NoticeWords words{notice.group.epoch, notice.group.hash,
                    static_cast<std::uint64_t>(notice.why) << 32 | notice.rank};
  words.back() = HashWords(std::span(words).first<3>());
  return words;
}

std::optional<Notice> Decode(std::span<const std::uint64_t, 4> words) {
  const auto why = static_cast<Notice::Why>(words[2] >> 32);
  if (words[3] != HashWords(words.first<3>())) return std::nullopt;
  if (why < Notice::Why::kLost || why > Notice::Why::kEnded) return std::nullopt;
  return Notice{.group = {.epoch = words[0], .hash = words[1]},
                .why = why,
                .rank = static_cast<std::uint32_t>(words[2])};
}

}  // namespace onepiece::collectives
