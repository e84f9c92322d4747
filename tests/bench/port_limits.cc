// The limits of the machine: one copy into shared memory, one cache line back and forth, and one
// bare futex.
#include <fcntl.h>
#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/bench/port.h"

namespace onepiece::bench {
namespace {

constexpr std::uint64_t kPlaces = 4;  // As many messages as the ring of this size holds.

/// The producer copies into shared memory and publishes with one store. The consumer notices and
/// does not touch the bytes. There is one producer.
class MemcpyPort final : public Port {
 public:
  explicit MemcpyPort(const Link& link)
      : lines_(link.control->lines), place_bytes_(link.message_bytes), name_("/" + link.name) {
    const bool creates = link.role == Role::kConsumer;
    if (!creates) (void)link.control->Await(0);
    const int file = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const std::size_t bytes = kPlaces * place_bytes_;
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) Die("no shared memory");
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    close(file);
    if (memory == MAP_FAILED) Die("no shared memory");
    memory_ = static_cast<std::byte*>(memory);
    if (creates) link.control->Publish(0, "created");
    if (!creates) shm_unlink(name_.c_str());
  }
  ~MemcpyPort() override { munmap(memory_, kPlaces * place_bytes_); }

  void Send(std::span<const std::byte> message) override {
    while (sent_ - lines_[1].word.load(std::memory_order_acquire) >= kPlaces) _mm_pause();
    std::memcpy(memory_ + sent_ % kPlaces * place_bytes_, message.data(), message.size());
    lines_[0].word.store(++sent_, std::memory_order_release);
  }

  std::size_t Receive(std::span<std::byte> into) override {
    while (lines_[0].word.load(std::memory_order_acquire) <= received_) _mm_pause();
    // The first word alone marks the end.
    std::memcpy(into.data(), memory_ + received_ % kPlaces * place_bytes_, sizeof(std::uint64_t));
    lines_[1].word.store(++received_, std::memory_order_release);
    return place_bytes_;
  }

 private:
  std::array<Control::Line, 2>& lines_;
  const std::size_t place_bytes_;
  const std::string name_;
  std::byte* memory_ = nullptr;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

/// One word in a line of its own for each direction. Carries the first word of each message.
class PingPongPort final : public Port {
 public:
  explicit PingPongPort(const Link& link)
      : in_(link.control->lines[link.role == Role::kPong ? 0 : 1].word),
        out_(link.control->lines[link.role == Role::kPong ? 1 : 0].word) {}

  void Send(std::span<const std::byte> message) override {
    std::uint64_t word = 0;
    std::memcpy(&word, message.data(), sizeof(word));
    ++turn_;
    // The high half has the turn, so that each message differs from the one before.
    out_.store(turn_ << 32 | (word & 0xffffffff), std::memory_order_release);
  }

  std::size_t Receive(std::span<std::byte> into) override {
    std::uint64_t word = seen_;
    while (word == seen_) word = in_.load(std::memory_order_acquire);
    seen_ = word;
    const std::uint64_t low = word & 0xffffffff;
    std::memcpy(into.data(), &low, sizeof(low));
    return sizeof(low);
  }

 private:
  std::atomic<std::uint64_t>& in_;
  std::atomic<std::uint64_t>& out_;
  std::uint64_t turn_ = 0;
  std::uint64_t seen_ = 0;
};

/// A bare futex: the receiver always sleeps. Carries the first word of each message.
class FutexPort final : public Port {
 public:
  explicit FutexPort(const Link& link)
      : bell_(link.control->doorbell), word_(link.control->lines[0].word) {}

  void Send(std::span<const std::byte> message) override {
    std::uint64_t word = 0;
    std::memcpy(&word, message.data(), sizeof(word));
    word_.store(word);
    bell_.Set(bell_.Get() + 1);
  }

  std::size_t Receive(std::span<std::byte> into) override {
    while (bell_.Get() == seen_) bell_.SleepWhile(seen_, kLongest);
    ++seen_;
    const std::uint64_t word = word_.load();
    std::memcpy(into.data(), &word, sizeof(word));
    return sizeof(word);
  }

 private:
  static constexpr Nanoseconds kLongest = std::chrono::milliseconds(100);
  SharedFlag& bell_;
  std::atomic<std::uint64_t>& word_;
  std::uint32_t seen_ = 0;
};

}  // namespace

std::unique_ptr<Port> OpenMemcpyPort(const Link& link) {
  return std::make_unique<MemcpyPort>(link);
}

std::unique_ptr<Port> OpenPingPongPort(const Link& link) {
  return std::make_unique<PingPongPort>(link);
}

std::unique_ptr<Port> OpenFutexPort(const Link& link) { return std::make_unique<FutexPort>(link); }

std::unique_ptr<Port> OpenPort(const std::string& name, const Link& link) {
  if (name == "ring") return OpenRingPort(link);
  if (name == "zeromq") return OpenZeroMqPort(link);
  if (name == "ucx") return OpenUcxPort(link);
  if (name == "grpc") return OpenGrpcPort(link);
  if (name == "boost") return OpenBoostPort(link);
  if (name == "memcpy") return OpenMemcpyPort(link);
  if (name == "pingpong") return OpenPingPongPort(link);
  if (name == "futex") return OpenFutexPort(link);
  Die("unknown peer " + name);
}

}  // namespace onepiece::bench
