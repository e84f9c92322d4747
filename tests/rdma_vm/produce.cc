// The producers' side: those that are killed, and those that live on.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <thread>
#include <vector>

#include "cluster/base/check.h"
#include "cluster/fabric/fault.h"
#include "cluster/fabric/process.h"
#include "cluster/fabric/wire.h"
#include "tests/eventually.h"
#include "tests/rdma_vm/exchange.h"
#include "tests/rdma_vm/program.h"
#include "tests/ring/ring_world.h"

namespace onepiece::rdma_vm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kAskLimit = seconds(30);
constexpr auto kSendLimit = seconds(10);  ///< The limit of one Send.
constexpr auto kForSureLimit = seconds(120);
/// A send waits at most for the lock and for two chains.
constexpr auto kDefiniteLimit = kSendLimit * 3;

base::MonotonicTime Now() { return base::SystemClock().Now(); }
long long WholeMilliseconds(base::Duration duration) {
  return std::chrono::duration_cast<milliseconds>(duration).count();
}

absl::StatusOr<ring::SendResult> SendOne(ring::Producer& producer, int ring,
                                         std::uint64_t producer_id, std::uint64_t id) {
  const auto bytes = ring::Content(producer_id, id, MessageBytes(ring, id));
  return producer.Send(id, ring::Cut(bytes), Now() + kSendLimit);
}

/// Stops before one operation of one send.
class StallAt final : public fabric::FaultPolicy {
 public:
  explicit StallAt(int operation) : operation_(operation) {}
  /// Makes the next operation number 0. Only the sending thread may call it.
  void Arm() { next_ = 0; }
  fabric::Fault Before(const fabric::FaultPoint&) override {
    if (next_ >= 0 && next_++ == operation_) {
      stalled_.store(true);
      released_.wait(false);
    }
    return {};
  }
  [[nodiscard]] bool stalled() const { return stalled_.load(); }
  void Release() {
    released_.store(true);
    released_.notify_all();
  }

 private:
  const int operation_;
  int next_ = -1;  // Used by the sending thread. Negative: not armed.
  std::atomic<bool> stalled_{false};
  std::atomic<bool> released_{false};
};

/// One producer in one ring. It sends kBefore messages, and then one that stalls; in the long ring
/// it sends without end.
class Sender {
 public:
  Sender(fabric::Fabric& fabric, std::shared_ptr<fabric::FaultBoard> board,
         const std::string& address, int ring, std::uint64_t producer_id)
      : ring_(ring), id_(producer_id), policy_(std::make_shared<StallAt>(ring)) {
    faulty_ =
        std::make_unique<fabric::FaultyFabric>(fabric, board, fabric::SelfIdentity(), policy_);
    // In the long ring each chain goes out as a whole. The decorator would execute each operation
    // by itself.
    fabric::Fabric& used = ring == kLongRing ? fabric : *faulty_;
    auto producer = Join(used, address, ring, producer_id, 1);
    if (!producer.ok()) std::printf("ring %d: %s\n", ring, producer.status().ToString().c_str());
    ONEPIECE_CHECK(producer.ok());
    producer_ = *std::move(producer);
    thread_ = std::thread([this] { Run(); });
  }
  ~Sender() {
    policy_->Release();
    if (thread_.joinable()) thread_.join();
  }

  /// True once it has come to the place where it is killed.
  [[nodiscard]] bool ready() const {
    return ring_ == kLongRing ? acknowledged_.load() >= kBefore : policy_->stalled();
  }
  void Release() { policy_->Release(); }
  /// Waits for the end of its last send.
  void Await() { thread_.join(); }
  [[nodiscard]] std::uint64_t acknowledged() const { return acknowledged_.load(); }
  [[nodiscard]] const ring::SendResult& last() const { return last_; }
  [[nodiscard]] base::MonotonicTime end() const { return end_; }

 private:
  void Run() {
    for (std::uint64_t id = 1;; ++id) {
      if (id == kBefore + 1) policy_->Arm();
      do {
        auto result = SendOne(*producer_, ring_, id_, id);
        ONEPIECE_CHECK(result.ok());
        last_ = *std::move(result);
        if (last_.outcome == ring::SendOutcome::kBusy) testing::Pause(milliseconds(2));
      } while (last_.outcome == ring::SendOutcome::kBusy && !last_.reconnect);
      if (last_.outcome != ring::SendOutcome::kOk) break;
      acknowledged_.store(id);
      if (ring_ != kLongRing && id > kBefore) break;
    }
    end_ = Now();
  }

  const int ring_;
  const std::uint64_t id_;
  const std::shared_ptr<StallAt> policy_;
  std::unique_ptr<fabric::FaultyFabric> faulty_;
  std::unique_ptr<ring::Producer> producer_;
  std::atomic<std::uint64_t> acknowledged_{0};
  ring::SendResult last_;  // Valid after Await, as the next one.
  base::MonotonicTime end_;
  std::thread thread_;
};

/// Sends until acknowledged, as a service does. Returns false when that takes longer than
/// kForSureLimit.
bool SendForSure(fabric::Fabric& fabric, const std::string& address, int ring, std::uint64_t id,
                 std::unique_ptr<ring::Producer>& producer, std::uint64_t& incarnation) {
  for (const auto until = Now() + kForSureLimit; Now() < until;) {
    if (producer == nullptr) {
      auto joined = Join(fabric, address, ring, kNeighbour, ++incarnation);
      if (!joined.ok()) return false;
      producer = *std::move(joined);
    }
    const auto result = SendOne(*producer, ring, kNeighbour, id);
    if (!result.ok()) return false;
    if (result->outcome == ring::SendOutcome::kOk) return true;
    if (result->reconnect) producer.reset();
    testing::Pause(milliseconds(10));
  }
  return false;
}

std::unique_ptr<fabric::Fabric> OpenOrSay(const std::string& uri) {
  auto fabric = fabric::Fabric::Open(uri);
  if (!fabric.ok()) std::printf("%s\n", fabric.status().ToString().c_str());
  return fabric.ok() ? *std::move(fabric) : nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ring::Producer>> Join(fabric::Fabric& fabric,
                                                     const std::string& address, int ring,
                                                     std::uint64_t producer_id,
                                                     std::uint64_t incarnation) {
  ONEPIECE_ASSIGN_OR_RETURN(const auto dialer, fabric.Dial());
  std::string question;
  fabric::AppendU64(question, static_cast<std::uint64_t>(ring));
  fabric::AppendU64(question, producer_id);
  fabric::AppendU64(question, incarnation);
  fabric::AppendText(question, dialer->offer().Serialize());
  ONEPIECE_ASSIGN_OR_RETURN(const std::string answer, Ask(address, question, kAskLimit));
  if (answer.starts_with(kRefused)) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "REFUSED", answer);
  }
  ONEPIECE_ASSIGN_OR_RETURN(const auto grant, ring::ProducerGrant::Parse(answer));
  return ring::Producer::Connect(*dialer, grant, {.chain_timeout = kSendLimit});
}

int Send(const std::string& uri, const std::string& address) {
  const auto fabric = OpenOrSay(uri);
  if (fabric == nullptr) return 1;
  std::uint64_t acknowledged = 0;
  base::Duration longest{};
  for (int ring = 0; ring < kRings; ++ring) {
    std::unique_ptr<ring::Producer> producer;
    std::uint64_t incarnation = 0;
    for (std::uint64_t id = 1; id <= kAfter; ++id) {
      const auto from = Now();
      if (!SendForSure(*fabric, address, ring, id, producer, incarnation)) {
        std::printf("ring %d: message %d could not be sent\n", ring, static_cast<int>(id));
        return 1;
      }
      longest = std::max(longest, Now() - from);
      ++acknowledged;
    }
  }
  std::printf("acknowledged=%llu longest_ms=%lld\n", static_cast<unsigned long long>(acknowledged),
              WholeMilliseconds(longest));
  return 0;
}

int Stall(const std::string& uri, const std::string& address, std::uint64_t producer_id,
          const std::string& go) {
  const auto fabric = OpenOrSay(uri);
  if (fabric == nullptr) return 1;
  const auto board = std::make_shared<fabric::FaultBoard>();
  std::vector<std::unique_ptr<Sender>> senders;
  for (int ring = 0; ring < kRings; ++ring) {
    senders.push_back(std::make_unique<Sender>(*fabric, board, address, ring, producer_id));
  }
  for (const auto& sender : senders) {
    if (!testing::Eventually(kForSureLimit, [&] { return sender->ready(); })) return 1;
  }
  std::printf("stalled=%d\n", kRings);
  if (go.empty()) {
    while (true) pause();
  }
  if (!testing::Eventually(kForSureLimit, [&] { return std::filesystem::exists(go); })) return 1;
  const auto from = Now();
  for (const auto& sender : senders) sender->Release();
  int definite = 0;
  base::Duration longest{};
  for (const auto& sender : senders) {
    sender->Await();
    definite += sender->last().outcome != ring::SendOutcome::kOk ? 1 : 0;
    longest = std::max(longest, sender->end() - from);
    std::printf("acknowledged %llu, then after %lld ms: %s\n",
                static_cast<unsigned long long>(sender->acknowledged()),
                WholeMilliseconds(sender->end() - from), sender->last().detail.ToString().c_str());
  }
  std::printf("definite=%d longest_ms=%lld\n", definite, WholeMilliseconds(longest));
  return definite == kRings && longest < kDefiniteLimit ? 0 : 1;
}

int Report(const std::string& address) {
  std::string question;
  fabric::AppendU64(question, kRings);  // This is no ring's number.
  const auto answer = Ask(address, question, kAskLimit);
  if (answer.ok()) std::printf("%s\n", answer->c_str());
  return answer.ok() ? 0 : 1;
}

}  // namespace onepiece::rdma_vm
