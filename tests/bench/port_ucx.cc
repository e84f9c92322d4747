// UCX tag matching over its shared memory transports.
#include <sched.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "tests/bench/port.h"

namespace onepiece::bench {
namespace {

constexpr ucp_tag_t kTag = 1;
constexpr std::size_t kWindowBudget = std::size_t{64} << 20;

void Check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) Die(std::string("UCX: ") + what + ": " + ucs_status_string(status));
}

// A window of messages is under way in both directions, as in ucx_perftest.
class UcxPort final : public Port {
 public:
  explicit UcxPort(const Link& link)
      : polite_(link.producers > 1),
        window_(std::clamp<std::size_t>(kWindowBudget / (link.message_bytes + 1), 2, 32)) {
    OpenWorker();
    Control& control = *link.control;
    constexpr std::size_t kForth = 0;
    constexpr std::size_t kBack = 1;
    const bool first = link.role == Role::kConsumer || link.role == Role::kPong;
    if (first || link.role == Role::kPing) {
      PostReceives(link.message_bytes);
      PublishAddress(control, first ? kForth : kBack);
    }
    if (link.role != Role::kConsumer) Connect(control.Await(first ? kBack : kForth));
    for (int i = 0; i < link.producers; ++i) {
      Control::Slot& bye = control.slots[kByes + static_cast<std::size_t>(i)];
      if (first) byes_.push_back(&bye);
      if (!first && i == link.index) said_ = &bye;
    }
  }

  ~UcxPort() override {
    // A sender of a long message waits for answers that only our progress calls give.
    for (const Control::Slot* bye : byes_) {
      while (bye->written.Get() == 0) ucp_worker_progress(worker_);
    }
    for (Receive_& receive : receives_) {
      if (receive.request == nullptr) continue;
      ucp_request_cancel(worker_, receive.request);
      ucp_request_free(receive.request);
    }
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }
  UcxPort(const UcxPort&) = delete;
  UcxPort& operator=(const UcxPort&) = delete;

  void Send(std::span<const std::byte> message) override {
    ReapSends(window_ - 1);
    ucp_request_param_t parameters{};
    void* request = ucp_tag_send_nbx(endpoint_, message.data(), message.size(), kTag, &parameters);
    if (UCS_PTR_IS_ERR(request)) Check(UCS_PTR_STATUS(request), "send");
    if (request != nullptr) sends_.push_back(request);
  }

  std::size_t Receive(std::span<std::byte> into) override {
    Receive_& oldest = receives_[next_];
    std::size_t size = oldest.bytes;
    if (oldest.request != nullptr) {
      ucp_tag_recv_info_t info;
      ucs_status_t status = UCS_INPROGRESS;
      while ((status = ucp_tag_recv_request_test(oldest.request, &info)) == UCS_INPROGRESS) {
        Progress();
      }
      Check(status, "receive");
      size = info.length;
      ucp_request_free(oldest.request);
    }
    std::memcpy(into.data(), oldest.buffer.data(), std::min<std::size_t>(size, kSmall));
    Post(oldest);
    next_ = (next_ + 1) % receives_.size();
    return size;
  }

  void Flush() override {
    ReapSends(0);
    ucp_request_param_t parameters{};
    void* request = ucp_worker_flush_nbx(worker_, &parameters);
    if (UCS_PTR_IS_PTR(request)) {
      while (ucp_request_check_status(request) == UCS_INPROGRESS) Progress();
      ucp_request_free(request);
    }
    if (said_ != nullptr) said_->written.Set();
  }

 private:
  static constexpr std::size_t kSmall = 4096;
  static constexpr std::size_t kByes = 8;  // Slots of the control block.

  struct Receive_ {
    std::vector<std::byte> buffer;
    void* request = nullptr;  // Null if it is complete already, with `bytes`.
    std::size_t bytes = 0;
    ucp_tag_recv_info_t info{};
  };

  void OpenWorker() {
    ucp_config_t* config = nullptr;
    Check(ucp_config_read(nullptr, nullptr, &config), "configuration");
    Check(ucp_config_modify(config, "TLS", "shm,self"), "choice of transports");
    ucp_params_t parameters{};
    parameters.field_mask = UCP_PARAM_FIELD_FEATURES;
    parameters.features = UCP_FEATURE_TAG;
    Check(ucp_init(&parameters, config, &context_), "start");
    ucp_config_release(config);
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SINGLE;
    Check(ucp_worker_create(context_, &worker, &worker_), "worker");
  }

  void PublishAddress(Control& control, std::size_t slot) {
    ucp_address_t* address = nullptr;
    std::size_t length = 0;
    Check(ucp_worker_get_address(worker_, &address, &length), "address");
    control.Publish(slot, {reinterpret_cast<const char*>(address), length});
    ucp_worker_release_address(worker_, address);
  }

  void Connect(const std::string& address) {
    ucp_ep_params_t parameters{};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
    Check(ucp_ep_create(worker_, &parameters, &endpoint_), "connect");
  }

  void PostReceives(std::size_t message_bytes) {
    receives_.resize(window_);
    for (Receive_& receive : receives_) {
      receive.buffer.resize(std::max(message_bytes, sizeof(std::uint64_t)));
      Post(receive);
    }
  }

  void Post(Receive_& receive) {
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO;
    parameters.recv_info.tag_info = &receive.info;
    receive.request = ucp_tag_recv_nbx(worker_, receive.buffer.data(), receive.buffer.size(), kTag,
                                       ~ucp_tag_t{0}, &parameters);
    if (UCS_PTR_IS_ERR(receive.request)) Check(UCS_PTR_STATUS(receive.request), "receive");
    if (receive.request == nullptr) receive.bytes = receive.info.length;
  }

  void ReapSends(std::size_t allowed) {
    while (sends_.size() > allowed) {
      if (ucp_request_check_status(sends_.front()) == UCS_INPROGRESS) {
        Progress();
        continue;
      }
      ucp_request_free(sends_.front());
      sends_.pop_front();
    }
  }

  void Progress() {
    if (ucp_worker_progress(worker_) == 0 && polite_) sched_yield();
  }

  const bool polite_;  // Several processes share a core.
  const std::size_t window_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  std::deque<void*> sends_;
  std::vector<const Control::Slot*> byes_;  // The good-byes of our senders.
  Control::Slot* said_ = nullptr;           // Ours.
  std::vector<Receive_> receives_;
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Port> OpenUcxPort(const Link& link) { return std::make_unique<UcxPort>(link); }

}  // namespace onepiece::bench
