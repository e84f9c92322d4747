// Gives any bytes to both ends of a connection over UCX: the hello, the details of a region, and
// then messages as an owner and a dialling end take them. Whatever a peer sends, nothing outside of
// the region and of the chain's own memory is read or written.
//
// The input is a program: a byte says which message comes, the next ones are its header and its
// payload. Most headers are corrected, because otherwise the fuzzer would never get past the first.
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "cluster/base/check.h"
#include "cluster/fabric/ucx/ucx_session.h"

namespace onepiece::fabric {
namespace {

constexpr std::size_t kRegionBytes = 256;

class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : rest_(bytes) {}
  bool empty() const { return rest_.empty(); }
  std::span<const std::byte> Take(std::size_t size) {
    const auto taken = rest_.first(std::min(size, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  unsigned Byte() { return empty() ? 0 : static_cast<unsigned>(Take(1)[0]); }

 private:
  std::span<const std::byte> rest_;
};

/// Copies what AddressSanitizer shall guard into memory of its own.
std::vector<std::byte> Guarded(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

void Texts(std::string_view bytes) {
  if (const auto hello = UcxHello::Parse(bytes); hello.ok())
    ONEPIECE_CHECK(hello->Serialize() == bytes);
  if (const auto answer = UcxAnswerToHello::Parse(bytes); answer.ok())
    ONEPIECE_CHECK(answer->Serialize() == bytes);
  if (const auto details = UcxDetails::Parse(bytes); details.ok())
    ONEPIECE_CHECK(details->Serialize() == bytes);
  const auto offer =
      UcxOffer::Parse({.backend = kUcxBackend, .peer = {}, .details = std::string(bytes)});
  if (offer.ok()) ONEPIECE_CHECK(offer->Serialize() == bytes);
}

/// `header` and `payload` as the peer seals them.
struct Sealed {
  Sealed(UcxSealer& sealer, std::span<const std::byte> header, std::span<const std::byte> clear)
      : payload(Guarded(clear)) {
    const UcxSealedHeader sealed = sealer.Seal(
        header.first(std::min(header.size(), kUcxMaxHeaderBytes)), clear, payload.data());
    head = Guarded(std::span(sealed.bytes).first(sealed.size));
  }
  std::vector<std::byte> payload;
  std::vector<std::byte> head;
};

void ToOwner(Input input, FrameProtection protection) {
  // The memory is as large as the region, so that AddressSanitizer sees the first byte outside.
  const std::unique_ptr<std::uint64_t[]> memory(new std::uint64_t[kRegionBytes / 8]());
  const std::span region(reinterpret_cast<std::byte*>(memory.get()), kRegionBytes);
  const UcxAgreement agreement{.offer_secret = std::string(kUcxSecretBytes, 'o'),
                               .grant_secret = std::string(kUcxSecretBytes, 'g'),
                               .protection = protection,
                               .key = 1,
                               .length_bytes = kRegionBytes,
                               .address = "fuzz"};
  const std::string nonce(kUcxSecretBytes, 'n');
  const std::string hello = UcxHello{.nonce = nonce, .tag = agreement.HelloTag(nonce)}.Serialize();
  UcxSession session(agreement, region, Rights::kReadWrite);
  UcxSealer sealer(protection, agreement.KeyToOwner(nonce));
  if (input.Byte() < 250) (void)session.Judge(hello);
  const bool welcomed = session.welcomed();
  for (std::uint64_t sequence = 0; !input.empty(); ++sequence) {
    const unsigned how = input.Byte();
    std::vector<std::byte> header = Guarded(input.Take(sizeof(UcxOp)));
    if (how < 240 && header.size() == sizeof(UcxOp)) {
      UcxOp op;
      std::memcpy(&op, header.data(), sizeof op);
      op.sequence = sequence;
      op.kind = UcxKind{1 + how % 7};
      if (how < 200) op.offset %= kRegionBytes + 16;
      if (how < 200) op.length_bytes = how % 3 == 0 ? 8 : op.length_bytes % (kRegionBytes + 16);
      std::memcpy(header.data(), &op, sizeof op);
    }
    const std::vector<std::byte> payload = Guarded(input.Take(input.Byte()));
    const bool refused = session.refused();
    // Messages that nobody sealed, among the others.
    const bool forged = how >= 250;
    const Sealed sealed(sealer, header, payload);
    const auto outcome =
        forged ? session.Take(header, payload) : session.Take(sealed.head, sealed.payload);
    ONEPIECE_CHECK(!forged || !welcomed || session.refused());
    ONEPIECE_CHECK(!refused || session.refused());
    ONEPIECE_CHECK(!session.refused() || outcome.bytes.empty());
    std::vector<std::byte> read = Guarded(outcome.bytes);
  }
}

/// The chain's first read has a piece under way that begins at `piece_at`.
void ToDialler(Input input, std::uint64_t piece_at) {
  std::array<std::byte, 16> written{};
  const std::array<std::span<const std::byte>, 1> pieces = {written};
  const std::unique_ptr<std::byte[]> into(new std::byte[24]);
  const std::unique_ptr<std::uint64_t[]> words(new std::uint64_t[2]);
  const std::unique_ptr<std::uint64_t> old_value(new std::uint64_t);
  const std::array<Op, 4> ops = {
      Op::Write("fuzz", 0, pieces), Op::Read("fuzz", 0, {into.get(), 24}),
      Op::ReadWords("fuzz", 0, {words.get(), 2}), Op::FetchAdd("fuzz", 0, 1, old_value.get())};
  UcxChain chain;
  chain.Begin(ops);
  chain.ExpectPiece(1, piece_at, ops[1].size_bytes() - piece_at);
  for (const Op& op : std::span(ops).subspan(2)) chain.Expect(op.size_bytes());
  while (!input.empty() && !chain.ended()) {
    const unsigned how = input.Byte();
    std::vector<std::byte> header = Guarded(input.Take(sizeof(UcxAnswer)));
    if (how < 240 && header.size() == sizeof(UcxAnswer)) {
      UcxAnswer answer;
      std::memcpy(&answer, header.data(), sizeof answer);
      answer.chain = chain.number();
      answer.refused = 0;
      if (how < 200) answer.index %= ops.size() + 1;
      if (how < 200) answer.offset %= 32;
      std::memcpy(header.data(), &answer, sizeof answer);
    }
    (void)chain.Take(header, Guarded(input.Take(input.Byte() % 40)));
  }
  chain.Finish();
  UcxAnswer late;
  late.chain = chain.number();
  late.kind = UcxKind::kRead;
  ONEPIECE_CHECK(!chain.Take(std::as_bytes(std::span(&late, 1)), written));
}

}  // namespace
}  // namespace onepiece::fabric

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onepiece::fabric;
  const auto bytes = std::as_bytes(std::span(data, size));
  Texts({reinterpret_cast<const char*>(data), size});
  for (const FrameProtection protection :
       {FrameProtection::kNone, FrameProtection::kMac, FrameProtection::kAead}) {
    ToOwner(Input(bytes), protection);
  }
  ToDialler(Input(bytes), 0);
  ToDialler(Input(bytes), 16);
  return 0;
}
