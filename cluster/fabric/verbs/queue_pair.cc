#include "cluster/fabric/verbs/queue_pair.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"

namespace onepiece::fabric::verbs {
namespace {

constexpr std::uint32_t k24Bits = 0xffffff;
constexpr int kMostReadsInFlight = 64;
// How long a wait polls before it sleeps: longer than most chains take on hardware, and shorter
// than what a sleep costs.
constexpr base::Duration kSpin = std::chrono::microseconds(20);
// How often a sleeper looks at a clock that may be moved by hand.
constexpr base::Duration kLongestSleep = std::chrono::milliseconds(10);
// Flushing a broken queue pair takes microseconds. One that takes longer is destroyed all the same,
// which waits for the device.
constexpr base::Duration kDrainLimit = std::chrono::milliseconds(50);
constexpr std::uint64_t kDrainMark = ~std::uint64_t{0};
// The device sends a packet again after kResend, which counts in powers of two of 4.096 us, and
// gives the peer up after kResends of them.
constexpr base::Duration kResend = std::chrono::milliseconds(67);
constexpr std::uint8_t kResends = 6;  // Soft-RoCE takes 7 as forever.
// The device retries a peer that is out of receives without a limit of its own, so until the
// chain's deadline. The peer posts receives as soon as it looks at its doorbell.
constexpr std::uint8_t kResendsNotReady = 7;
constexpr std::uint8_t kNotReadyTimer = 12;  // 0.64 ms

std::uint8_t ResendExponent() {
  const double steps =
      std::chrono::duration<double, std::micro>(base::Scaled(kResend)).count() / 4.096;
  return static_cast<std::uint8_t>(std::clamp(std::lround(std::log2(steps)), 8L, 21L));
}

ibv_ah_attr PathTo(const Device& device, const Endpoint& remote) {
  ibv_ah_attr path{};
  path.port_num = device.port_number();
  path.dlid = remote.lid;
  const bool ethernet = device.port().link_layer == IBV_LINK_LAYER_ETHERNET;
  // InfiniBand within one subnet is routed by LID alone.
  if (ethernet || remote.gid.global.subnet_prefix != device.gid().global.subnet_prefix) {
    path.is_global = 1;
    path.grh.dgid = remote.gid;
    path.grh.sgid_index = device.gid_index();
    path.grh.hop_limit = 64;
  }
  return path;
}

}  // namespace

void Endpoint::AppendTo(std::string& out) const {
  AppendText(out, {reinterpret_cast<const char*>(gid.raw), sizeof gid.raw});
  for (const std::uint64_t number :
       {std::uint64_t{lid}, std::uint64_t{queue_pair}, std::uint64_t{psn},
        static_cast<std::uint64_t>(mtu), std::uint64_t{link_layer}, std::uint64_t{reads_out},
        std::uint64_t{reads_in}}) {
    AppendU64(out, number);
  }
}

std::optional<Endpoint> Endpoint::Read(WireReader& reader) {
  Endpoint endpoint;
  const std::string gid = reader.Text(sizeof endpoint.gid.raw);
  const std::uint64_t lid = reader.U64();
  const std::uint64_t queue_pair = reader.U64();
  const std::uint64_t psn = reader.U64();
  const std::uint64_t mtu = reader.U64();
  const std::uint64_t link_layer = reader.U64();
  const std::uint64_t reads_out = reader.U64();
  const std::uint64_t reads_in = reader.U64();
  if (!reader.ok() || gid.size() != sizeof endpoint.gid.raw || lid > 0xffff ||
      queue_pair > k24Bits || psn > k24Bits || mtu < IBV_MTU_256 || mtu > IBV_MTU_4096 ||
      link_layer > 0xff || reads_out == 0 || reads_out > 0xff || reads_in == 0 || reads_in > 0xff) {
    return std::nullopt;
  }
  std::memcpy(endpoint.gid.raw, gid.data(), gid.size());
  endpoint.lid = static_cast<std::uint16_t>(lid);
  endpoint.queue_pair = static_cast<std::uint32_t>(queue_pair);
  endpoint.psn = static_cast<std::uint32_t>(psn);
  endpoint.mtu = static_cast<ibv_mtu>(mtu);
  endpoint.link_layer = static_cast<std::uint8_t>(link_layer);
  endpoint.reads_out = static_cast<std::uint8_t>(reads_out);
  endpoint.reads_in = static_cast<std::uint8_t>(reads_in);
  return endpoint;
}

absl::StatusOr<std::unique_ptr<CompletionQueue>> CompletionQueue::Create(Device& device, int depth,
                                                                         Waiting waiting) {
  Handle<ibv_comp_channel> channel;
  if (waiting == Waiting::kSleeps) {
    channel.reset(ibv_create_comp_channel(device.context()));
    if (channel == nullptr) return VerbsError("no completion channel", errno);
    // A wake-up without an event must not block.
    fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  }
  Handle<ibv_cq> queue(ibv_create_cq(device.context(), depth, nullptr, channel.get(), 0));
  if (queue == nullptr) return VerbsError("no completion queue", errno);
  return std::unique_ptr<CompletionQueue>(
      new CompletionQueue(std::move(channel), std::move(queue)));
}

std::optional<ibv_wc> CompletionQueue::Poll() {
  ibv_wc completion{};
  if (ibv_poll_cq(queue_.get(), 1, &completion) == 1) return completion;
  return std::nullopt;
}

void CompletionQueue::Sleep(base::Duration limit) {
  pollfd waited{.fd = channel_->fd, .events = POLLIN, .revents = 0};
  const auto whole = std::chrono::ceil<std::chrono::milliseconds>(limit);
  if (poll(&waited, 1, static_cast<int>(whole.count())) != 1) return;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  // ibv_destroy_cq would wait forever for an event that nobody acknowledged.
  while (ibv_get_cq_event(channel_.get(), &queue, &context) == 0) ibv_ack_cq_events(queue, 1);
}

std::optional<ibv_wc> CompletionQueue::Next(base::Clock& clock, base::MonotonicTime deadline) {
  base::Clock& real = base::SystemClock();
  const base::MonotonicTime start = real.Now();
  const base::Duration left = deadline - clock.Now();
  // A deadline that never comes (max) must not overflow.
  const base::MonotonicTime real_deadline =
      start + std::min(left, base::MonotonicTime::max() - start);
  for (;;) {
    if (auto completion = Poll()) return completion;
    const base::MonotonicTime now = real.Now();
    // The last look is for a thread that lost the processor after Poll: its completion may have
    // come in time.
    if (now >= real_deadline || clock.Now() >= deadline) return Poll();
    if (now < start + kSpin) continue;
    if (channel_ == nullptr) {
      std::this_thread::yield();
      continue;
    }
    ibv_req_notify_cq(queue_.get(), 0);
    // A completion that came before the request makes no event.
    if (auto completion = Poll()) return completion;
    Sleep(std::min(real_deadline - now, kLongestSleep));
  }
}

absl::StatusOr<std::unique_ptr<QueuePair>> QueuePair::Create(std::shared_ptr<Device> device,
                                                             const QueuePairOptions& options) {
  // An error completes every request, even those that asked for no completion.
  ONEPIECE_ASSIGN_OR_RETURN(
      auto completions,
      CompletionQueue::Create(*device, static_cast<int>(options.send_depth) + 2, options.waiting));
  ibv_qp_init_attr attributes{};
  attributes.qp_type = IBV_QPT_RC;
  attributes.send_cq = completions->get();
  attributes.recv_cq =
      options.receive_queue != nullptr ? options.receive_queue : completions->get();
  attributes.srq = options.receives;
  // Asking for more than the device has is an error, so this asks for less; the channel takes what
  // it gets.
  const auto depth = std::min<std::uint32_t>(
      options.send_depth + 1, static_cast<std::uint32_t>(device->limits().max_qp_wr));
  attributes.cap = {.max_send_wr = depth,  // One of them is the mark that Drain posts.
                    .max_recv_wr = options.receives != nullptr ? 0U : 1U,
                    .max_send_sge = std::min<std::uint32_t>(
                        options.pieces, static_cast<std::uint32_t>(device->limits().max_sge)),
                    .max_recv_sge = options.receives != nullptr ? 0U : 1U,
                    .max_inline_data = options.inline_bytes};
  Handle<ibv_qp> pair(ibv_create_qp(options.domain, &attributes));
  // A device may refuse the wish for inline bytes instead of giving fewer.
  if (pair == nullptr && options.inline_bytes > 0) {
    attributes.cap.max_inline_data = 0;
    pair.reset(ibv_create_qp(options.domain, &attributes));
  }
  if (pair == nullptr) return VerbsError("no queue pair", errno);
  // The number is random, so that a late packet of an earlier connection does not fit here.
  const auto psn = static_cast<std::uint32_t>(base::RandomU64()) & k24Bits;
  return std::unique_ptr<QueuePair>(new QueuePair(std::move(device), std::move(completions),
                                                  std::move(pair), attributes.cap, psn));
}

Endpoint QueuePair::local() const {
  const auto bounded = [](int value) {
    return static_cast<std::uint8_t>(std::clamp(value, 1, kMostReadsInFlight));
  };
  return {.gid = device_->gid(),
          .lid = device_->port().lid,
          .queue_pair = pair_->qp_num,
          .psn = psn_,
          .mtu = device_->port().active_mtu,
          .link_layer = device_->port().link_layer,
          .reads_out = bounded(device_->limits().max_qp_init_rd_atom),
          .reads_in = bounded(device_->limits().max_qp_rd_atom)};
}

absl::Status QueuePair::Modify(ibv_qp_attr& attributes, int mask, const char* what) {
  const int error = ibv_modify_qp(pair_.get(), &attributes, mask);
  return error == 0 ? absl::OkStatus() : VerbsError(std::string("queue pair: ") + what, error);
}

absl::Status QueuePair::Connect(const Endpoint& remote, int access) {
  const Endpoint own = local();
  if (remote.link_layer != own.link_layer) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "WRONG_FABRIC",
                           "one end is on InfiniBand, the other on Ethernet");
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = device_->port_number();
  attributes.qp_access_flags = static_cast<unsigned>(access);
  ONEPIECE_RETURN_IF_ERROR(Modify(
      attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT"));
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = std::min(own.mtu, remote.mtu);
  attributes.dest_qp_num = remote.queue_pair;
  attributes.rq_psn = remote.psn;
  attributes.max_dest_rd_atomic = std::min(own.reads_in, remote.reads_out);
  attributes.min_rnr_timer = kNotReadyTimer;
  attributes.ah_attr = PathTo(*device_, remote);
  const int error =
      ibv_modify_qp(pair_.get(), &attributes,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) {
    // On Ethernet the kernel has just looked for the peer's hardware address.
    return base::MakeError(absl::StatusCode::kUnavailable, "PEER_UNREACHABLE",
                           "no way from " + GidText(own.gid) + " to " + GidText(remote.gid) + ": " +
                               std::strerror(error));
  }
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = psn_;
  attributes.timeout = ResendExponent();
  attributes.retry_cnt = kResends;
  attributes.rnr_retry = kResendsNotReady;
  attributes.max_rd_atomic = std::min(own.reads_out, remote.reads_in);
  return Modify(attributes,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                "RTS");
}

absl::Status QueuePair::Post(ibv_send_wr* first) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(pair_.get(), first, &bad);
  return error == 0 ? absl::OkStatus() : VerbsError("cannot post", error);
}

absl::Status QueuePair::ClearAccess() {
  ibv_qp_attr attributes{};
  return Modify(attributes, IBV_QP_ACCESS_FLAGS, "clearing the access flags");
}

void QueuePair::Stop() {
  if (std::exchange(stopped_, true)) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  if (Modify(attributes, IBV_QP_STATE, "ERR").ok()) Drain();
}

bool QueuePair::Destroy() {
  Stop();
  if (pair_ == nullptr) return true;
  if (ibv_destroy_qp(pair_.get()) != 0) return false;
  (void)pair_.release();
  return true;
}

// Requests complete in order: once the mark is back, so is everything before it.
void QueuePair::Drain() {
  ibv_send_wr mark{};
  mark.wr_id = kDrainMark;
  mark.opcode = IBV_WR_RDMA_WRITE;
  mark.send_flags = IBV_SEND_SIGNALED;
  // In the error state the device sends nothing. It flushes the mark like the requests before it.
  if (!Post(&mark).ok()) return;
  base::Clock& real = base::SystemClock();
  const base::MonotonicTime limit = real.Now() + kDrainLimit;
  while (const auto completion = completions_->Next(real, limit)) {
    if (completion->wr_id == kDrainMark) return;
  }
}

}  // namespace onepiece::fabric::verbs
