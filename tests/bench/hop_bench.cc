#include "tests/bench/hop_bench.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "cluster/message/message.h"
#include "cluster/node/inbox.h"
#include "cluster/node/outbox.h"
#include "cluster/rpc/server.h"
#include "stages/runtime/request_scheduler.h"

namespace onepiece::bench {
namespace {

constexpr std::uint64_t kRingBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kIncarnation = 1;
constexpr int kWarmUps = 5;
constexpr base::Duration kHopPatience = std::chrono::seconds(20);
constexpr int kPollMs = 200;

struct Size {
  const char* name;
  std::size_t bytes;
};
constexpr std::array<Size, 4> kSizes = {
    {{"4KiB", 4096}, {"200kB", 200'000}, {"4.2MB", 4'200'000}, {"28MB", 28'000'000}}};

/// The receiver's report about one message. Both processes read the same CLOCK_MONOTONIC.
struct Receipt {
  std::int64_t seen_ns = 0;    ///< The receiver woke up and saw it in the ring.
  std::int64_t ready_ns = 0;   ///< Copied out, checked and decoded.
  std::int64_t worker_ns = 0;  ///< A task worker has it.
  std::uint64_t bytes = 0;     ///< The bytes of its artifact.
};

/// One hop, in nanoseconds; the parts add up to the total.
struct Hop {
  enum Part : std::size_t { kSerialise, kRing, kWakeUp, kDeserialise, kParts };
  std::array<std::int64_t, kParts> parts{};
  std::int64_t total = 0;
};
constexpr std::array<const char*, Hop::kParts> kPartNames = {"serialise", "ring", "wake_up",
                                                             "deserialise"};

std::int64_t Ns(base::MonotonicTime time) { return time.time_since_epoch().count(); }

absl::Status SystemError(const char* what) {
  return absl::UnavailableError(std::string(what) + ": " + std::generic_category().message(errno));
}

/// The receiving process. Thread-confined.
class Peer {
 public:
  /// Ends the process: closes its input, and kills it if that does not help.
  ~Peer();
  Peer() = default;
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  absl::Status Start(std::vector<std::string> command);
  absl::StatusOr<std::string> ReadLine();
  absl::StatusOr<Receipt> ReadReceipt();

 private:
  absl::Status Read(void* into, std::size_t bytes);

  pid_t pid_ = -1;
  int input_ = -1, output_ = -1;
};

absl::Status Peer::Start(std::vector<std::string> command) {
  int to_peer[2], from_peer[2];
  if (pipe2(to_peer, O_CLOEXEC) != 0) return SystemError("pipe");
  input_ = to_peer[1];
  if (pipe2(from_peer, O_CLOEXEC) != 0) {
    close(to_peer[0]);
    return SystemError("pipe");
  }
  output_ = from_peer[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_peer[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_peer[1], STDOUT_FILENO);
  std::vector<char*> argv;
  for (std::string& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const int error = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to_peer[0]);
  close(from_peer[1]);
  if (error == 0) return absl::OkStatus();
  pid_ = -1;
  errno = error;
  return SystemError("starting the receiving process");
}

Peer::~Peer() {
  if (input_ >= 0) close(input_);
  if (output_ >= 0) close(output_);
  if (pid_ < 0) return;
  const base::MonotonicTime deadline =
      base::SystemClock().Now() + base::Scaled(std::chrono::seconds(5));
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (base::SystemClock().Now() > deadline) kill(pid_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

absl::Status Peer::Read(void* into, std::size_t bytes) {
  auto* at = static_cast<char*>(into);
  const base::MonotonicTime deadline = base::SystemClock().Now() + base::Scaled(kHopPatience);
  while (bytes > 0) {
    pollfd ready{.fd = output_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kPollMs) <= 0) {
      if (base::SystemClock().Now() < deadline) continue;
      return absl::UnavailableError("the receiving process says nothing");
    }
    const ssize_t got = read(output_, at, bytes);
    if (got <= 0) return absl::UnavailableError("the receiving process has ended");
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Peer::ReadLine() {
  std::string line;
  for (char next = 0; line.size() < 256; line += next) {
    ONEPIECE_RETURN_IF_ERROR(Read(&next, 1));
    if (next == '\n') return line;
  }
  return absl::UnavailableError("the receiving process talks nonsense");
}

absl::StatusOr<Receipt> Peer::ReadReceipt() {
  Receipt receipt;
  ONEPIECE_RETURN_IF_ERROR(Read(&receipt, sizeof(receipt)));
  return receipt;
}

message::Message MakeJob(std::size_t bytes) {
  message::Message message;
  message.header.app = "bench";
  message.header.stage = "hop";
  std::string data(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>((i * 2654435761U) >> 24);
  message::Artifact artifact{.name = "latents",
                             .dtype = message::DType::kU8,
                             .shape = {static_cast<std::int64_t>(bytes)},
                             .media_type = "",
                             .data = message::Buffer::FromString(std::move(data))};
  message.artifacts.push_back(std::move(artifact));
  return message;
}

absl::StatusOr<Hop> Measure(node::Outbox& outbox, const v1::Endpoint& receiver, Peer& peer,
                            message::Message& message) {
  base::Clock& clock = base::SystemClock();
  message.header.uid = base::Uid::GenerateRandom();
  const base::MonotonicTime start = clock.Now();
  ONEPIECE_ASSIGN_OR_RETURN(const node::Delivered delivered,
                            outbox.Deliver(message, node::Destination::Nodes({receiver}),
                                           start + base::Scaled(kHopPatience)));
  const std::int64_t acknowledged = Ns(clock.Now());
  ONEPIECE_ASSIGN_OR_RETURN(const Receipt receipt, peer.ReadReceipt());
  if (receipt.bytes != message.artifacts[0].data.size())
    return absl::DataLossError("the receiver got another size");
  Hop hop;
  hop.total = receipt.worker_ns - Ns(start);
  hop.parts[Hop::kSerialise] = delivered.encode.count();
  hop.parts[Hop::kDeserialise] = receipt.ready_ns - receipt.seen_ns;
  // The receiver may see the message before the acknowledgement is back here. Then nobody waited
  // for a wake-up.
  const std::int64_t sent = std::min(acknowledged, receipt.seen_ns);
  hop.parts[Hop::kRing] = sent - Ns(start) - delivered.encode.count();
  hop.parts[Hop::kWakeUp] = (receipt.seen_ns - sent) + (receipt.worker_ns - receipt.ready_ns);
  return hop;
}

double PercentileUs(std::vector<std::int64_t> values, double share) {
  std::ranges::sort(values);
  const auto rank = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return static_cast<double>(values[std::min(rank, values.size() - 1)]) / 1000;
}

BenchResult Summarise(const Size& size, const std::vector<Hop>& hops, const char* percentile,
                      double share) {
  const auto of = [&](const auto& value) {
    std::vector<std::int64_t> values;
    for (const Hop& hop : hops) values.push_back(value(hop));
    return PercentileUs(std::move(values), share);
  };
  BenchResult result{
      .name = std::string("hop.") + size.name + "." + percentile,
      .workload = "one artifact from one instance process to a task worker of another, both asleep",
      .metric = std::string("latency_") + percentile,
      .unit = "us",
      .ours = of([](const Hop& hop) { return hop.total; }),
      .runs = static_cast<int>(hops.size()),
      .split = {}};
  for (std::size_t part = 0; part < Hop::kParts; ++part) {
    result.split.emplace_back(kPartNames[part],
                              of([part](const Hop& hop) { return hop.parts[part]; }));
  }
  return result;
}

/// Removes the cluster's shared memory at the end, also if a process died.
struct Cluster {
  ~Cluster() { (void)fabric::UnlinkStale(id); }
  const std::string id =
      "bench-" + std::to_string(getpid()) + "-" + std::to_string(base::RandomU64() % 1'000'000);
};

}  // namespace

absl::StatusOr<BenchReport> RunHopBench(const HopBenchOptions& options) {
  if (options.runs < 1) return absl::InvalidArgumentError("runs must be at least 1");
  const Cluster cluster;
  const std::string uri = "shm://" + cluster.id;
  Peer peer;
  std::vector<std::string> command = options.peer_command;
  command.push_back(uri);
  command.push_back(std::to_string(kRingBytes));
  ONEPIECE_RETURN_IF_ERROR(peer.Start(std::move(command)));
  ONEPIECE_ASSIGN_OR_RETURN(const std::string address, peer.ReadLine());

  v1::Endpoint receiver;
  receiver.set_node_id("receiver");
  receiver.set_incarnation(kIncarnation);
  receiver.set_address(address);
  v1::RoutingTable table;
  table.set_epoch(1);
  *table.add_alive() = receiver;
  node::ClusterView view;
  view.SetRouting(std::make_shared<const node::Routing>(std::move(table)));
  ONEPIECE_ASSIGN_OR_RETURN(const std::unique_ptr<fabric::Fabric> fabric,
                            fabric::Fabric::Open(uri));
  const auto outbox = node::Outbox::Create(*fabric, view, {.node_id = "sender"});

  BenchReport report;
  for (const Size& size : kSizes) {
    message::Message message = MakeJob(size.bytes);
    std::vector<Hop> hops;
    for (int run = -kWarmUps; run < options.runs; ++run) {
      std::this_thread::sleep_for(options.pause);
      ONEPIECE_ASSIGN_OR_RETURN(const Hop hop, Measure(*outbox, receiver, peer, message));
      if (run >= 0) hops.push_back(hop);
    }
    report.results.push_back(Summarise(size, hops, "p50", 0.50));
    report.results.push_back(Summarise(size, hops, "p99", 0.99));
  }
  return report;
}

int RunHopPeer(const std::string& fabric_uri, std::uint64_t ring_bytes) {
  base::Clock& clock = base::SystemClock();
  const auto fabric = fabric::Fabric::Open(fabric_uri);
  if (!fabric.ok()) return EXIT_FAILURE;
  node::ClusterView view;
  v1::Endpoint self;
  self.set_incarnation(kIncarnation);
  view.SetSelf(std::move(self));
  auto opened =
      node::Inbox::Open(**fabric, view, {.label = "receiver", .capacity_bytes = ring_bytes});
  if (!opened.ok()) return EXIT_FAILURE;
  const std::unique_ptr<node::Inbox> inbox = *std::move(opened);
  rpc::Server server({.listen = "127.0.0.1:0"});
  server.AddService(*inbox->service());
  if (!server.Start().ok()) return EXIT_FAILURE;
  std::printf("%s\n", server.address().c_str());
  std::fflush(stdout);

  runtime::RequestScheduler scheduler({}, std::make_unique<runtime::IndividualMode>(), clock);
  Receipt receipt;  // For the one message under way. The sender waits for it.
  std::jthread worker([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const std::optional<runtime::WorkItem> item =
          scheduler.Pop(stop, clock.Now() + std::chrono::seconds(1));
      if (!item.has_value()) continue;
      receipt.worker_ns = Ns(clock.Now());
      receipt.bytes = item->message.artifacts.empty() ? 0 : item->message.artifacts[0].data.size();
      if (write(STDOUT_FILENO, &receipt, sizeof(receipt)) != sizeof(receipt)) return;
    }
  });
  // The input is closed when the sender has ended, for whatever reason.
  std::jthread watchdog([&](const std::stop_token& stop) {
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    while (!stop.stop_requested() && poll(&input, 1, kPollMs) == 0) {
    }
    inbox->Close();
  });
  while (true) {
    absl::StatusOr<node::Received> received = inbox->Receive(clock.Now() + std::chrono::seconds(1));
    if (absl::IsCancelled(received.status())) break;
    if (!received.ok()) continue;
    receipt.seen_ns = Ns(received->arrival);
    receipt.ready_ns = Ns(received->ready);
    (void)scheduler.Push({.message = std::move(received->message),
                          .arrival_time = received->arrival_wall,
                          .parts = {}});
  }
  server.Shutdown(base::Duration(0));
  return EXIT_SUCCESS;
}

}  // namespace onepiece::bench
