#include "cluster/fabric/verbs/channel.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cluster/base/status.h"

namespace onepiece::fabric::verbs {
namespace {

constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

absl::Status Broken(const std::string& message) {
  return base::MakeError(absl::StatusCode::kUnavailable, "CHANNEL_BROKEN", message);
}

// The words that an operator needs besides the library's own.
const char* Explain(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return "; the peer's device refused it: the key was revoked or is not ours";
    case IBV_WC_RETRY_EXC_ERR:
      return "; the peer does not answer: it is gone, has revoked us, or the network is cut";
    case IBV_WC_LOC_PROT_ERR:
      return "; memory of this process was unmapped while it was sent";
    default:
      return "";
  }
}

}  // namespace

VerbsChannel::VerbsChannel(std::shared_ptr<Device> device, std::shared_ptr<StagingPool> pool,
                           std::unique_ptr<QueuePair> pair, const PeerMemory& target,
                           base::Clock& clock)
    : Channel(target.length_bytes, target.rights),
      device_(std::move(device)),
      pool_(std::move(pool)),
      target_(target),
      clock_(clock),
      pair_(std::move(pair)),
      // One request stays free for the mark that QueuePair posts when it drains.
      depth_(std::min(kDepth, pair_->abilities().max_send_wr - 1)),
      max_pieces_(std::min(kPieces, pair_->abilities().max_send_sge)),
      max_inline_(pair_->abilities().max_inline_data),
      max_request_bytes_(device_->port().max_msg_sz) {}

absl::Status VerbsChannel::Probe(base::MonotonicTime deadline) {
  std::uint64_t word = 0;
  const Op read = Op::ReadWords("probe", target_.length_bytes - kWordBytes, {&word, 1});
  const absl::Status status = Perform({&read, 1}, deadline);
  switch (wrong_) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return base::MakeError(absl::StatusCode::kInvalidArgument, "WRONG_REGION",
                             base::Message(status));
    case IBV_WC_RETRY_EXC_ERR:
      return base::MakeError(absl::StatusCode::kUnavailable, "PEER_GONE", base::Message(status));
    default:
      return status;
  }
}

absl::Status VerbsChannel::Run(std::span<const Op> chain, base::MonotonicTime deadline) {
  posted_ = 0;
  trips_ = 0;
  const absl::Status status = Perform(chain, deadline);
  CountPosted(posted_, trips_);
  return status;
}

absl::Status VerbsChannel::Perform(std::span<const Op> chain, base::MonotonicTime deadline) {
  if (clock_.Now() >= deadline) {
    return base::MakeError(absl::StatusCode::kDeadlineExceeded, "CHAIN_TIMEOUT",
                           "deadline passed before the chain was posted");
  }
  auto staging = pool_->Take();
  if (!staging.ok()) return Broken(base::Message(staging.status()));
  staging_ = *std::move(staging);
  chain_ = chain;
  deadline_ = deadline;
  absl::Status status;
  for (op_index_ = 0; op_index_ < chain.size() && status.ok(); ++op_index_) {
    status = Add(chain[op_index_]);
  }
  if (status.ok()) status = Flush();
  // The queue pair goes before the memory below, because a chain that was given up may be under
  // way.
  if (!status.ok()) pair_.reset();
  registered_.clear();
  results_.clear();
  pool_->GiveBack(std::exchange(staging_, {}));
  return status;
}

absl::Status VerbsChannel::Add(const Op& op) {
  switch (op.kind) {
    case Op::Kind::kWrite:
      return AddWrite(op.offset, op.pieces);
    case Op::Kind::kWriteWords: {
      const std::span<const std::byte> bytes = std::as_bytes(op.words);
      return AddWrite(op.offset, {&bytes, 1});
    }
    case Op::Kind::kRead:
      return AddRead(op.offset, op.into);
    case Op::Kind::kReadWords:
      return AddRead(op.offset, std::as_writable_bytes(op.words_into));
    case Op::Kind::kCompareAndSwap:
    case Op::Kind::kFetchAdd:
      return AddAtomic(op);
    case Op::Kind::kNotify:
      return AddNotify();
  }
  return absl::OkStatus();
}

absl::Status VerbsChannel::AddWrite(std::uint64_t offset, Op::Pieces pieces) {
  std::uint64_t total = 0;
  for (const auto& piece : pieces) total += piece.size();
  if (total == 0) return absl::OkStatus();
  if (total <= max_inline_ && pieces.size() <= max_pieces_) return AddInline(offset, pieces);
  for (const auto& piece : pieces) {
    if (piece.size() < kRegisterFrom) {
      ONEPIECE_RETURN_IF_ERROR(AddStaged(offset, piece));
    } else {
      ONEPIECE_ASSIGN_OR_RETURN(const std::uint32_t lkey, Register(piece, 0));
      ONEPIECE_RETURN_IF_ERROR(AddSegment(offset, piece, lkey));
    }
  }
  // The next operation has an offset of its own, so it must not join this request.
  open_write_ = false;
  return absl::OkStatus();
}

absl::Status VerbsChannel::AddInline(std::uint64_t offset, Op::Pieces pieces) {
  ONEPIECE_RETURN_IF_ERROR(Reserve(0));
  ibv_send_wr& request = NextRequest(IBV_WR_RDMA_WRITE, offset);
  request.send_flags |= IBV_SEND_INLINE;
  for (const auto& piece : pieces) {
    if (!piece.empty()) AddTo(request, piece, 0);
  }
  return absl::OkStatus();
}

absl::Status VerbsChannel::AddStaged(std::uint64_t& offset, std::span<const std::byte> piece) {
  while (!piece.empty()) {
    // Reserves the request too, so that no Flush comes between the staging and its request.
    ONEPIECE_RETURN_IF_ERROR(Reserve(1));
    const std::span<std::byte> room = Stage(piece.size());
    std::memcpy(room.data(), piece.data(), room.size());
    ONEPIECE_RETURN_IF_ERROR(AddSegment(offset, room, staging_.registration->lkey));
    piece = piece.subspan(room.size());
  }
  return absl::OkStatus();
}

// Appends to the last request while that is a write with room, and starts new requests as needed:
// at most one when `bytes` are staged.
absl::Status VerbsChannel::AddSegment(std::uint64_t& offset, std::span<const std::byte> bytes,
                                      std::uint32_t lkey) {
  while (!bytes.empty()) {
    if (!open_write_ || open_bytes_ == max_request_bytes_ ||
        requests_[request_count_ - 1].num_sge == static_cast<int>(max_pieces_)) {
      ONEPIECE_RETURN_IF_ERROR(Reserve(0));
      NextRequest(IBV_WR_RDMA_WRITE, offset);
      open_write_ = true;
      open_bytes_ = 0;
    }
    const auto part =
        bytes.first(std::min<std::size_t>(bytes.size(), max_request_bytes_ - open_bytes_));
    AddTo(requests_[request_count_ - 1], part, lkey);
    open_bytes_ += static_cast<std::uint32_t>(part.size());
    offset += part.size();
    bytes = bytes.subspan(part.size());
  }
  return absl::OkStatus();
}

absl::Status VerbsChannel::AddRead(std::uint64_t offset, std::span<std::byte> into) {
  const bool staged = into.size() < kRegisterFrom;
  std::uint32_t lkey = staging_.registration->lkey;
  if (!staged) {
    ONEPIECE_ASSIGN_OR_RETURN(lkey, Register(into, IBV_ACCESS_LOCAL_WRITE));
  }
  while (!into.empty()) {
    ONEPIECE_RETURN_IF_ERROR(Reserve(staged ? 1 : 0));
    const std::size_t most = std::min<std::size_t>(into.size(), max_request_bytes_);
    const std::span<std::byte> at = staged ? Stage(most) : into.first(most);
    AddTo(NextRequest(IBV_WR_RDMA_READ, offset), at, lkey);
    if (staged) results_.push_back({.from = at.data(), .to = into.data(), .bytes = at.size()});
    reads_before_ = true;
    offset += at.size();
    into = into.subspan(at.size());
  }
  return absl::OkStatus();
}

absl::Status VerbsChannel::AddAtomic(const Op& op) {
  // The second word is for the alignment below, which costs up to 7 bytes.
  ONEPIECE_RETURN_IF_ERROR(Reserve(2 * kWordBytes));
  staged_ = (staged_ + kWordBytes - 1) / kWordBytes * kWordBytes;
  const std::span<std::byte> at = Stage(kWordBytes);
  const bool swap = op.kind == Op::Kind::kCompareAndSwap;
  ibv_send_wr& request =
      NextRequest(swap ? IBV_WR_ATOMIC_CMP_AND_SWP : IBV_WR_ATOMIC_FETCH_AND_ADD, op.offset);
  request.wr.atomic = {.remote_addr = target_.address + op.offset,
                       .compare_add = swap ? op.compare : op.value,
                       .swap = op.value,
                       .rkey = target_.key};
  AddTo(request, at, staging_.registration->lkey);
  // An atomic does not set reads_before_, because the peer's device answers a repeated atomic with
  // its first result.
  results_.push_back(
      {.from = at.data(), .to = reinterpret_cast<std::byte*>(op.old_value), .bytes = kWordBytes});
  return absl::OkStatus();
}

// Without a doorbell the peer has posted no receive, and a ring would wait for one forever.
absl::Status VerbsChannel::AddNotify() {
  if (!target_.has_doorbell) return absl::OkStatus();
  ONEPIECE_RETURN_IF_ERROR(Reserve(0));
  NextRequest(IBV_WR_RDMA_WRITE_WITH_IMM, 0);
  return absl::OkStatus();
}

absl::Status VerbsChannel::Reserve(std::size_t staged_bytes) {
  const bool full = request_count_ == depth_ || Staging::kBytes - staged_ < staged_bytes;
  return full ? Flush() : absl::OkStatus();
}

// REQUIRES: Reserve.
ibv_send_wr& VerbsChannel::NextRequest(ibv_wr_opcode opcode, std::uint64_t offset) {
  ibv_send_wr& request = requests_[request_count_];
  request = {};
  request.wr_id = op_index_;
  request.opcode = opcode;
  request.sg_list = &segments_[std::size_t{request_count_} * kPieces];
  request.wr.rdma = {.remote_addr = target_.address + offset, .rkey = target_.key};
  // After a lost packet the device repeats a read, which then would see what a later operation of
  // the chain has written. Only when such an operation follows must the device wait for the read.
  // No chain of the ring needs that.
  if (opcode != IBV_WR_RDMA_READ && reads_before_) {
    request.send_flags |= IBV_SEND_FENCE;
    reads_before_ = false;
    ++trips_;
  }
  ++request_count_;
  open_write_ = false;
  return request;
}

void VerbsChannel::AddTo(ibv_send_wr& request, std::span<const std::byte> bytes,
                         std::uint32_t lkey) {
  const auto address = reinterpret_cast<std::uint64_t>(bytes.data());
  const auto length = static_cast<std::uint32_t>(bytes.size());
  if (request.num_sge > 0) {
    ibv_sge& last = request.sg_list[request.num_sge - 1];
    if (last.lkey == lkey && last.addr + last.length == address) {
      last.length += length;
      return;
    }
  }
  request.sg_list[request.num_sge++] = {.addr = address, .length = length, .lkey = lkey};
}

// REQUIRES: Reserve(1).
std::span<std::byte> VerbsChannel::Stage(std::size_t most) {
  const auto room = staging_.pages->bytes().subspan(staged_);
  const auto taken = room.first(std::min(most, room.size()));
  staged_ += taken.size();
  return taken;
}

absl::StatusOr<std::uint32_t> VerbsChannel::Register(std::span<const std::byte> bytes, int access) {
  auto registration = RegisterMemory(device_->domain(), bytes, access);
  if (!registration.ok()) return Broken(base::Message(registration.status()));
  registered_.push_back(*std::move(registration));
  return registered_.back()->lkey;
}

absl::Status VerbsChannel::Flush() {
  if (request_count_ == 0) return absl::OkStatus();
  for (std::uint32_t i = 0; i + 1 < request_count_; ++i) requests_[i].next = &requests_[i + 1];
  // Requests complete in order. The completion of the last one therefore frees all places in the
  // queue and the staging memory.
  requests_[request_count_ - 1].send_flags |= IBV_SEND_SIGNALED;
  if (absl::Status posted = pair_->Post(requests_.data()); !posted.ok()) {
    return Broken(base::Message(posted));
  }
  posted_ += request_count_;
  ++trips_;
  request_count_ = 0;
  staged_ = 0;
  open_write_ = false;
  reads_before_ = false;
  const auto completion = pair_->completions().Next(clock_, deadline_);
  if (!completion.has_value()) {
    return base::MakeError(absl::StatusCode::kDeadlineExceeded, "CHAIN_TIMEOUT",
                           "deadline passed before the chain was completed");
  }
  if (completion->status != IBV_WC_SUCCESS) return Failed(*completion);
  for (const StagedResult& result : results_) std::memcpy(result.to, result.from, result.bytes);
  results_.clear();
  return absl::OkStatus();
}

absl::Status VerbsChannel::Failed(const ibv_wc& completion) {
  wrong_ = completion.status;
  const std::string name = completion.wr_id < chain_.size() ? chain_[completion.wr_id].name : "?";
  return Broken("operation " + name + ": " + ibv_wc_status_str(completion.status) +
                Explain(completion.status));
}

}  // namespace onepiece::fabric::verbs
