// The verb rings.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "cluster/cli/verbs.h"
#include "cluster/rpc/channel.h"
#include "onepiece/v1/ring.grpc.pb.h"

namespace onepiece::cli {
namespace {

constexpr base::Duration kRingTimeout = std::chrono::seconds(2);

Json ProducerDocument(const v1::RingProducer& producer) {
  return {{"producer_id", absl::StrFormat("%016x", producer.producer_id())},
          {"incarnation", producer.incarnation()},
          {"node_id", producer.node_id()},
          {"pid", producer.pid()},
          {"connected", producer.connected()},
          {"admissions", producer.admissions()},
          {"delivered", producer.delivered()},
          {"delivered_bytes", producer.delivered_bytes()},
          {"duplicates", producer.duplicates()},
          {"corrupted", producer.corrupted()},
          {"stalls", producer.stalls()},
          {"hostile", producer.hostile()},
          {"last_seen_age_ms", producer.last_seen_age_ms()}};
}

Json CountersDocument(const v1::RingCounters& counters) {
  return {{"delivered", counters.delivered()},
          {"delivered_bytes", counters.delivered_bytes()},
          {"duplicates", counters.duplicates()},
          {"corrupted", counters.corrupted()},
          {"skipped", counters.skipped()},
          {"abandoned", counters.abandoned()},
          {"stalls", counters.stalls()},
          {"takeovers", counters.takeovers()},
          {"tails_repaired", counters.tails_repaired()},
          {"fenced", counters.fenced()},
          {"moves", counters.moves()},
          {"moves_failed", counters.moves_failed()},
          {"lanes_retired", counters.lanes_retired()},
          {"hostile", counters.hostile()},
          {"sleeps", counters.sleeps()}};
}

std::string ShapeName(v1::RingShape shape) {
  return shape == v1::RING_SHAPE_PER_PRODUCER ? "per_producer" : "shared";
}

Json RingDocument(const v1::Node& node, const v1::RingHealth& ring) {
  Json document = {{"node_id", node.node_id()},
                   {"address", node.address()},
                   {"shape", ShapeName(ring.shape())},
                   {"generation", ring.generation()},
                   {"capacity_bytes", ring.capacity_bytes()},
                   {"used_bytes", ring.used_bytes()},
                   {"slots", ring.slots()},
                   {"used_slots", ring.used_slots()},
                   {"oldest_age_ms", ring.oldest_age_ms()},
                   {"sleeping", ring.sleeping()},
                   {"counters", CountersDocument(ring.counters())},
                   {"producers", Json::array()}};
  for (const auto& producer : ring.producers()) {
    document["producers"].push_back(ProducerDocument(producer));
  }
  return document;
}

std::string RingText(const v1::Node& node, const v1::RingHealth& ring) {
  const v1::RingCounters& counters = ring.counters();
  std::string text = absl::StrFormat(
      "%s  %s  generation %d\n"
      "  holds      %d of %d messages, %s of %s; the oldest for %d ms\n"
      "  delivered  %d messages, %s; duplicates %d, corrupted %d\n"
      "  recovery   stalls %d, takeovers %d, skipped %d, abandoned %d, moves %d, hostile %d\n",
      node.node_id(), ShapeName(ring.shape()), ring.generation(), ring.used_slots(), ring.slots(),
      terminal::HumanBytes(static_cast<std::int64_t>(ring.used_bytes())),
      terminal::HumanBytes(static_cast<std::int64_t>(ring.capacity_bytes())), ring.oldest_age_ms(),
      counters.delivered(),
      terminal::HumanBytes(static_cast<std::int64_t>(counters.delivered_bytes())),
      counters.duplicates(), counters.corrupted(), counters.stalls(), counters.takeovers(),
      counters.skipped(), counters.abandoned(), counters.moves(), counters.hostile());
  for (const v1::RingProducer& producer : ring.producers()) {
    text += absl::StrFormat(
        "    %-9s %-24s pid %-8d %8d messages %10s  duplicates %d, corrupted %d, stalls %d, "
        "hostile %d, seen %d s ago\n",
        producer.connected() ? "connected" : "gone", producer.node_id(), producer.pid(),
        producer.delivered(),
        terminal::HumanBytes(static_cast<std::int64_t>(producer.delivered_bytes())),
        producer.duplicates(), producer.corrupted(), producer.stalls(), producer.hostile(),
        producer.last_seen_age_ms() / 1000);
  }
  return text;
}

int RunRings(const Context& context) {
  const auto client = context.MakeManagerClient();
  if (!client.ok()) return context.Fail(client.status());
  const auto cluster = (*client)->GetCluster();
  if (!cluster.ok()) return context.Fail(cluster.status());
  Json document = {{"cluster_id", cluster->cluster_id()}, {"rings", Json::array()}};
  std::string text;
  absl::Status failed;
  for (const v1::Node& node : cluster->nodes()) {
    const bool has_ring = node.role() == v1::INSTANCE || node.role() == v1::DATABASE;
    if (!has_ring || node.state() == v1::Node::DEAD) continue;
    const auto stub = v1::RingService::NewStub(rpc::MakeChannel(node.address()));
    const auto ring = rpc::Call(*stub, &v1::RingService::Stub::GetRingHealth,
                                v1::GetRingHealthRequest(), kRingTimeout);
    if (ring.ok()) {
      document["rings"].push_back(RingDocument(node, *ring));
      text += RingText(node, *ring);
      continue;
    }
    failed = base::Annotate(ring.status(), "ring of " + node.node_id());
    document["rings"].push_back({{"node_id", node.node_id()},
                                 {"address", node.address()},
                                 {"error", base::Message(ring.status())}});
    text += node.node_id() + "  does not answer: " + base::Message(ring.status()) + "\n";
  }
  context.Print(document, text);
  if (failed.ok()) return terminal::kOk;
  context.Say("onepiece: " + base::Message(failed));
  return terminal::kUnavailable;
}

}  // namespace

void DefineRings(CLI::App& verb, Context& context) {
  verb.callback([&context] { context.action = [&context] { return RunRings(context); }; });
}

}  // namespace onepiece::cli
