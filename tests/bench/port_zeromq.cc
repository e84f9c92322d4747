// ZeroMQ PUSH/PULL over ipc.
#include <unistd.h>

#include <cstring>
#include <zmq.hpp>

#include "tests/bench/port.h"

namespace onepiece::bench {
namespace {

// ZeroMQ borrows messages of this size or more instead of copying them, as an application that
// cares would do.
constexpr std::size_t kLendBytes = 4096;

class ZeroMqPort final : public Port {
 public:
  explicit ZeroMqPort(const Link& link) : control_(link.control) {
    const std::string to_consumer = "ipc:///tmp/" + link.name + ".zmq";
    const std::string to_ping = "ipc:///tmp/" + link.name + ".back.zmq";
    const int depth = static_cast<int>(QueueDepth(link.message_bytes));
    if (link.role == Role::kConsumer || link.role == Role::kPong) {
      Bind(to_consumer, depth);
    } else {
      if (link.role == Role::kPing) Bind(to_ping, depth);
      Connect(to_consumer, depth);
    }
    if (link.role == Role::kPong) Connect(to_ping, depth);
  }

  ~ZeroMqPort() override {
    if (!bound_.empty()) unlink(bound_.c_str());
  }

  void Send(std::span<const std::byte> message) override {
    if (message.size() < kLendBytes) {
      zmq::message_t copy(message.data(), message.size());
      push_.send(copy, zmq::send_flags::none);
      return;
    }
    zmq::message_t lent(
        const_cast<std::byte*>(message.data()), message.size(), [](void*, void*) {}, nullptr);
    push_.send(lent, zmq::send_flags::none);
  }

  std::size_t Receive(std::span<std::byte> into) override {
    // ZeroMQ's memory is private to this process, so nothing is copied out of it.
    if (!pull_.recv(message_, zmq::recv_flags::none)) Die("ZeroMQ brings no message");
    if (message_.size() < kLendBytes) std::memcpy(into.data(), message_.data(), message_.size());
    return message_.size();
  }

  void Flush() override {
    // ZeroMQ loses the last messages of a socket that closes while its receiver's queue is full,
    // whatever its linger period is (libzmq issue 4660).
    control_->drained.Await();
    push_.close();
    pull_.close();
    context_.close();
  }

 private:
  void Bind(const std::string& address, int depth) {
    pull_ = zmq::socket_t(context_, zmq::socket_type::pull);
    pull_.set(zmq::sockopt::rcvhwm, depth);
    pull_.bind(address);
    bound_ = address.substr(std::string("ipc://").size());
  }
  void Connect(const std::string& address, int depth) {
    push_ = zmq::socket_t(context_, zmq::socket_type::push);
    push_.set(zmq::sockopt::sndhwm, depth);
    push_.connect(address);
  }

  const Control* control_;
  zmq::context_t context_;
  zmq::socket_t pull_;
  zmq::socket_t push_;
  zmq::message_t message_;
  std::string bound_;
};

}  // namespace

std::unique_ptr<Port> OpenZeroMqPort(const Link& link) {
  return std::make_unique<ZeroMqPort>(link);
}

}  // namespace onepiece::bench
