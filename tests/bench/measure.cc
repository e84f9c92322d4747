#include "tests/bench/measure.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::bench {
namespace {

constexpr int kConsumerCore = 0;
constexpr int kProducerCore = 1;
constexpr Nanoseconds kStreamWarmUp = std::chrono::milliseconds(50);
constexpr int kRoundTripWarmUps = 500;
constexpr std::size_t kLargeBytes = 65536;
constexpr std::uint64_t kLargeMessages = 6;  // The fewest large messages in a window.
// The sender pauses this long before each message, so that the receiver falls asleep.
constexpr Nanoseconds kPause = std::chrono::milliseconds(1);
constexpr Nanoseconds kMeasurePatience = std::chrono::seconds(15);

// The first word of a message tells a producer's last message from the others.
constexpr std::uint64_t kEndWord = 0x45444e45;
constexpr std::uint64_t kDataWord = 0x41544144;

using Bytes = std::vector<std::byte>;

std::uint64_t FirstWord(const Bytes& message) {
  std::uint64_t word = 0;
  std::memcpy(&word, message.data(), sizeof(word));
  return word;
}

void SetFirstWord(Bytes& message, std::uint64_t word) {
  std::memcpy(message.data(), &word, sizeof(word));
}

Bytes MakePayload(std::size_t size) {
  Bytes payload(std::max(size, sizeof(std::uint64_t)));
  for (std::size_t i = 0; i < payload.size(); ++i) {
    payload[i] = static_cast<std::byte>(i * 2654435761U >> 24);
  }
  SetFirstWord(payload, kDataWord);
  return payload;
}

void SendEnd(Port& port) {
  Bytes end(sizeof(std::uint64_t));
  SetFirstWord(end, kEndWord);
  port.Send(end);
  port.Flush();
}

class Receiver {
 public:
  Receiver(Port& port, std::size_t bytes)
      : port_(port), buffer_(std::max<std::size_t>(bytes, 64)) {}
  /// Returns false if that was the end mark of a producer.
  bool Next() {
    // A transport that leaves large messages in place does not write here.
    SetFirstWord(buffer_, 0);
    size_ = port_.Receive(buffer_);
    return FirstWord(buffer_) != kEndWord;
  }
  [[nodiscard]] std::span<const std::byte> message() const {
    return std::span(buffer_).first(size_);
  }
  [[nodiscard]] std::uint64_t word() const { return FirstWord(buffer_); }

 private:
  Port& port_;
  Bytes buffer_;
  std::size_t size_ = 0;
};

void Report(Control& control, double result) {
  control.result = result;
  control.finished.Set();
}

void ConsumeStream(Port& port, const Measurement& what, Control& control) {
  Receiver receiver(port, what.message_bytes);
  const bool large = what.message_bytes >= kLargeBytes;
  const std::uint64_t stride = large ? 1 : 64;  // Messages between two looks at the clock.
  const std::uint64_t at_least = large ? kLargeMessages : 0;
  receiver.Next();
  const std::int64_t warm = NowNs() + kStreamWarmUp.count();
  do {
    for (std::uint64_t i = 0; i < stride; ++i) receiver.Next();
  } while (NowNs() < warm);
  std::uint64_t count = 0;
  const std::int64_t start = NowNs();
  std::int64_t now = start;
  while (now < start + what.window.count() || count < at_least) {
    for (std::uint64_t i = 0; i < stride; ++i) receiver.Next();
    count += stride;
    now = NowNs();
  }
  control.stop.Set();
  Report(control, static_cast<double>(count) * 1e9 / static_cast<double>(now - start));
  for (int ended = 0; ended < what.producers;) {
    if (!receiver.Next()) ++ended;
  }
}

void ProduceStream(Port& port, const Measurement& what, Control& control) {
  const Bytes payload = MakePayload(what.message_bytes);
  while (control.stop.Get() == 0) port.Send(payload);
  SendEnd(port);
}

void Pong(Port& port, const Measurement& what) {
  Receiver receiver(port, what.message_bytes);
  while (receiver.Next()) port.Send(receiver.message());
}

void Ping(Port& port, const Measurement& what, Control& control) {
  const Bytes payload = MakePayload(what.message_bytes);
  Receiver receiver(port, what.message_bytes);
  std::vector<double> one_way_us;
  one_way_us.reserve(1 << 20);
  const auto round_trip = [&] {
    port.Send(payload);
    receiver.Next();
  };
  for (int i = 0; i < kRoundTripWarmUps; ++i) round_trip();
  const std::int64_t end = NowNs() + what.window.count();
  for (std::int64_t before = NowNs(); before < end;) {
    round_trip();
    const std::int64_t after = NowNs();
    one_way_us.push_back(static_cast<double>(after - before) / 2000);
    before = after;
  }
  Report(control, Median(std::move(one_way_us)));
  SendEnd(port);
}

// Each message carries the time at which its sender began.
void ReceiveWakeUps(Port& port, const Measurement& what, Control& control) {
  Receiver receiver(port, what.message_bytes);
  std::vector<double> us;
  while (receiver.Next()) {
    us.push_back(static_cast<double>(NowNs() - static_cast<std::int64_t>(receiver.word())) / 1000);
  }
  Report(control, Median(std::move(us)));
}

void SendWakeUps(Port& port, const Measurement& what, Control& control) {
  Bytes payload = MakePayload(what.message_bytes);
  for (const std::int64_t end = NowNs() + what.window.count(); NowNs() < end;) {
    control.finished.SleepWhile(0, kPause);
    SetFirstWord(payload, static_cast<std::uint64_t>(NowNs()));
    port.Send(payload);
  }
  control.finished.SleepWhile(0, kPause);
  SendEnd(port);
}

double CpuNs() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_usec) * 1e3;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

// The producer sends one message, waits for the length of the window, and sends the end.
void ReceiveIdle(Port& port, const Measurement& what, Control& control) {
  Receiver receiver(port, what.message_bytes);
  receiver.Next();
  const double before = CpuNs();
  const std::int64_t start = NowNs();
  receiver.Next();
  const double used = CpuNs() - before;
  Report(control, 100 * used / static_cast<double>(NowNs() - start));
}

void SendIdle(Port& port, const Measurement& what, Control& control) {
  port.Send(MakePayload(what.message_bytes));
  control.finished.SleepWhile(0, what.window);
  SendEnd(port);
}

const char* NameOf(Role role) {
  switch (role) {
    case Role::kConsumer:
      return "consumer";
    case Role::kProducer:
      return "producer";
    case Role::kPong:
      return "pong";
    case Role::kPing:
      return "ping";
  }
  return "";
}

Role RoleOf(const std::string& name) {
  for (const Role role : {Role::kConsumer, Role::kProducer, Role::kPong, Role::kPing}) {
    if (name == NameOf(role)) return role;
  }
  Die("no such role: " + name);
}

std::vector<std::string> Arguments(const Measurement& what, Role role, int index, int file,
                                   const std::string& name) {
  return {"child",
          std::to_string(file),
          name,
          NameOf(role),
          std::to_string(index),
          what.port,
          std::to_string(static_cast<int>(what.kind)),
          std::to_string(what.message_bytes),
          std::to_string(what.producers),
          std::to_string(what.mode.checksum ? 1 : 0),
          std::to_string(what.mode.spin ? 1 : 0),
          std::to_string(what.window.count())};
}

// Removes files that killed processes may have left.
void CleanUp(const std::string& name) {
  (void)fabric::UnlinkStale(name);
  for (const char* end : {"", ".forth", ".back"}) shm_unlink(("/" + name + end).c_str());
  for (const char* end : {".zmq", ".back.zmq", ".grpc"}) unlink(("/tmp/" + name + end).c_str());
}

void RunKind(Port& port, Role role, const Measurement& what, Control& control) {
  const bool sends = role == Role::kProducer;
  switch (what.kind) {
    case Kind::kStream:
      return sends ? ProduceStream(port, what, control) : ConsumeStream(port, what, control);
    case Kind::kLatency:
      return role == Role::kPing ? Ping(port, what, control) : Pong(port, what);
    case Kind::kWakeUp:
      return sends ? SendWakeUps(port, what, control) : ReceiveWakeUps(port, what, control);
    case Kind::kIdle:
      return sends ? SendIdle(port, what, control) : ReceiveIdle(port, what, control);
  }
}

// Every kind ends when the receiver has the end marks.
void RunRole(Port& port, Role role, const Measurement& what, Control& control) {
  RunKind(port, role, what, control);
  if (role == Role::kConsumer || role == Role::kPong) control.drained.Set();
}

}  // namespace

int RunChild(const std::vector<std::string>& arguments) {
  const std::size_t expected = Arguments({}, Role::kPing, 0, 0, "").size() - 1;
  if (arguments.size() != expected) Die("`child` is started by onepiece-bench itself");
  const auto number = [&](std::size_t i) {
    return std::strtoll(arguments[i].c_str(), nullptr, 10);
  };
  const ControlBlock control(static_cast<int>(number(0)));
  const Role role = RoleOf(arguments[2]);
  const Measurement what{.port = arguments[4],
                         .kind = static_cast<Kind>(number(5)),
                         .message_bytes = static_cast<std::size_t>(number(6)),
                         .producers = static_cast<int>(number(7)),
                         .mode = {.checksum = number(8) != 0, .spin = number(9) != 0},
                         .window = Nanoseconds(number(10))};
  PinTo(role == Role::kConsumer || role == Role::kPong ? kConsumerCore : kProducerCore);
  const Link link{.control = &*control,
                  .role = role,
                  .index = static_cast<int>(number(3)),
                  .producers = what.producers,
                  .message_bytes = what.message_bytes,
                  .mode = what.mode,
                  .name = arguments[1]};
  const std::unique_ptr<Port> port = OpenPort(what.port, link);
  RunRole(*port, role, what, *control);
  return EXIT_SUCCESS;
}

absl::StatusOr<double> Measure(const Measurement& what) {
  const std::string name = "onepiece-bench-" + std::to_string(getpid()) + "-" +
                           std::to_string(base::RandomU64() % 1'000'000'000);
  const ControlBlock control;
  absl::Status status = absl::OkStatus();
  {
    Children children;
    const bool turns = what.kind == Kind::kLatency;
    status = children.Start(
        Arguments(what, turns ? Role::kPong : Role::kConsumer, 0, control.file(), name));
    for (int i = 0; i < what.producers && status.ok(); ++i) {
      status = children.Start(
          Arguments(what, turns ? Role::kPing : Role::kProducer, i, control.file(), name));
    }
    if (status.ok()) status = children.Join(what.window + base::Scaled(kMeasurePatience));
  }
  CleanUp(name);
  if (status.ok() && control->finished.Get() == 0) status = absl::InternalError("no result");
  if (!status.ok()) {
    return absl::Status(status.code(), what.port + ", " + std::to_string(what.message_bytes) +
                                           " bytes, " + std::to_string(what.producers) +
                                           " producers: " + std::string(status.message()));
  }
  return control->result;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace onepiece::bench
