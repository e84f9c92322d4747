#include "cluster/identity/pem.h"

#include "cluster/base/status.h"
#include "cluster/base/utf8.h"

namespace onepiece::identity {
namespace {

constexpr std::string_view kPemBegin = "-----BEGIN ", kPemEnd = "-----END ", kPemDashes = "-----";

absl::Status BadPem(std::string_view reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, reason, message);
}

absl::Status HalfWritten(const std::string& where) {
  return BadPem("HALF_WRITTEN", where + ": writing it was interrupted, so make it again");
}

}  // namespace

absl::StatusOr<std::vector<PemBlock>> SplitPem(std::string_view pem) {
  if (pem.size() > kMaxPemBytes)
    return BadPem("TOO_LARGE", "it has more than " + std::to_string(kMaxPemBytes) + " bytes");
  if (pem.empty()) return HalfWritten("it is empty");
  std::vector<PemBlock> blocks;
  for (std::size_t at = pem.find(kPemBegin); at != std::string_view::npos;
       at = pem.find(kPemBegin, at)) {
    if (blocks.size() == kMaxPemBlocks)
      return BadPem("BAD_PEM", "it has more than " + std::to_string(kMaxPemBlocks) + " blocks");
    const std::size_t name = at + kPemBegin.size();
    const std::size_t dashes = pem.find(kPemDashes, name);
    if (dashes == std::string_view::npos) return HalfWritten("it ends inside of a BEGIN line");
    std::string label(pem.substr(name, dashes - name));
    const std::string end = std::string(kPemEnd) + label + std::string(kPemDashes);
    const std::size_t last = pem.find(end, dashes);
    if (last == std::string_view::npos) {
      return HalfWritten("it has no END line for its " + base::ToUtf8(label, 64));
    }
    const std::size_t stop = last + end.size();
    blocks.push_back({std::move(label), pem.substr(at, stop - at)});
    at = stop;
  }
  if (!blocks.empty()) return blocks;
  // "-----BEG" is the beginning of a text that was cut off.
  if (kPemBegin.starts_with(pem)) return HalfWritten("it ends inside of a BEGIN line");
  return BadPem("BAD_PEM", "it is no PEM text: no line begins with -----BEGIN");
}

absl::StatusOr<std::vector<PemBlock>> FindPem(std::string_view pem, std::string_view label) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::vector<PemBlock> all, SplitPem(pem));
  std::vector<PemBlock> found;
  for (const PemBlock& block : all)
    if (block.label.ends_with(label)) found.push_back(block);
  if (!found.empty()) return found;
  return BadPem("BAD_PEM", "it holds a " + base::ToUtf8(all.front().label, 64) + ", not a " +
                               std::string(label));
}

}  // namespace onepiece::identity
