// boost::interprocess::message_queue.
#include <boost/interprocess/ipc/message_queue.hpp>
#include <optional>

#include "tests/bench/port.h"

namespace onepiece::bench {
namespace {

namespace ipc = boost::interprocess;

class BoostPort final : public Port {
 public:
  explicit BoostPort(const Link& link) : forth_(link.name + ".forth"), back_(link.name + ".back") {
    Control& control = *link.control;
    const std::size_t depth = QueueDepth(link.message_bytes);
    const bool receives_forth = link.role == Role::kConsumer || link.role == Role::kPong;
    if (receives_forth) {
      owner_ = true;
      forth_queue_.emplace(ipc::create_only, forth_.c_str(), depth, link.message_bytes);
      back_queue_.emplace(ipc::create_only, back_.c_str(), 4, link.message_bytes);
      control.Publish(0, "created");
    } else {
      (void)control.Await(0);
      forth_queue_.emplace(ipc::open_only, forth_.c_str());
      back_queue_.emplace(ipc::open_only, back_.c_str());
    }
    in_ = receives_forth ? &*forth_queue_ : &*back_queue_;
    out_ = receives_forth ? &*back_queue_ : &*forth_queue_;
  }

  ~BoostPort() override {
    if (!owner_) return;
    ipc::message_queue::remove(forth_.c_str());
    ipc::message_queue::remove(back_.c_str());
  }

  void Send(std::span<const std::byte> message) override {
    out_->send(message.data(), message.size(), 0);
  }

  std::size_t Receive(std::span<std::byte> into) override {
    std::size_t size = 0;
    unsigned priority = 0;
    in_->receive(into.data(), into.size(), size, priority);
    return size;
  }

 private:
  const std::string forth_;
  const std::string back_;
  bool owner_ = false;
  std::optional<ipc::message_queue> forth_queue_;
  std::optional<ipc::message_queue> back_queue_;
  ipc::message_queue* in_ = nullptr;
  ipc::message_queue* out_ = nullptr;
};

}  // namespace

std::unique_ptr<Port> OpenBoostPort(const Link& link) { return std::make_unique<BoostPort>(link); }

}  // namespace onepiece::bench
