#include "cluster/fabric/ucx/ucx_target.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "cluster/base/status.h"

namespace onepiece::fabric {
namespace {

// How long one busy peer may keep the others waiting.
constexpr int kProgressSteps = 64;

constexpr std::array<UcxVerdict, 4> kVerdicts = {
    UcxVerdict{}, UcxVerdict::kWelcome, UcxVerdict::kWrongVersion, UcxVerdict::kWrongRegion};

void FreeRequest(void* request, ucs_status_t /*status*/, void* /*user_data*/) {
  ucp_request_free(request);
}

// `header` lives for ever. If the answer is lost, the peer's deadline says so.
void Answer(const ucp_am_recv_param_t& to, unsigned message, const void* header, std::size_t size) {
  if ((to.recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return;
  ucp_request_param_t send{};
  send.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS;
  send.flags = UCP_AM_SEND_FLAG_EAGER;
  send.cb.send = FreeRequest;
  (void)ucp_am_send_nbx(to.reply_ep, message, header, size, nullptr, 0, &send);
}

}  // namespace

void UcxDoorbell::Wait(std::uint32_t seen, base::Duration limit) {
  std::unique_lock lock(mutex_);
  rung_.wait_for(lock, limit, [&] { return count_.load() != seen; });
}

void UcxDoorbell::Ring() {
  {
    const std::lock_guard lock(mutex_);
    count_.fetch_add(1);
  }
  rung_.notify_all();
}

absl::StatusOr<std::shared_ptr<UcxTarget>> UcxTarget::Open(std::shared_ptr<UcxContext> context,
                                                           std::shared_ptr<UcxMemory> memory,
                                                           std::shared_ptr<UcxDoorbell> doorbell,
                                                           UcxHello expected) {
  ONEPIECE_ASSIGN_OR_RETURN(auto worker, UcxWorker::Create(std::move(context)));
  ONEPIECE_ASSIGN_OR_RETURN(std::string address, worker->Address());
  return std::shared_ptr<UcxTarget>(new UcxTarget(std::move(worker), std::move(memory),
                                                  std::move(doorbell), std::move(expected),
                                                  std::move(address)));
}

UcxTarget::UcxTarget(std::unique_ptr<UcxWorker> worker, std::shared_ptr<UcxMemory> memory,
                     std::shared_ptr<UcxDoorbell> doorbell, UcxHello expected,
                     std::string worker_address)
    : memory_(std::move(memory)),
      doorbell_(std::move(doorbell)),
      expected_(std::move(expected)),
      worker_address_(std::move(worker_address)),
      fd_(worker->fd()),
      worker_(std::move(worker)) {
  worker_->Handle(kUcxHello, OnHello, this);
  worker_->Handle(kUcxNotify, OnNotify, this);
}

bool UcxTarget::Progress() {
  const std::lock_guard lock(mutex_);
  for (int step = 0; worker_ != nullptr && step < kProgressSteps; ++step) {
    if (!worker_->Progress()) return !worker_->Arm();
  }
  return worker_ != nullptr;
}

void UcxTarget::Close() {
  const std::lock_guard lock(mutex_);
  worker_.reset();
}

// With mutex_ held: handlers run inside Progress.
ucs_status_t UcxTarget::OnHello(void* self, const void* header, std::size_t header_length,
                                void* /*data*/, std::size_t /*length*/,
                                const ucp_am_recv_param_t* param) {
  const auto verdict = static_cast<UcxTarget*>(self)->Judge(
      UcxHello::Parse({static_cast<const char*>(header), header_length}));
  Answer(*param, kUcxVerdict, &kVerdicts[static_cast<std::size_t>(verdict)], sizeof verdict);
  return UCS_OK;
}

UcxVerdict UcxTarget::Judge(const absl::StatusOr<UcxHello>& hello) {
  if (!hello.ok() || hello->version != expected_.version) return UcxVerdict::kWrongVersion;
  const bool knows = hello->key == expected_.key && hello->address == expected_.address &&
                     hello->length_bytes == expected_.length_bytes;
  if (!knows || welcomed_) return UcxVerdict::kWrongRegion;
  welcomed_ = true;
  return UcxVerdict::kWelcome;
}

ucs_status_t UcxTarget::OnNotify(void* self, const void* /*header*/, std::size_t /*header_length*/,
                                 void* /*data*/, std::size_t /*length*/,
                                 const ucp_am_recv_param_t* param) {
  const auto& target = *static_cast<UcxTarget*>(self);
  if (target.welcomed_ && target.doorbell_ != nullptr) target.doorbell_->Ring();
  Answer(*param, kUcxRung, nullptr, 0);
  return UCS_OK;
}

absl::StatusOr<std::unique_ptr<UcxProgress>> UcxProgress::Start() {
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
  return std::unique_ptr<UcxProgress>(new UcxProgress(epoll_fd, wake_fd));
}

UcxProgress::UcxProgress(int epoll_fd, int wake_fd)
    : epoll_fd_(epoll_fd), wake_fd_(wake_fd), thread_([this] { Run(); }) {}

UcxProgress::~UcxProgress() {
  stopping_.store(true);
  eventfd_write(wake_fd_, 1);
  thread_.join();
  close(epoll_fd_);
  close(wake_fd_);
}

absl::Status UcxProgress::Add(std::shared_ptr<UcxTarget> target) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = target->fd()}};
  const std::lock_guard lock(mutex_);
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, target->fd(), &event) != 0) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "UCX_EXHAUSTED",
                           std::string("epoll_ctl: ") + std::strerror(errno));
  }
  targets_[target->fd()] = target;
  // A worker's descriptor tells of events only once it has been progressed and armed.
  fresh_.push_back(std::move(target));
  eventfd_write(wake_fd_, 1);
  return absl::OkStatus();
}

void UcxProgress::Remove(UcxTarget& target) {
  {
    const std::lock_guard lock(mutex_);
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
    Collect(/*wait=*/busy.empty(), busy);
    std::erase_if(busy, [](const auto& target) { return !target->Progress(); });
  }
}

void UcxProgress::Collect(bool wait, std::vector<std::shared_ptr<UcxTarget>>& busy) {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_fd_, events.data(), events.size(), wait ? -1 : 0);
  const auto add = [&busy](std::shared_ptr<UcxTarget> target) {
    if (std::ranges::find(busy, target) == busy.end()) busy.push_back(std::move(target));
  };
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    eventfd_t ignored = 0;
    if (fd == wake_fd_) eventfd_read(wake_fd_, &ignored);
    if (const auto at = targets_.find(fd); at != targets_.end()) add(at->second);
  }
  for (auto& target : std::exchange(fresh_, {})) add(std::move(target));
}

}  // namespace onepiece::fabric
