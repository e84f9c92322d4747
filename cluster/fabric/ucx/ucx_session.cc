#include "cluster/fabric/ucx/ucx_session.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "cluster/base/hmac.h"

namespace onepiece::fabric {

std::optional<UcxAnswerToHello> UcxSession::Judge(std::string_view bytes) {
  const auto hello = UcxHello::Parse(bytes);
  if (!hello.ok() || hello->version != kUcxProtocolVersion) {
    return RefuseHello(UcxVerdict::kWrongVersion);
  }
  if (welcomed() || !base::EqualSecrets(hello->tag, agreement_.HelloTag(hello->nonce))) {
    return RefuseHello(UcxVerdict::kWrongRegion);
  }
  opener_.emplace(agreement_.protection, agreement_.KeyToOwner(hello->nonce));
  sealer_.emplace(agreement_.protection, agreement_.KeyToDialler(hello->nonce));
  return UcxAnswerToHello{.verdict = UcxVerdict::kWelcome,
                          .tag = agreement_.WelcomeTag(hello->nonce)};
}

std::optional<UcxAnswerToHello> UcxSession::RefuseHello(UcxVerdict verdict) {
  if (refused_hellos_ == kUcxMaxRefusals) return std::nullopt;
  ++refused_hellos_;
  return UcxAnswerToHello{.verdict = verdict, .tag = {}};
}

UcxSealedHeader UcxSession::Seal(const UcxAnswer& answer, std::span<std::byte> bytes) {
  return sealer_->Seal(std::as_bytes(std::span(&answer, 1)), bytes, bytes.data());
}

UcxSession::Outcome UcxSession::Take(std::span<const std::byte> header,
                                     std::span<const std::byte> payload) {
  if (!welcomed()) return {};
  const auto frame = opener_->Open(header, payload);
  UcxOp op;
  if (!frame.has_value() || frame->header.size() != sizeof op) {
    const bool first = !refused_;
    Refuse();
    return {.op = op, .answers = first};  // As if it were an end.
  }
  std::memcpy(&op, frame->header.data(), sizeof op);
  if (!Allowed(op, frame->payload.size())) Refuse();
  ++next_sequence_;
  if (refused_) return {.op = op, .answers = op.kind == UcxKind::kEnd};
  return Execute(op, frame->payload);
}

bool UcxSession::Allowed(const UcxOp& op, std::uint64_t payload_bytes) const {
  const std::uint64_t region_bytes = region_.size();
  const bool inside = op.offset <= region_bytes && op.length_bytes <= region_bytes - op.offset;
  const bool writes = op.kind == UcxKind::kWrite || op.kind == UcxKind::kWriteWords;
  const bool atomic = op.kind == UcxKind::kSwap || op.kind == UcxKind::kAdd;
  const std::uint64_t word = sizeof(std::uint64_t);
  const bool whole_words = op.offset % word == 0 && op.length_bytes % word == 0;
  const bool reads = op.kind == UcxKind::kRead || op.kind == UcxKind::kEnd;
  return op.sequence == next_sequence_ && inside && (reads || rights_ == Rights::kReadWrite) &&
         payload_bytes == (writes ? op.length_bytes : 0) &&
         (op.kind != UcxKind::kWriteWords || whole_words) &&
         (!atomic || (whole_words && op.length_bytes == word)) && op.kind >= UcxKind::kWrite &&
         op.kind <= UcxKind::kEnd;
}

UcxSession::Outcome UcxSession::Execute(const UcxOp& op, std::span<const std::byte> payload) {
  std::byte* const at = region_.data() + op.offset;
  const auto word = [at] { return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at)); };
  // A swap that succeeds leaves `old_value_` alone, and then `compare` is the former value.
  old_value_ = op.compare;
  switch (op.kind) {
    case UcxKind::kWrite:
      if (!payload.empty()) std::memcpy(at, payload.data(), payload.size());
      return {.op = op};
    case UcxKind::kWriteWords:
      for (std::size_t i = 0; i < payload.size(); i += sizeof old_value_) {
        std::memcpy(&old_value_, payload.data() + i, sizeof old_value_);
        StoreWord(at + i, old_value_);
      }
      return {.op = op};
    case UcxKind::kRead:
      return {.op = op, .answers = true, .bytes = {at, op.length_bytes}};
    case UcxKind::kSwap:
      word().compare_exchange_strong(old_value_, op.value);
      break;
    case UcxKind::kAdd:
      old_value_ = word().fetch_add(op.value);
      break;
    case UcxKind::kNotify:
      return {.op = op, .rings = true};
    case UcxKind::kEnd:
      return {.op = op, .answers = true};
  }
  return {.op = op, .answers = true, .bytes = std::as_bytes(std::span(&old_value_, 1))};
}

void UcxChain::Begin(std::span<const Op> ops) {
  ops_ = ops;
  ++number_;
  missing_bytes_ = 0;
  piece_of_ = 0;
  piece_at_ = 0;
  ended_ = false;
}

void UcxChain::ExpectPiece(std::size_t index, std::uint64_t at, std::uint64_t bytes) {
  piece_of_ = index;
  piece_at_ = at;
  Expect(bytes);
}

bool UcxChain::Take(std::span<const std::byte> header, std::span<const std::byte> bytes) {
  UcxAnswer answer;
  if (header.size() != sizeof answer) return false;
  std::memcpy(&answer, header.data(), sizeof answer);
  if (answer.refused != 0 || answer.chain != number_) return false;
  if (answer.kind == UcxKind::kEnd) {
    ended_ = true;
    // The owner sends the end behind all answers, on one stream: missing bytes never come now.
    return missing_bytes_ == 0;
  }
  if (answer.index >= ops_.size() || bytes.size() > missing_bytes_) return false;
  const Op& op = ops_[answer.index];
  std::span<std::byte> into;
  switch (op.kind) {
    case Op::Kind::kRead:
      into = op.into;
      break;
    case Op::Kind::kReadWords:
      into = std::as_writable_bytes(op.words_into);
      break;
    case Op::Kind::kCompareAndSwap:
    case Op::Kind::kFetchAdd:
      into = std::as_writable_bytes(std::span(op.old_value, 1));
      break;
    case Op::Kind::kWrite:
    case Op::Kind::kWriteWords:
    case Op::Kind::kNotify:
      break;
  }
  if (answer.index == piece_of_) into = into.subspan(piece_at_);
  if (answer.offset > into.size() || bytes.size() > into.size() - answer.offset) return false;
  std::ranges::copy(bytes, into.subspan(answer.offset).begin());
  missing_bytes_ -= bytes.size();
  return true;
}

}  // namespace onepiece::fabric
