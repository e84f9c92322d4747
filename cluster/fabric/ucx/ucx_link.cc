#include "cluster/fabric/ucx/ucx_link.h"

#include <cstring>
#include <utility>

#include "cluster/base/status.h"

namespace onepiece::fabric {
namespace {

// Looks in vain before a waiting caller goes to sleep; each takes about half a microsecond.
constexpr int kSpins = 20;
// Closing is local; what is not done by then goes with the worker.
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
                                                          const RemoteRegion& remote,
                                                          base::MonotonicTime deadline) {
  ONEPIECE_ASSIGN_OR_RETURN(const UcxDetails details, UcxDetails::Parse(remote.details));
  ONEPIECE_ASSIGN_OR_RETURN(auto worker, UcxWorker::Create(std::move(context)));
  std::unique_ptr<UcxLink> link(new UcxLink(std::move(worker), details.memory_address));
  link->deadline_ = deadline;
  const absl::Status dialled = link->Dial(remote, details);
  if (absl::IsUnavailable(dialled)) {
    return base::MakeError(absl::StatusCode::kUnavailable, "PEER_GONE", base::Message(dialled));
  }
  ONEPIECE_RETURN_IF_ERROR(dialled);
  return link;
}

UcxLink::UcxLink(std::unique_ptr<UcxWorker> worker, std::uint64_t memory_address)
    : worker_(std::move(worker)), memory_address_(memory_address) {
  worker_->Handle(kUcxVerdict, OnVerdict, this);
  worker_->Handle(kUcxRung, OnRung, this);
}

UcxLink::~UcxLink() {
  if (remote_key_ != nullptr) ucp_rkey_destroy(remote_key_);
  if (endpoint_ == nullptr) return;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t closing = ucp_ep_close_nbx(endpoint_, &params);
  if (UCS_PTR_IS_PTR(closing)) {
    for (int step = 0; step < kCloseSteps && ucp_request_check_status(closing) == UCS_INPROGRESS;
         ++step) {
      worker_->Progress();
    }
    ucp_request_free(closing);
  }
  for (void* request : posted_) ucp_request_free(request);
}

absl::Status UcxLink::Dial(const RemoteRegion& remote, const UcxDetails& details) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(details.worker_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = OnFailure, .arg = this};
  ucs_status_t status = ucp_ep_create(worker_->get(), &params, &endpoint_);
  if (status != UCS_OK) {
    endpoint_ = nullptr;
    return Broken("cannot reach the region's owner", status);
  }
  status = ucp_ep_rkey_unpack(endpoint_, details.remote_key.data(), &remote_key_);
  if (status != UCS_OK) {
    remote_key_ = nullptr;
    return WrongRegion("the region's remote key cannot be used");
  }
  const std::string hello =
      UcxHello{.key = remote.key, .length_bytes = remote.length_bytes, .address = remote.address}
          .Serialize();
  ucp_request_param_t send{};
  send.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  send.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
  ONEPIECE_RETURN_IF_ERROR(
      Await(ucp_am_send_nbx(endpoint_, kUcxHello, hello.data(), hello.size(), nullptr, 0, &send)));
  for (int idle = 0; verdict_ == UcxVerdict{};) ONEPIECE_RETURN_IF_ERROR(Step(idle));
  switch (verdict_) {
    case UcxVerdict::kWelcome:
      return absl::OkStatus();
    case UcxVerdict::kWrongVersion:
      return WrongRegion("the region's owner speaks another version of the protocol");
    case UcxVerdict::kWrongRegion:
      break;
  }
  return WrongRegion("the owner does not know this region, key or length, or it is taken");
}

void UcxLink::OnFailure(void* self, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  static_cast<UcxLink*>(self)->failure_ = status;
}

ucs_status_t UcxLink::OnVerdict(void* self, const void* header, std::size_t header_length,
                                void* /*data*/, std::size_t /*length*/,
                                const ucp_am_recv_param_t* /*param*/) {
  UcxVerdict verdict = UcxVerdict::kWrongVersion;
  if (header_length == sizeof verdict) std::memcpy(&verdict, header, sizeof verdict);
  static_cast<UcxLink*>(self)->verdict_ = verdict;
  return UCS_OK;
}

ucs_status_t UcxLink::OnRung(void* self, const void* /*header*/, std::size_t /*header_length*/,
                             void* /*data*/, std::size_t /*length*/,
                             const ucp_am_recv_param_t* /*param*/) {
  static_cast<UcxLink*>(self)->ringing_ = false;
  return UCS_OK;
}

absl::Status UcxLink::Execute(std::span<const Op> chain, base::MonotonicTime deadline) {
  deadline_ = deadline;
  work_requests_ = 0;
  round_trips_ = 0;
  for (const Op& op : chain) {
    const bool reads = op.kind == Op::Kind::kRead || op.kind == Op::Kind::kReadWords;
    // The owner takes the bytes of a get when it has room to send them, perhaps after it has
    // executed what came behind.
    if (reading_ && !reads) ONEPIECE_RETURN_IF_ERROR(AwaitPosted());
    ucp_worker_fence(worker_->get());
    ONEPIECE_RETURN_IF_ERROR(Post(op, /*last=*/&op == &chain.back()));
  }
  ucp_request_param_t params{};
  ONEPIECE_RETURN_IF_ERROR(Keep(ucp_ep_flush_nbx(endpoint_, &params)));
  return AwaitPosted();
}

absl::Status UcxLink::Post(const Op& op, bool last) {
  switch (op.kind) {
    case Op::Kind::kWrite: {
      std::uint64_t offset = op.offset;
      for (const auto& piece : op.pieces) {
        ONEPIECE_RETURN_IF_ERROR(Put(offset, piece.data(), piece.size()));
        offset += piece.size();
      }
      return absl::OkStatus();
    }
    case Op::Kind::kWriteWords:
      return Put(op.offset, op.words.data(), op.words.size_bytes());
    case Op::Kind::kRead:
      return Get(op.offset, op.into.data(), op.into.size());
    case Op::Kind::kReadWords:
      return Get(op.offset, op.words_into.data(), op.words_into.size_bytes());
    case Op::Kind::kCompareAndSwap:
    case Op::Kind::kFetchAdd:
      return Atomic(op);
    case Op::Kind::kNotify:
      return Notify(/*confirmed=*/last);
  }
  return absl::OkStatus();
}

// Returns once the bytes have been handed to the socket: the next operation goes behind them.
absl::Status UcxLink::Put(std::uint64_t offset, const void* from, std::size_t size) {
  if (size == 0) return absl::OkStatus();
  ++work_requests_;
  ucp_request_param_t params{};
  return Await(ucp_put_nbx(endpoint_, from, size, memory_address_ + offset, remote_key_, &params));
}

absl::Status UcxLink::Get(std::uint64_t offset, void* into, std::size_t size) {
  if (size == 0) return absl::OkStatus();
  reading_ = true;
  ++work_requests_;
  ucp_request_param_t params{};
  return Keep(ucp_get_nbx(endpoint_, into, size, memory_address_ + offset, remote_key_, &params));
}

absl::Status UcxLink::Atomic(const Op& op) {
  ++work_requests_;
  const bool swap = op.kind == Op::Kind::kCompareAndSwap;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
  params.datatype = ucp_dt_make_contig(sizeof(std::uint64_t));
  params.reply_buffer = op.old_value;
  // UCX takes the new value from where it puts the old one.
  if (swap) *op.old_value = op.value;
  return Keep(ucp_atomic_op_nbx(endpoint_, swap ? UCP_ATOMIC_OP_CSWAP : UCP_ATOMIC_OP_ADD,
                                swap ? &op.compare : &op.value, 1, memory_address_ + op.offset,
                                remote_key_, &params));
}

// A flush does not wait for messages. The answer to an operation behind this one says that it has
// arrived; the last one of a chain needs an answer of its own.
absl::Status UcxLink::Notify(bool confirmed) {
  ++work_requests_;
  ringing_ = confirmed;
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  if (confirmed) params.flags |= UCP_AM_SEND_FLAG_REPLY;
  return Keep(ucp_am_send_nbx(endpoint_, kUcxNotify, nullptr, 0, nullptr, 0, &params));
}

absl::Status UcxLink::Keep(ucs_status_ptr_t request) {
  if (UCS_PTR_IS_ERR(request)) return Broken("ucx", UCS_PTR_STATUS(request));
  if (UCS_PTR_IS_PTR(request)) posted_.push_back(request);
  return absl::OkStatus();
}

absl::Status UcxLink::Await(ucs_status_ptr_t request) {
  ONEPIECE_RETURN_IF_ERROR(Keep(request));
  if (!UCS_PTR_IS_PTR(request)) return absl::OkStatus();
  for (int idle = 0; ucp_request_check_status(request) == UCS_INPROGRESS;) {
    ONEPIECE_RETURN_IF_ERROR(Step(idle));
  }
  const ucs_status_t status = ucp_request_check_status(request);
  std::erase(posted_, request);
  ucp_request_free(request);
  return status == UCS_OK ? absl::OkStatus() : Broken("ucx", status);
}

absl::Status UcxLink::AwaitPosted() {
  ++round_trips_;
  while (!posted_.empty()) {
    void* const request = posted_.back();
    posted_.pop_back();
    ONEPIECE_RETURN_IF_ERROR(Await(request));
  }
  for (int idle = 0; ringing_;) ONEPIECE_RETURN_IF_ERROR(Step(idle));
  reading_ = false;
  return absl::OkStatus();
}

// One look for progress, or a sleep when there has been none for a while.
absl::Status UcxLink::Step(int& idle) {
  if (failure_ != UCS_OK) return Broken("the connection failed", failure_);
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
