#include "cluster/fabric/ucx/ucx_target.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "spdlog/spdlog.h"

namespace onepiece::fabric {
namespace {

// How many steps of progress one busy peer gets before the others have their turn.
constexpr int kProgressSteps = 64;

std::atomic<std::uint64_t> the_flooded_peers{0};

}  // namespace

void UcxDoorbell::Wait(std::uint32_t seen, base::Duration limit) {
  base::MutexLock lock(mutex_);
  rung_.WaitFor(lock, limit, [&] { return count_.load() != seen; });
}

void UcxDoorbell::Ring() {
  {
    const base::MutexLock lock(mutex_);
    count_.fetch_add(1);
  }
  rung_.NotifyAll();
}

absl::StatusOr<std::shared_ptr<UcxTarget>> UcxTarget::Open(std::shared_ptr<UcxContext> context,
                                                           std::shared_ptr<UcxMemory> memory,
                                                           std::shared_ptr<UcxDoorbell> doorbell,
                                                           UcxAgreement agreement, Rights rights) {
  ONEPIECE_ASSIGN_OR_RETURN(auto worker, UcxWorker::Create(std::move(context)));
  ONEPIECE_ASSIGN_OR_RETURN(std::string address, worker->Address());
  return std::shared_ptr<UcxTarget>(new UcxTarget(std::move(worker), std::move(memory),
                                                  std::move(doorbell), std::move(agreement), rights,
                                                  std::move(address)));
}

UcxTarget::UcxTarget(std::unique_ptr<UcxWorker> worker, std::shared_ptr<UcxMemory> memory,
                     std::shared_ptr<UcxDoorbell> doorbell, UcxAgreement agreement, Rights rights,
                     std::string worker_address)
    : memory_(std::move(memory)),
      doorbell_(std::move(doorbell)),
      worker_address_(std::move(worker_address)),
      fd_(worker->fd()),
      worker_(std::move(worker)),
      session_(std::move(agreement), memory_->bytes(), rights) {
  worker_->Handle(kUcxHello, OnHello, this);
  worker_->Handle(kUcxOp, OnOp, this);
}

void UcxTarget::AdmitOnly(const std::vector<std::string>& sources) {
  const base::MutexLock lock(mutex_);
  if (worker_ != nullptr) worker_->AdmitOnly(sources);
}

bool UcxTarget::Progress() {
  const base::MutexLock lock(mutex_);
  for (int step = 0; worker_ != nullptr && !flooded_ && step < kProgressSteps; ++step) {
    if (!worker_->Progress()) return !worker_->Arm();
  }
  return worker_ != nullptr && !flooded_;
}

bool UcxTarget::flooded() {
  const base::MutexLock lock(mutex_);
  return flooded_;
}

bool UcxTarget::welcomed() {
  const base::MutexLock lock(mutex_);
  return peer_ != nullptr;
}

void UcxTarget::Close() {
  const base::MutexLock lock(mutex_);
  // The worker goes first, because it may read the replies until it is gone.
  worker_.reset();
  replies_.clear();
}

ucs_status_t UcxTarget::OnHello(void* self, const void* header, std::size_t header_length,
                                void* /*data*/, std::size_t /*length*/,
                                const ucp_am_recv_param_t* param) {
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return UCS_OK;
  auto& target = *static_cast<UcxTarget*>(self);
  target.mutex_.AssertHeld();
  const auto answer = target.session_.Judge({static_cast<const char*>(header), header_length});
  if (!answer.has_value()) return UCS_OK;
  if (answer->verdict == UcxVerdict::kWelcome) {
    target.peer_ = param->reply_ep;
    // The port has done its work. From now on nobody else gets as far as UCX.
    if (target.worker_ != nullptr) target.worker_->StopAccepting();
  }
  Reply* const reply = target.NewReply({});
  if (reply == nullptr) return UCS_OK;
  reply->verdict = answer->Serialize();
  target.Send(*reply, param->reply_ep, kUcxVerdict, reply->verdict.data(), reply->verdict.size());
  return UCS_OK;
}

ucs_status_t UcxTarget::OnOp(void* self, const void* header, std::size_t header_length, void* data,
                             std::size_t length, const ucp_am_recv_param_t* param) {
  auto& target = *static_cast<UcxTarget*>(self);
  target.mutex_.AssertHeld();
  const bool from_peer =
      (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0 && param->reply_ep == target.peer_;
  if (target.flooded_ || !from_peer) return UCS_OK;
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    target.session_.Refuse();
    return UCS_OK;
  }
  const UcxSession::Outcome outcome =
      target.session_.Take({static_cast<const std::byte*>(header), header_length},
                           {static_cast<const std::byte*>(data), length});
  if (outcome.rings && target.doorbell_ != nullptr) target.doorbell_->Ring();
  if (outcome.answers) target.AnswerAll(outcome, param->reply_ep);
  return UCS_OK;
}

// Copies the bytes as they are now: they include what the peer wrote before a read, and exclude
// what it writes after.
void UcxTarget::AnswerAll(const UcxSession::Outcome& outcome, ucp_ep_h peer) {
  if (outcome.op.kind == UcxKind::kEnd) Answer(outcome.op, peer, 0, {});
  for (std::size_t at = 0; at < outcome.bytes.size() && !flooded_; at += kUcxChunkBytes) {
    const auto part =
        outcome.bytes.subspan(at, std::min<std::size_t>(kUcxChunkBytes, outcome.bytes.size() - at));
    Answer(outcome.op, peer, at, {part.begin(), part.end()});
  }
}

void UcxTarget::Answer(const UcxOp& op, ucp_ep_h peer, std::uint64_t offset,
                       std::vector<std::byte> data) {
  Reply* const reply = NewReply(std::move(data));
  if (reply == nullptr) return;
  reply->header = session_.Seal({.chain = op.chain,
                                 .index = op.index,
                                 .offset = offset,
                                 .kind = op.kind,
                                 .refused = session_.refused() ? 1U : 0U},
                                reply->data);
  Send(*reply, peer, kUcxAnswer, reply->header.bytes.data(), reply->header.size);
}

UcxTarget::Reply* UcxTarget::NewReply(std::vector<std::byte> data) {
  const std::uint64_t cost = CostOf(data.size());
  if (cost > kUcxReplyBytes - reply_bytes_) {
    flooded_ = true;
    return nullptr;
  }
  reply_bytes_ += cost;
  Reply& reply = replies_.emplace_back();
  reply.target = this;
  reply.self = std::prev(replies_.end());
  reply.data = std::move(data);
  return &reply;
}

// When an answer is lost, the peer's deadline passes.
void UcxTarget::Send(Reply& reply, ucp_ep_h peer, UcxMessage message, const void* header,
                     std::size_t size) {
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_USER_DATA;
  params.flags = UCP_AM_SEND_FLAG_EAGER;
  params.cb.send = OnSent;
  params.user_data = &reply;
  const ucs_status_ptr_t sent =
      ucp_am_send_nbx(peer, message, header, size, reply.data.data(), reply.data.size(), &params);
  // UCX calls OnSent only for a request that it returns. It returns none when the answer is sent
  // already or cannot be sent.
  if (!UCS_PTR_IS_PTR(sent)) OnSent(nullptr, UCS_OK, &reply);
}

void UcxTarget::OnSent(void* request, ucs_status_t /*status*/, void* reply) {
  const auto& done = *static_cast<Reply*>(reply);
  UcxTarget& target = *done.target;
  target.mutex_.AssertHeld();
  target.reply_bytes_ -= CostOf(done.data.size());
  target.replies_.erase(done.self);
  if (request != nullptr) ucp_request_free(request);
}

absl::StatusOr<std::shared_ptr<UcxMemory>> UcxMemory::Allocate(std::uint64_t length_bytes) {
  void* base = mmap(nullptr, length_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (base == MAP_FAILED) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "NO_MEMORY",
                           "no memory for a region of " + std::to_string(length_bytes) +
                               " bytes: " + std::strerror(errno));
  }
  return std::shared_ptr<UcxMemory>(new UcxMemory(static_cast<std::byte*>(base), length_bytes));
}

UcxMemory::~UcxMemory() { munmap(base_, length_bytes_); }

absl::StatusOr<std::unique_ptr<UcxProgress>> UcxProgress::Start(base::Duration handshake_limit) {
  const int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event wake{.events = EPOLLIN, .data = {.fd = wake_fd}};
  if (epoll_fd < 0 || wake_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &wake) != 0) {
    const int error = errno;
    if (epoll_fd >= 0) close(epoll_fd);
    if (wake_fd >= 0) close(wake_fd);
    return base::MakeError(absl::StatusCode::kResourceExhausted, "UCX_EXHAUSTED",
                           std::string("no descriptors: ") + std::strerror(error));
  }
  return std::unique_ptr<UcxProgress>(new UcxProgress(handshake_limit, epoll_fd, wake_fd));
}

UcxProgress::UcxProgress(base::Duration handshake_limit, int epoll_fd, int wake_fd)
    : handshake_limit_(handshake_limit),
      epoll_fd_(epoll_fd),
      wake_fd_(wake_fd),
      thread_([this] { Run(); }) {}

UcxProgress::~UcxProgress() {
  stopping_.store(true);
  eventfd_write(wake_fd_, 1);
  thread_.join();
  close(epoll_fd_);
  close(wake_fd_);
}

absl::Status UcxProgress::Add(std::shared_ptr<UcxTarget> target) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = target->fd()}};
  const base::MutexLock lock(mutex_);
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, target->fd(), &event) != 0) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "UCX_EXHAUSTED",
                           std::string("epoll_ctl: ") + std::strerror(errno));
  }
  targets_[target->fd()] = target;
  handshakes_.push_back({base::SystemClock().Now() + handshake_limit_, target});
  // A worker's descriptor tells of events only once it has been progressed and armed.
  fresh_.push_back(std::move(target));
  eventfd_write(wake_fd_, 1);
  return absl::OkStatus();
}

void UcxProgress::Remove(UcxTarget& target) {
  {
    // The target leaves the map before Close, which frees the number of its descriptor. In a second
    // call that number may belong to another target, so the pointers are compared.
    const base::MutexLock lock(mutex_);
    const auto at = targets_.find(target.fd());
    if (at != targets_.end() && at->second.get() == &target) {
      epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, target.fd(), nullptr);
      targets_.erase(at);
    }
  }
  target.Close();
}

void UcxProgress::Run() {
  std::vector<std::shared_ptr<UcxTarget>> busy;
  while (!stopping_.load()) {
    // The descriptors of busy targets are not armed. A wait would sleep through what has arrived
    // there.
    Collect(/*wait=*/busy.empty(), busy);
    std::erase_if(busy, [this](const auto& target) { return !Move(target); });
    EndHandshakes();
  }
}

int UcxProgress::NextHandshakeEnd() {
  const base::MutexLock lock(mutex_);
  if (handshakes_.empty()) return -1;
  const base::Duration left = handshakes_.front().end - base::SystemClock().Now();
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<std::int64_t>(milliseconds, 0, 60'000));
}

void UcxProgress::EndHandshakes() {
  std::vector<std::shared_ptr<UcxTarget>> ended;
  {
    const base::MutexLock lock(mutex_);
    const base::MonotonicTime now = base::SystemClock().Now();
    for (; !handshakes_.empty() && handshakes_.front().end <= now; handshakes_.pop_front()) {
      if (auto target = handshakes_.front().target.lock()) ended.push_back(std::move(target));
    }
  }
  for (const auto& target : ended) {
    if (target->welcomed()) continue;
    spdlog::info("op=ucx_close_port reason=NOBODY_CAME");
    Remove(*target);
  }
}

// Returns true when there is more to do for the target.
bool UcxProgress::Move(const std::shared_ptr<UcxTarget>& target) {
  if (target->Progress()) return true;
  if (target->flooded()) {
    ++the_flooded_peers;
    spdlog::warn("op=ucx_close_peer reason=PEER_DOES_NOT_RECEIVE limit_bytes={} peers_closed={}",
                 kUcxReplyBytes, the_flooded_peers.load());
    Remove(*target);
  }
  return false;
}

std::uint64_t UcxProgress::flooded_peers() { return the_flooded_peers; }

void UcxProgress::Collect(bool wait, std::vector<std::shared_ptr<UcxTarget>>& busy) {
  std::array<epoll_event, 64> events;
  const int limit = wait ? NextHandshakeEnd() : 0;
  const int count = epoll_wait(epoll_fd_, events.data(), events.size(), limit);
  const auto add = [&busy](std::shared_ptr<UcxTarget> target) {
    if (std::ranges::find(busy, target) == busy.end()) busy.push_back(std::move(target));
  };
  const base::MutexLock lock(mutex_);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    eventfd_t ignored = 0;
    if (fd == wake_fd_) eventfd_read(wake_fd_, &ignored);
    // The target of the event may be gone, and another one may have its number. A needless look at
    // that one does no harm.
    if (const auto at = targets_.find(fd); at != targets_.end()) add(at->second);
  }
  for (auto& target : std::exchange(fresh_, {})) add(std::move(target));
}

}  // namespace onepiece::fabric
