#include "cluster/fabric/ucx/ucx_link.h"

#include <algorithm>
#include <utility>

#include "cluster/base/hmac.h"
#include "cluster/base/status.h"

namespace onepiece::fabric {
namespace {

// How many looks without progress a waiting caller makes before it sleeps. One takes about half a
// microsecond.
constexpr int kSpins = 20;
// Closing is local. Requests that are not done by then go with the worker.
constexpr int kCloseSteps = 1000;

base::MonotonicTime RealNow() { return base::SystemClock().Now(); }

absl::Status Broken(const char* what, ucs_status_t status) {
  return base::MakeError(absl::StatusCode::kUnavailable, "CHANNEL_BROKEN",
                         std::string(what) + ": " + ucs_status_string(status));
}

absl::Status WrongRegion(const char* what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "WRONG_REGION", what);
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxLink>> UcxLink::Connect(std::shared_ptr<UcxContext> context,
                                                          const UcxOffer& offer,
                                                          const RemoteRegion& remote,
                                                          base::MonotonicTime deadline) {
  ONEPIECE_ASSIGN_OR_RETURN(const UcxDetails details, UcxDetails::Parse(remote.details));
  ONEPIECE_RETURN_IF_ERROR(CheckSameProtection(offer.protection, details.protection));
  ONEPIECE_ASSIGN_OR_RETURN(auto worker, UcxWorker::Create(std::move(context)));
  // The owner answers on our own connection. Nobody else has to reach this worker.
  worker->StopAccepting();
  std::unique_ptr<UcxLink> link(new UcxLink(std::move(worker)));
  link->deadline_ = deadline;
  const absl::Status dialled = link->Dial(details, {.offer_secret = offer.secret,
                                                    .grant_secret = details.secret,
                                                    .protection = details.protection,
                                                    .key = remote.key,
                                                    .length_bytes = remote.length_bytes,
                                                    .address = remote.address});
  if (absl::IsUnavailable(dialled)) {
    return base::MakeError(absl::StatusCode::kUnavailable, "PEER_GONE", base::Message(dialled));
  }
  ONEPIECE_RETURN_IF_ERROR(dialled);
  return link;
}

UcxLink::UcxLink(std::unique_ptr<UcxWorker> worker) : worker_(std::move(worker)) {
  worker_->Handle(kUcxVerdict, OnVerdict, this);
  worker_->Handle(kUcxAnswer, OnAnswer, this);
}

UcxLink::~UcxLink() {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  // A close that is not forced flushes first, and would wait for a peer that may never read again.
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t closing = ucp_ep_close_nbx(endpoint_, &params);
  if (UCS_PTR_IS_PTR(closing)) {
    for (int step = 0; step < kCloseSteps && ucp_request_check_status(closing) == UCS_INPROGRESS;
         ++step) {
      worker_->Progress();
    }
    ucp_request_free(closing);
  }
  if (sending_ != nullptr) ucp_request_free(sending_);
}

absl::Status UcxLink::Dial(const UcxDetails& details, const UcxAgreement& agreement) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(details.worker_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = OnFailure, .arg = this};
  const ucs_status_t status = ucp_ep_create(worker_->get(), &params, &endpoint_);
  if (status != UCS_OK) {
    endpoint_ = nullptr;
    return Broken("cannot reach the region's owner", status);
  }
  const std::string nonce = NewUcxSecret();
  hello_ = UcxHello{.nonce = nonce, .tag = agreement.HelloTag(nonce)}.Serialize();
  ucp_request_param_t send{};
  send.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  send.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
  ONEPIECE_RETURN_IF_ERROR(Await(
      ucp_am_send_nbx(endpoint_, kUcxHello, hello_.data(), hello_.size(), nullptr, 0, &send)));
  for (int idle = 0; !answer_.has_value();) ONEPIECE_RETURN_IF_ERROR(Step(idle));
  return Meet(agreement, nonce);
}

absl::Status UcxLink::Meet(const UcxAgreement& agreement, const std::string& nonce) {
  const auto answer = UcxAnswerToHello::Parse(*answer_);
  if (!answer.ok() || answer->verdict == UcxVerdict::kWrongVersion) {
    return WrongRegion("the region's owner speaks another version of the protocol");
  }
  if (answer->verdict != UcxVerdict::kWelcome) {
    return WrongRegion("the owner does not know this region, key or length, or it is taken");
  }
  if (!base::EqualSecrets(answer->tag, agreement.WelcomeTag(nonce))) {
    return WrongRegion("who answers at the region's address is not its owner");
  }
  sealer_.emplace(agreement.protection, agreement.KeyToOwner(nonce));
  opener_.emplace(agreement.protection, agreement.KeyToDialler(nonce));
  if (sealer_->encrypts()) encrypted_.resize(kUcxChunkBytes);
  return absl::OkStatus();
}

void UcxLink::OnFailure(void* self, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  static_cast<UcxLink*>(self)->failure_ = status;
}

ucs_status_t UcxLink::OnVerdict(void* self, const void* header, std::size_t header_length,
                                void* /*data*/, std::size_t /*length*/,
                                const ucp_am_recv_param_t* /*param*/) {
  auto& link = *static_cast<UcxLink*>(self);
  if (!link.answer_.has_value())
    link.answer_.emplace(static_cast<const char*>(header), header_length);
  return UCS_OK;
}

ucs_status_t UcxLink::OnAnswer(void* self, const void* header, std::size_t header_length,
                               void* data, std::size_t length, const ucp_am_recv_param_t* param) {
  auto& link = *static_cast<UcxLink*>(self);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 || !link.opener_.has_value()) {
    link.refused_ = true;
    return UCS_OK;
  }
  const auto frame = link.opener_->Open({static_cast<const std::byte*>(header), header_length},
                                        {static_cast<const std::byte*>(data), length});
  if (!frame.has_value() || !link.chain_.Take(frame->header, frame->payload)) link.refused_ = true;
  return UCS_OK;
}

absl::Status UcxLink::Execute(std::span<const Op> chain, base::MonotonicTime deadline) {
  deadline_ = deadline;
  chain_.Begin(chain);
  work_requests_ = chain.size();
  round_trips_ = 1;
  for (std::size_t index = 0; index < chain.size(); ++index) {
    ONEPIECE_RETURN_IF_ERROR(Post(chain[index], index));
  }
  ONEPIECE_RETURN_IF_ERROR(Send(UcxKind::kEnd, 0, 0));
  for (int idle = 0; !chain_.ended();) ONEPIECE_RETURN_IF_ERROR(Step(idle));
  chain_.Finish();
  return absl::OkStatus();
}

absl::Status UcxLink::Post(const Op& op, std::size_t index) {
  const std::uint64_t size = op.size_bytes();
  op_.index = index;
  op_.compare = op.compare;
  op_.value = op.value;
  switch (op.kind) {
    case Op::Kind::kWrite: {
      std::uint64_t offset = op.offset;
      for (const auto& piece : op.pieces) {
        ONEPIECE_RETURN_IF_ERROR(Write(UcxKind::kWrite, offset, piece));
        offset += piece.size();
      }
      return absl::OkStatus();
    }
    case Op::Kind::kWriteWords:
      return Write(UcxKind::kWriteWords, op.offset, std::as_bytes(op.words));
    case Op::Kind::kRead:
    case Op::Kind::kReadWords:
      return Read(op, index);
    case Op::Kind::kCompareAndSwap:
      chain_.Expect(size);
      return Send(UcxKind::kSwap, op.offset, size);
    case Op::Kind::kFetchAdd:
      chain_.Expect(size);
      return Send(UcxKind::kAdd, op.offset, size);
    case Op::Kind::kNotify:
      return Send(UcxKind::kNotify, 0, 0);
  }
  return absl::OkStatus();
}

// The owner keeps only so many bytes of answers, so the rest is asked for when those are here.
absl::Status UcxLink::Read(const Op& op, std::size_t index) {
  const std::uint64_t size = op.size_bytes();
  const bool in_pieces = size > kUcxReadBytes;
  for (std::uint64_t at = 0; at < size; at += kUcxReadBytes) {
    const std::uint64_t piece = std::min(kUcxReadBytes, size - at);
    // ExpectPiece allows nothing beside a piece.
    const std::uint64_t beside = in_pieces ? 0 : kUcxReadBytes - piece;
    if (chain_.missing_bytes() > beside) ++round_trips_;
    for (int idle = 0; chain_.missing_bytes() > beside;) ONEPIECE_RETURN_IF_ERROR(Step(idle));
    // The bytes are counted before the request goes out. The answer may come while Send still
    // waits, and Take refuses bytes that nobody expects.
    if (in_pieces) {
      chain_.ExpectPiece(index, at, piece);
    } else {
      chain_.Expect(piece);
    }
    ONEPIECE_RETURN_IF_ERROR(Send(UcxKind::kRead, op.offset + at, piece));
  }
  return absl::OkStatus();
}

absl::Status UcxLink::Write(UcxKind kind, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto chunk = bytes.first(std::min<std::size_t>(bytes.size(), kUcxChunkBytes));
    ONEPIECE_RETURN_IF_ERROR(Send(kind, offset, chunk.size(), chunk));
    offset += chunk.size();
    bytes = bytes.subspan(chunk.size());
  }
  return absl::OkStatus();
}

// Returns once the socket has the bytes, so that the next operation goes behind them.
absl::Status UcxLink::Send(UcxKind kind, std::uint64_t offset, std::uint64_t length_bytes,
                           std::span<const std::byte> payload) {
  op_.sequence = sequence_++;
  op_.chain = chain_.number();
  op_.kind = kind;
  op_.offset = offset;
  op_.length_bytes = length_bytes;
  header_ = sealer_->Seal(std::as_bytes(std::span(&op_, 1)), payload, encrypted_.data());
  if (sealer_->encrypts()) payload = std::span(encrypted_).first(payload.size());
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  // EAGER keeps header and payload in one message. The owner refuses a rendezvous, whose payload it
  // would have to fetch.
  params.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
  return Await(ucp_am_send_nbx(endpoint_, kUcxOp, header_.bytes.data(), header_.size,
                               payload.data(), payload.size(), &params));
}

absl::Status UcxLink::Await(ucs_status_ptr_t request) {
  if (UCS_PTR_IS_ERR(request)) return Broken("ucx", UCS_PTR_STATUS(request));
  if (!UCS_PTR_IS_PTR(request)) return absl::OkStatus();
  sending_ = request;  // If the wait fails, the destructor gives it up.
  for (int idle = 0; ucp_request_check_status(request) == UCS_INPROGRESS;) {
    ONEPIECE_RETURN_IF_ERROR(Step(idle));
  }
  const ucs_status_t status = ucp_request_check_status(request);
  sending_ = nullptr;
  ucp_request_free(request);
  return status == UCS_OK ? absl::OkStatus() : Broken("ucx", status);
}

// Looks for progress once, or sleeps when there has been none for a while.
absl::Status UcxLink::Step(int& idle) {
  if (failure_ != UCS_OK) return Broken("the connection failed", failure_);
  if (refused_) return Broken("the owner refused an operation", UCS_ERR_REJECTED);
  const base::Duration left = deadline_ - RealNow();
  if (left <= base::Duration::zero()) {
    return base::MakeError(absl::StatusCode::kDeadlineExceeded, "CHAIN_TIMEOUT",
                           "the deadline passed before the chain was complete");
  }
  if (worker_->Progress()) {
    idle = 0;
  } else if (++idle > kSpins) {
    worker_->Wait(left);
  }
  return absl::OkStatus();
}

}  // namespace onepiece::fabric
