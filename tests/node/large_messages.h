// The world of the tests of messages that are too large for a ring: an Outbox and an Inbox with
// little memory, on real rings.
#pragma once

#include <QtTest>
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/fabric.h"
#include "cluster/fabric/fault.h"
#include "cluster/node/inbox.h"
#include "cluster/node/outbox.h"
#include "cluster/ring/producer.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/server.h"
#include "cluster/rpc/status.h"
#include "cluster/telemetry/metrics.h"
#include "onepiece/v1/ring.grpc.pb.h"
#include "tests/node/transport_world.h"
#include "tests/scrape.h"

namespace onepiece::node {

inline constexpr std::size_t kMiB = 1 << 20;
inline constexpr std::uint64_t kRingBytes = kMiB;
inline constexpr std::uint32_t kSlots = 16;
/// The name of the operation that writes a piece of a large message.
inline constexpr const char* kWrite = "value.write";
inline constexpr base::Duration kFenceLimit = seconds(60);  // As in values::ReservationsOptions.

/// The system's clock, which a test moves forward.
class SkippingClock final : public base::Clock {
 public:
  base::MonotonicTime Now() const override { return base::SystemClock().Now() + skipped_.load(); }
  base::WallTime WallNow() const override { return base::SystemClock().WallNow(); }
  bool WaitUntil(base::CondVar& condition, base::MutexLock& lock, std::stop_token stop,
                 base::MonotonicTime deadline, const std::function<bool()>& predicate) override {
    return base::SystemClock().WaitUntil(condition, lock, std::move(stop),
                                         deadline - skipped_.load(), predicate);
  }
  void Skip(base::Duration by) { skipped_ = skipped_.load() + by; }

 private:
  std::atomic<base::Duration> skipped_{base::Duration::zero()};
};

/// Calls what the test says before each operation of a name. Thread-safe.
class Script final : public fabric::FaultPolicy {
 public:
  using Step = std::function<fabric::FaultKind()>;
  void At(const std::string& name, Step step) {
    const base::MutexLock lock(mutex_);
    steps_[name] = std::move(step);
  }
  /// The step is gone when it is called.
  void Once(const std::string& name, Step step) {
    At(name, [this, name, step = std::move(step)] {
      At(name, [] { return fabric::FaultKind::kNone; });
      return step();
    });
  }
  fabric::Fault Before(const fabric::FaultPoint& point) override {
    Step step;
    {
      const base::MutexLock lock(mutex_);
      const auto found = steps_.find(point.name);
      if (found != steps_.end()) step = found->second;
    }
    return {.kind = step ? step() : fabric::FaultKind::kNone};
  }

 private:
  base::Mutex mutex_;
  std::map<std::string, Step> steps_ ABSL_GUARDED_BY(mutex_);
};

/// Stands before a receiver's ring service, and does what the test says.
class Front final : public v1::RingService::Service {
 public:
  explicit Front(const Receiver& receiver)
      : endpoint(receiver.endpoint),
        stub_(v1::RingService::NewStub(rpc::MakeChannel(receiver.endpoint.address()))) {
    server_.AddService(*this);
    if (const auto port = server_.Start(); !port.ok())
      qFatal("%s", base::Message(port.status()).c_str());
    endpoint.set_address(server_.address());
  }
  ~Front() override { server_.Shutdown(base::Duration(0)); }

  grpc::Status OpenRing(grpc::ServerContext*, const v1::OpenRingRequest* request,
                        v1::OpenRingResponse* response) override {
    return Pass(&v1::RingService::Stub::OpenRing, *request, *response);
  }
  grpc::Status ReserveValue(grpc::ServerContext*, const v1::ReserveValueRequest* request,
                            v1::ReserveValueResponse* response) override {
    const grpc::Status passed = Pass(&v1::RingService::Stub::ReserveValue, *request, *response);
    if (lost_answers_-- <= 0) return passed;
    return {grpc::StatusCode::UNAVAILABLE, "the answer is lost"};
  }
  grpc::Status RenewValue(grpc::ServerContext*, const v1::RenewValueRequest* request,
                          v1::RenewValueResponse* response) override {
    if (before_renew) before_renew();
    return Pass(&v1::RingService::Stub::RenewValue, *request, *response);
  }
  void LoseAnswers(int number) { lost_answers_ = number; }

  v1::Endpoint endpoint;               ///< Of the receiver, behind this.
  std::function<void()> before_renew;  ///< Set before the first call comes.

 private:
  template <typename Request, typename Response>
  grpc::Status Pass(grpc::Status (v1::RingService::Stub::*method)(grpc::ClientContext*,
                                                                  const Request&, Response*),
                    const Request& request, Response& response) {
    auto answer = rpc::Call(*stub_, method, request, seconds(20));
    if (answer.ok()) response = *std::move(answer);
    return rpc::ToGrpc(answer.status());
  }

  const std::unique_ptr<v1::RingService::Stub> stub_;
  std::atomic<int> lost_answers_{0};
  rpc::Server server_{{.listen = "127.0.0.1:0"}};  // Last: it ends before what its handlers use.
};

inline bool Same(const message::Message& a, const message::Message& b) {
  return a.header.uid == b.header.uid && a.artifacts.size() == 1 && b.artifacts.size() == 1 &&
         std::ranges::equal(a.artifacts[0].data.bytes(), b.artifacts[0].data.bytes());
}

/// A sender, whose fabric follows a script, and receivers. A test class is one of these too.
class LargeMessages {
 protected:
  void SetUp() {
    fabric_ = *fabric::Fabric::Open("shm://" + ClusterId());
    board_ = std::make_shared<fabric::FaultBoard>();
    script_ = std::make_shared<Script>();
    receiving_ =
        std::make_unique<fabric::FaultyFabric>(*fabric_, board_, board_->NewProcess(), nullptr);
    sending_ =
        std::make_unique<fabric::FaultyFabric>(*fabric_, board_, board_->NewProcess(), script_);
    other_ =
        std::make_unique<fabric::FaultyFabric>(*fabric_, board_, board_->NewProcess(), nullptr);
    cluster_ = std::make_unique<Cluster>();
    metrics_ = std::make_unique<telemetry::Metrics>("test", "n1");
    metrics_address_ = *metrics_->Serve("127.0.0.1:0");
    outbox_ = Outbox::Create(*sending_, cluster_->view(), {.node_id = "sender"}, clock_);
  }
  void TearDown() {
    outbox_.reset();
    metrics_.reset();
    cluster_.reset();
    other_.reset();
    sending_.reset();
    receiving_.reset();
    fabric_.reset();
  }

  std::unique_ptr<fabric::Fabric> fabric_;
  std::shared_ptr<fabric::FaultBoard> board_;
  std::shared_ptr<Script> script_;
  std::unique_ptr<fabric::FaultyFabric> receiving_, sending_, other_;
  SkippingClock clock_;
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<telemetry::Metrics> metrics_;
  std::string metrics_address_;
  std::unique_ptr<Outbox> outbox_;

  base::MonotonicTime Within(base::Duration limit) { return clock_.Now() + limit; }
  /// A receiver with a ring of 1 MiB, so messages of more than 128 KiB travel as values.
  std::unique_ptr<Receiver> Open(const std::string& node_id, std::uint64_t value_bytes,
                                 ring::Shape shape = ring::Shape::kShared) {
    return std::make_unique<Receiver>(
        *receiving_, node_id,
        InboxOptions{.shape = shape,
                     .capacity_bytes = kRingBytes,
                     .slots = kSlots,
                     .value_bytes = value_bytes,
                     .metrics = node_id == "i1" ? metrics_.get() : nullptr},
        1, clock_);
  }
  /// The value of a metric of the receiver "i1".
  double Metric(const std::string& name) const {
    for (const QByteArray& line : testing::Scrape(metrics_address_).split('\n')) {
      if (line.startsWith((name + " ").c_str())) return line.split(' ').last().toDouble();
    }
    return -1;
  }
  absl::StatusOr<v1::ReserveValueResponse> ReserveAt(const Receiver& receiver,
                                                     std::uint64_t length) {
    return ReserveAt(receiver, length, other_->Dial().value()->offer());
  }
  absl::StatusOr<v1::ReserveValueResponse> ReserveAt(const Receiver& receiver, std::uint64_t length,
                                                     const fabric::Offer& offer,
                                                     std::uint64_t number = 0) {
    v1::ReserveValueRequest request;
    request.set_request(number);
    request.set_node_id("raw");
    request.set_consumer_incarnation(receiver.endpoint.incarnation());
    request.set_length(length);
    request.set_offer(offer.Serialize());
    const auto stub = v1::RingService::NewStub(rpc::MakeChannel(receiver.endpoint.address()));
    return rpc::Call(*stub, &v1::RingService::Stub::ReserveValue, request, seconds(10));
  }
  absl::StatusOr<v1::RenewValueResponse> RenewAt(const Receiver& receiver,
                                                 std::uint64_t reservation) {
    v1::RenewValueRequest request;
    request.set_reservation(reservation);
    request.set_consumer_incarnation(receiver.endpoint.incarnation());
    const auto stub = v1::RingService::NewStub(rpc::MakeChannel(receiver.endpoint.address()));
    return rpc::Call(*stub, &v1::RingService::Stub::RenewValue, request, seconds(10));
  }
  /// Puts bytes into the ring that no Outbox would send.
  void SendRaw(const Receiver& receiver, std::span<const std::byte> bytes) {
    v1::OpenRingRequest request;
    request.set_producer_id(77);
    request.set_incarnation(++raw_opens_);
    const auto dialer = *other_->Dial();
    request.set_offer(dialer->offer().Serialize());
    request.set_consumer_incarnation(receiver.endpoint.incarnation());
    const auto stub = v1::RingService::NewStub(rpc::MakeChannel(receiver.endpoint.address()));
    const auto response = rpc::Call(*stub, &v1::RingService::Stub::OpenRing, request, seconds(5));
    QVERIFY(response.ok());
    const auto producer =
        ring::Producer::Connect(*dialer, *ring::ProducerGrant::Parse(response->grant()));
    QVERIFY(producer.ok());
    const base::Piece piece{.bytes = bytes, .crc32c = base::Crc32c(bytes)};
    const auto sent = (*producer)->Send(raw_opens_, {&piece, 1}, In(seconds(5)));
    QVERIFY(sent.ok() && sent->outcome == ring::SendOutcome::kOk);
  }
  std::uint64_t raw_opens_ = 0;
};

}  // namespace onepiece::node
