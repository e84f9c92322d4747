// Who may open, close and write where: a node speaks for itself alone.
#include <QtTest>

#include "cluster/base/ids.h"
#include "cluster/node/inbox.h"
#include "cluster/rpc/channel.h"
#include "onepiece/v1/ring.grpc.pb.h"
#include "tests/node/secure_nodes.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::node {
namespace {

using identity::Role;
using RingStub = v1::RingService::Stub;

constexpr std::chrono::seconds kCallLimit(20);
constexpr std::uint64_t kProducer = 7;

}  // namespace

class InboxDoorTest : public QObject {
  Q_OBJECT
 public:
  static void initMain() { rpc::RequireTls13(); }

 private Q_SLOTS:
  void initTestCase() {
    auto fabric = fabric::Fabric::Open("shm://test-" + base::Uid::GenerateRandom().ToString());
    QVERIFY(fabric.ok());
    fabric_ = *std::move(fabric);
    nodes_ = std::make_unique<testing::SecureNodes>("test");
    v1::Endpoint self;
    self.set_node_id("i1");
    self.set_incarnation(1);
    view_.SetSelf(self);
    auto inbox = Inbox::Open(*fabric_, view_,
                             {.capacity_bytes = 1 << 20, .slots = 16, .value_bytes = 64 << 20});
    QVERIFY(inbox.ok());
    inbox_ = *std::move(inbox);
    inbox_->SetDoor(&nodes_->door());
    server_ = std::make_unique<rpc::Server>(nodes_->ServerOf("i1", Role::kInstance));
    server_->AddService(*inbox_->service());
    QVERIFY(server_->Start().ok());
    honest_ = Connect("p1", Role::kProxy);
    rogue_ = Connect("i2", Role::kInstance);
  }
  void cleanupTestCase() { server_.reset(); }

  void OpenRing_InTheNameOfAnother_IsRefused() {
    QCOMPARE(OpenRing(*rogue_, "p1", 1), std::string("FOREIGN_NODE"));
    QCOMPARE(OpenRing(*rogue_, "", 1), std::string("FOREIGN_NODE"));
  }

  // Else the consumer would forget the live producer, and lose what it has acknowledged.
  void Producer_OfAnotherNode_CanNeitherBeClosedNorTaken() {
    QCOMPARE(OpenRing(*honest_, "p1", kProducer), std::string());
    QCOMPARE(CloseRing(*rogue_, kProducer, 1), std::string("FOREIGN_PRODUCER"));
    QCOMPARE(OpenRing(*rogue_, "i2", kProducer, 2), std::string("FOREIGN_PRODUCER"));
    // Its own node may do both; the connection was there all the time.
    QCOMPARE(OpenRing(*honest_, "p1", kProducer, 2), std::string());
    QCOMPARE(CloseRing(*honest_, kProducer, 2), std::string());
    // The messages that it sent are still known by its id.
    QCOMPARE(OpenRing(*rogue_, "i2", kProducer, 3), std::string("FOREIGN_PRODUCER"));
    QCOMPARE(OpenRing(*honest_, "p1", kProducer, 4), std::string());
  }

  void Reservation_OfAnotherNode_CanNeitherBeMadeNorRenewedNorGivenUp() {
    QCOMPARE(Reason(Reserve(*rogue_, "p1").status()), std::string("FOREIGN_NODE"));
    const auto reserved = Reserve(*honest_, "p1");
    QVERIFY2(reserved.ok(), base::Message(reserved.status()).c_str());
    const std::uint64_t id = reserved->reservation();
    QCOMPARE(Reason(Renew(*rogue_, id, false).status()), std::string("FOREIGN_RESERVATION"));
    QCOMPARE(Reason(Renew(*rogue_, id, true).status()), std::string("FOREIGN_RESERVATION"));
    const auto renewed = Renew(*honest_, id, false);
    QVERIFY(renewed.ok());
    QCOMPARE(static_cast<int>(renewed->fate()), static_cast<int>(v1::RenewValueResponse::OPEN));
    QVERIFY(Renew(*honest_, id, true).ok());
  }

  void Role_WithoutWork_MayNotCall() {
    const auto agent = Connect("a1", Role::kAgent);
    QCOMPARE(OpenRing(*agent, "a1", 9), std::string("WRONG_ROLE"));
  }

 private:
  std::unique_ptr<RingStub> Connect(const std::string& id, Role role) {
    return v1::RingService::NewStub(nodes_->ChannelOf(id, role, server_->address()));
  }
  /// Why it was refused; empty: it was not.
  std::string OpenRing(RingStub& stub, const std::string& node_id, std::uint64_t producer,
                       std::uint64_t incarnation = 1) {
    dialers_.push_back(*fabric_->Dial());
    v1::OpenRingRequest request;
    request.set_node_id(node_id);
    request.set_producer_id(producer);
    request.set_incarnation(incarnation);
    request.set_consumer_incarnation(1);
    request.set_offer(dialers_.back()->offer().Serialize());
    return Reason(rpc::Call(stub, &RingStub::OpenRing, request, kCallLimit).status());
  }
  std::string CloseRing(RingStub& stub, std::uint64_t producer, std::uint64_t incarnation) {
    v1::CloseRingRequest request;
    request.set_producer_id(producer);
    request.set_incarnation(incarnation);
    return Reason(rpc::Call(stub, &RingStub::CloseRing, request, kCallLimit).status());
  }
  absl::StatusOr<v1::ReserveValueResponse> Reserve(RingStub& stub, const std::string& node_id) {
    dialers_.push_back(*fabric_->Dial());
    v1::ReserveValueRequest request;
    request.set_node_id(node_id);
    request.set_consumer_incarnation(1);
    request.set_length(1 << 20);
    request.set_offer(dialers_.back()->offer().Serialize());
    return rpc::Call(stub, &RingStub::ReserveValue, request, kCallLimit);
  }
  absl::StatusOr<v1::RenewValueResponse> Renew(RingStub& stub, std::uint64_t id, bool give_up) {
    v1::RenewValueRequest request;
    request.set_reservation(id);
    request.set_consumer_incarnation(1);
    request.set_give_up(give_up);
    return rpc::Call(stub, &RingStub::RenewValue, request, kCallLimit);
  }

  std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<testing::SecureNodes> nodes_;
  ClusterView view_;
  std::vector<std::unique_ptr<fabric::Dialer>> dialers_;
  std::unique_ptr<Inbox> inbox_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<RingStub> honest_, rogue_;
};

}  // namespace onepiece::node

ONEPIECE_TEST(onepiece::node::InboxDoorTest)
#include "inbox_door_test.moc"
