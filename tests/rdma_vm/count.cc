// Operations and round trips of a send, as the channel counts them.
#include <cstdio>
#include <vector>

#include "cluster/ring/consumer.h"
#include "tests/rdma_vm/program.h"
#include "tests/ring/ring_world.h"

namespace onepiece::rdma_vm {
namespace {

constexpr std::uint64_t kSends = 200;
constexpr std::size_t kBytes = 4096;
constexpr auto kLimit = std::chrono::seconds(30);

}  // namespace

int Count(const std::string& uri) {
  auto fabric = fabric::Fabric::Open(uri);
  auto other = fabric::Fabric::Open(uri);
  if (!fabric.ok() || !other.ok()) {
    std::printf("%s\n", fabric.status().ToString().c_str());
    return 1;
  }
  ring::ConsumerOptions options;  // No message wraps, because a PAD is one more operation.
  options.capacity_bytes = 2 * kSends * kBytes;
  auto consumer = ring::Consumer::Create(**fabric, options);
  if (!consumer.ok()) {
    std::printf("%s\n", consumer.status().ToString().c_str());
    return 1;
  }
  const auto producer = ring::ConnectTo(**consumer, **other, 1, 1);
  if (producer == nullptr) return 1;
  const fabric::ChannelCounters before = producer->channel_counters();
  std::uint64_t acknowledged = 0, good = 0;
  for (std::uint64_t id = 1; id <= kSends; ++id) {
    const auto content = ring::Content(1, id, kBytes);
    const auto sent = producer->Send(id, ring::Cut(content), base::SystemClock().Now() + kLimit);
    acknowledged += sent.ok() && sent->outcome == ring::SendOutcome::kOk ? 1 : 0;
    auto delivery = (*consumer)->Poll();
    std::vector<std::byte> bytes(kBytes);
    if (delivery && delivery->message_id() == id && delivery->size_bytes() == kBytes &&
        delivery->CopyTo(bytes).ok() && bytes == content) {
      ++good;
    }
  }
  const fabric::ChannelCounters after = producer->channel_counters();
  const auto per_send = [](std::uint64_t count) { return static_cast<double>(count) / kSends; };
  std::printf("sends=%d ops_per_send=%g round_trips=%g lost=%d dup=%d\n",
              static_cast<int>(acknowledged), per_send(after.work_requests - before.work_requests),
              per_send(after.round_trips - before.round_trips),
              static_cast<int>(acknowledged - good),
              static_cast<int>((*consumer)->counters().duplicates));
  const bool as_promised = after.work_requests - before.work_requests == kOperations * kSends &&
                           after.round_trips - before.round_trips == 2 * kSends;
  return as_promised && acknowledged == kSends && good == kSends ? 0 : 1;
}

}  // namespace onepiece::rdma_vm
