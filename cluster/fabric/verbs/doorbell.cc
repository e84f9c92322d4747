#include "cluster/fabric/verbs/doorbell.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "cluster/base/mutex.h"
#include "cluster/base/status.h"

namespace onepiece::fabric::verbs {
namespace {

// The receives that are posted. A producer takes one each time that it sees the consumer asleep.
constexpr int kReceives = 4096;
constexpr int kBatch = 32;

}  // namespace

absl::StatusOr<std::shared_ptr<VerbsDoorbell>> VerbsDoorbell::Create(
    std::shared_ptr<Device> device) {
  const int event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (event < 0) return VerbsError("no eventfd for a doorbell", errno);
  std::shared_ptr<VerbsDoorbell> doorbell(new VerbsDoorbell(std::move(device), event));
  ONEPIECE_RETURN_IF_ERROR(doorbell->Make());
  return doorbell;
}

VerbsDoorbell::~VerbsDoorbell() { close(event_); }

absl::Status VerbsDoorbell::Make() {
  const ibv_device_attr& limits = device_->limits();
  const int depth = std::min({kReceives, limits.max_srq_wr, limits.max_cqe});
  channel_.reset(ibv_create_comp_channel(device_->context()));
  if (channel_ == nullptr) return VerbsError("no completion channel for a doorbell", errno);
  // Sleep also wakes up when the eventfd is written. It must not then block on an event that never
  // came.
  fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  // The queue has room for a completion of every receive, so it cannot overflow.
  queue_.reset(ibv_create_cq(device_->context(), depth, nullptr, channel_.get(), 0));
  if (queue_ == nullptr) return VerbsError("no completion queue for a doorbell", errno);
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = static_cast<std::uint32_t>(depth);
  attributes.attr.max_sge = 1;
  receives_.reset(ibv_create_srq(device_->domain(), &attributes));
  if (receives_ == nullptr) return VerbsError("no shared receive queue for a doorbell", errno);
  if (!PostReceives(depth)) return VerbsError("cannot post a doorbell's receives", errno);
  return absl::OkStatus();
}

// A ring carries no bytes, so its receive needs no memory.
bool VerbsDoorbell::PostReceives(int number) const {
  std::array<ibv_recv_wr, kBatch> receives;
  for (int left = number; left > 0; left -= kBatch) {
    const int batch = std::min(left, kBatch);
    receives.fill({});
    for (int i = 0; i + 1 < batch; ++i) receives[i].next = &receives[i + 1];
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_srq_recv(receives_.get(), receives.data(), &bad) != 0) return false;
  }
  return true;
}

// Counts the rings that have arrived and gives their receives back.
void VerbsDoorbell::Collect() const {
  std::array<ibv_wc, kBatch> completions;
  for (;;) {
    const int number = ibv_poll_cq(queue_.get(), kBatch, completions.data());
    if (number <= 0) return;
    // A receive that a broken connection gave back counts too: an early wake-up is harmless.
    count_ += static_cast<std::uint32_t>(number);
    PostReceives(number);
  }
}

std::uint32_t VerbsDoorbell::count() const {
  const base::MutexLock lock(mutex_);
  Collect();
  return count_;
}

void VerbsDoorbell::Ring() {
  const base::MutexLock lock(mutex_);
  ++count_;
  changed_.NotifyAll();
  const std::uint64_t one = 1;
  // The write fails only when the counter is full, and then the descriptor is readable already.
  [[maybe_unused]] const ssize_t written = write(event_, &one, sizeof one);
}

void VerbsDoorbell::Wait(std::uint32_t seen, base::Duration limit) {
  base::Clock& real = base::SystemClock();
  const base::MonotonicTime until = real.Now() + limit;
  base::MutexLock lock(mutex_);
  for (;;) {
    Collect();
    if (count_ != seen) return;
    const base::Duration left = until - real.Now();
    if (left <= base::Duration::zero()) return;
    if (somebody_sleeps_) {
      changed_.WaitFor(lock, left);
      continue;
    }
    ibv_req_notify_cq(queue_.get(), 0);
    // A ring that arrived before the request makes no event.
    Collect();
    if (count_ != seen) return;
    somebody_sleeps_ = true;
    lock.Unlock();
    Sleep(left);
    lock.Lock();
    somebody_sleeps_ = false;
    Collect();
    changed_.NotifyAll();  // The count changed, and the descriptors need another sleeper.
  }
}

void VerbsDoorbell::Sleep(base::Duration limit) {
  std::array<pollfd, 2> waited{{{.fd = channel_->fd, .events = POLLIN, .revents = 0},
                                {.fd = event_, .events = POLLIN, .revents = 0}}};
  const std::chrono::seconds whole = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec relative{.tv_sec = whole.count(), .tv_nsec = (limit - whole).count()};
  if (ppoll(waited.data(), waited.size(), &relative, nullptr) <= 0) return;
  std::uint64_t rings = 0;
  [[maybe_unused]] const ssize_t read_bytes = read(event_, &rings, sizeof rings);
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  // ibv_destroy_cq would wait forever for an event that nobody acknowledged.
  while (ibv_get_cq_event(channel_.get(), &queue, &context) == 0) ibv_ack_cq_events(queue, 1);
}

}  // namespace onepiece::fabric::verbs
