// The consumer's side, in the guest that lives on when a producer's guest is killed.
#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/check.h"
#include "cluster/fabric/wire.h"
#include "cluster/ring/consumer.h"
#include "tests/rdma_vm/exchange.h"
#include "tests/rdma_vm/program.h"
#include "tests/ring/ring_world.h"

namespace onepiece::rdma_vm {
namespace {

constexpr std::size_t kMaxOfferBytes = 8192;

/// A ring and the messages that came out of it. The ids of a producer are 1, 2, … without gaps.
struct Intake {
  std::unique_ptr<ring::Consumer> consumer;
  std::map<std::uint64_t, std::uint64_t> last;  // The last id of each producer.
  int lost = 0;
  int duplicates = 0;
  int corrupt = 0;

  void Drain(int ring) {
    while (auto delivery = consumer->Poll()) {
      std::vector<std::byte> bytes(delivery->size_bytes());
      const std::uint64_t producer = delivery->producer_id().value;
      const std::uint64_t id = delivery->message_id();
      const bool good = delivery->CopyTo(bytes).ok() &&
                        bytes == ring::Content(producer, id, MessageBytes(ring, id));
      corrupt += good ? 0 : 1;
      std::uint64_t& before = last[producer];
      duplicates += id <= before ? 1 : 0;
      lost += id > before + 1 ? static_cast<int>(id - before - 1) : 0;
      before = std::max(before, id);
    }
  }
  /// Acknowledged messages that never came.
  [[nodiscard]] int Missing() const {
    int missing = 0;
    for (const auto& [producer, id] : last) {
      const std::uint64_t expected = producer == kNeighbour ? kAfter : kBefore;
      missing += static_cast<int>(expected - std::min(expected, id));
    }
    return missing;
  }
};

class Intakes {
 public:
  explicit Intakes(fabric::Fabric& fabric) {
    for (int i = 0; i < kRings; ++i) {
      ring::ConsumerOptions options;
      options.label = "ring-" + std::to_string(i);
      options.capacity_bytes = i == kLongRing ? 1 << 20 : 1 << 16;
      options.slots = 64;
      auto consumer = ring::Consumer::Create(fabric, options);
      ONEPIECE_CHECK(consumer.ok());
      intakes_[i].consumer = *std::move(consumer);
    }
  }

  void Work() {
    const auto now = base::SystemClock().Now();
    for (int i = 0; i < kRings; ++i) {
      intakes_[i].consumer->Tick(now);
      intakes_[i].Drain(i);
    }
  }

  std::string Answer(std::string_view question) {
    fabric::WireReader reader(question);
    const std::uint64_t ring = reader.U64();
    if (ring >= kRings) return Summary();
    const std::uint64_t producer_id = reader.U64();
    const std::uint64_t incarnation = reader.U64();
    auto offer = fabric::Offer::Parse(reader.Text(kMaxOfferBytes));
    if (!offer.ok() || !reader.Finished()) return std::string(kRefused);
    const auto grant =
        intakes_[ring].consumer->Enroll({.producer_id = ring::ProducerId(producer_id),
                                         .incarnation = ring::Incarnation(incarnation),
                                         .offer = *std::move(offer)});
    intakes_[ring].last.try_emplace(producer_id, 0);
    return grant.ok() ? grant->Serialize() : absl::StrCat(kRefused, grant.status().ToString());
  }

 private:
  [[nodiscard]] std::string Summary() const {
    int lost = 0, duplicates = 0, corrupt = 0;
    std::uint64_t delivered = 0, left = 0, locks = 0, holes = 0, fenced = 0, moves = 0;
    for (const Intake& intake : intakes_) {
      lost += intake.lost + intake.Missing();
      duplicates += intake.duplicates;
      corrupt += intake.corrupt;
      const ring::ConsumerCounters counters = intake.consumer->counters();
      delivered += counters.delivered;
      left += intake.consumer->fill().messages;
      locks += counters.locks_broken;
      holes += counters.holes_skipped;
      fenced += counters.owners_fenced;
      moves += counters.moves;
    }
    return absl::StrCat("rings=", kRings, " delivered=", delivered, " lost=", lost,
                        " dup=", duplicates, " corrupt=", corrupt, " wedged=", left,
                        " fenced=", fenced, " locks_broken=", locks, " holes=", holes,
                        " moves=", moves);
  }

  std::array<Intake, kRings> intakes_;
};

}  // namespace

void Consume(const std::string& uri) {
  auto fabric = fabric::Fabric::Open(uri);
  if (!fabric.ok()) std::printf("%s\n", fabric.status().ToString().c_str());
  ONEPIECE_CHECK(fabric.ok());
  Intakes intakes(**fabric);
  Answerer answerer;
  while (true) {
    intakes.Work();
    answerer.AnswerOne([&](std::string_view question) { return intakes.Answer(question); },
                       std::chrono::milliseconds(1));
  }
}

}  // namespace onepiece::rdma_vm
