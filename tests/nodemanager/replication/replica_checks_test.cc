// Tests what a whole replica finds out about itself and tells others: a state that differs from
// that of the majority, and its health (grpc.health.v1) while faults come and go.
#include <signal.h>
#include <sys/resource.h>

#include <QDir>
#include <QTemporaryDir>
#include <QtTest>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/rpc/channel.h"
#include "nodemanager/replication/codec.h"
#include "nodemanager/replication/corrupt_marker.h"
#include "nodemanager/replication/store.h"
#include "onepiece/v1/consensus.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/eventually.h"
#include "tests/health.h"
#include "tests/nodemanager/replication/log_group.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using testing::Eventually;

const std::string kLeaders = v1::NodeManagerService::service_full_name();
const std::string kConsensus = v1::ConsensusService::service_full_name();

bool Serves(Node& node, const std::string& service) {
  return testing::AskHealth(node.address(), service) == testing::kServing;
}

// The whole server, and the services that a leader answers.
bool HasHealth(Node& node, bool takes_part, bool knows_leader) {
  return Eventually(kNodeLimit, [&] {
    return Serves(node, "") == takes_part && Serves(node, kLeaders) == knows_leader;
  });
}

bool IsCorrupt(Node& node) { return node.log().Status().health() == v1::ReplicaStatus::CORRUPT; }

// Another leader of the group of `follower`, made of messages alone.
class FakeLeader {
 public:
  explicit FakeLeader(Node& follower)
      : to_(follower.log().Status().replica()),
        stub_(v1::ReplicaService::NewStub(rpc::MakeChannel(follower.address()))) {
    rpc::SetTimeout(context_, kNodeLimit);
    stream_ = stub_->Exchange(&context_, &response_);
    v1::ReplicaEnvelope envelope;
    v1::ReplicaHello& hello = *envelope.mutable_hello();
    hello.set_cluster_id("fake");
    hello.set_name("nm-1");
    hello.set_address("127.0.0.1:1");
    hello.set_replica(kId.value);
    hello.set_boot(1);
    hello.set_to(to_.value);
    hello.set_group(5);
    said_ = stream_->Write(envelope);
  }
  ~FakeLeader() {
    context_.TryCancel();
    (void)stream_->Finish();
  }
  void Say(decltype(paxos::Message::body) body) {
    v1::ReplicaEnvelope envelope;
    *envelope.add_messages() = EncodeMessage({.from = kId, .to = to_, .body = std::move(body)});
    said_ = said_ && stream_->Write(envelope);
  }
  // Tells that the slots up to `chosen` are chosen.
  void Beat(paxos::Slot chosen) {
    Say(paxos::Accept{.ballot = {1, kId}, .first = chosen + 1, .chosen = chosen});
  }
  // Sends the state after `slot`, in which the follower has a seat.
  void Install(paxos::Slot slot, Node& follower) {
    auto snapshot = std::make_shared<paxos::Snapshot>();
    snapshot->index = slot;
    snapshot->members.seats = {{.name = "nm-1", .address = "127.0.0.1:1", .replica = kId},
                               {follower.options().name, follower.address(), to_}};
    snapshot->state = std::make_shared<const std::string>(StateMachine().Serialize());
    Say(paxos::InstallSnapshot{{1, kId}, std::move(snapshot), {}});
  }

 private:
  static constexpr paxos::ReplicaId kId{77};
  const paxos::ReplicaId to_;
  std::unique_ptr<v1::ReplicaService::Stub> stub_;
  grpc::ClientContext context_;
  google::protobuf::Empty response_;
  std::unique_ptr<grpc::ClientWriter<v1::ReplicaEnvelope>> stream_;
  bool said_ = false;
};

}  // namespace

class ReplicaChecksTest : public QObject, private LogGroup {
  Q_OBJECT
 private:
  // nm-1 to nm-3 with addresses that stay.
  void StartGroup() {
    for (const char* name : {"nm-1", "nm-2", "nm-3"}) Add(name);
    MakeConfigured();
    nodes_[0]->options().bootstrap = true;
    for (const auto& node : nodes_) QVERIFY(node->Start().ok());
    QVERIFY(Propose(1));
    for (const auto& node : nodes_) {
      QVERIFY(Eventually(kNodeLimit, [&] {
        return node->Knows("first") && node->log().Status().role() != v1::ReplicaStatus::LEARNER;
      }));
    }
  }
  // Proposes commands to the group until all are known to be applied.
  bool Propose(int commands) {
    for (int i = 0; i < commands; ++i) {
      const v1::Command command =
          RegisterCommand(MakeNode(proposed_ == 0 ? "first" : absl::StrCat("n", proposed_ % 9),
                                   v1::PROXY, static_cast<std::uint64_t>(proposed_ + 1)),
                          absl::StrCat("r", proposed_));
      ++proposed_;
      if (!AtTheLeader([&](Node& leader) { return leader.log().Propose(command).ok(); }))
        return false;
    }
    return true;
  }
  // Changes the state of `node` on its disk, with checksums that are right.
  void Flip(Node& node) {
    // The snapshot holds all that is applied, so that the log mends nothing.
    QVERIFY(node.log().TakeSnapshot().ok());
    node.End();
    auto store = Store::Open(node.options().data_dir);
    QVERIFY(store.ok());
    paxos::Snapshot snapshot = (*store)->TakeState().snapshot;
    v1::NodeManagerState state;
    QVERIFY(state.ParseFromString(*snapshot.state));
    QVERIFY(state.nodes_size() > 0);
    state.mutable_nodes(0)->mutable_node()->set_detail("flipped");
    snapshot.state = std::make_shared<const std::string>(state.SerializeAsString());
    paxos::Writes writes;
    writes.install = std::make_shared<const paxos::Snapshot>(std::move(snapshot));
    QVERIFY((*store)->Commit(writes).ok());
    store->reset();
    QVERIFY(node.Start().ok());
  }
  // Checks that nm-1 is fenced, and that the others go on, now and after it was replaced.
  void CheckThatTheFirstIsFenced() {
    Node& odd = *nodes_[0];
    QVERIFY(Eventually(kNodeLimit, [&] { return IsCorrupt(odd); }));
    const v1::ReplicaStatus status = odd.log().Status();
    QVERIFY2(status.health_detail().find("the majority's has") != std::string::npos,
             status.health_detail().c_str());
    QVERIFY(HasHealth(odd, false, false));
    QVERIFY(Serves(odd, kConsensus));
    QVERIFY(!odd.Leads());
    QCOMPARE(Reason(odd.log().MakeBackup({}).status()), std::string("CORRUPT"));
    QCOMPARE(Reason(odd.log().Propose(RegisterCommand(MakeNode("x", v1::PROXY))).status()),
             std::string("NOT_LEADER"));
    QVERIFY(Propose(70));
    for (const int sound : {1, 2}) {
      QVERIFY(!IsCorrupt(*nodes_[sound]));
      QVERIFY(HasHealth(*nodes_[sound], true, true));
    }
    odd.End();
    QVERIFY(odd.Start().ok());
    QVERIFY(IsCorrupt(odd));
    QVERIFY(HasHealth(odd, false, false));
    QCOMPARE(odd.log().Status().health_detail(), status.health_detail());
    odd.End();
    odd.Wipe();
    QVERIFY(odd.Start().ok());
    QVERIFY(HasHealth(odd, true, true));
    QVERIFY(Propose(70));
    QVERIFY(Eventually(kNodeLimit, [&] { return odd.State() == nodes_[1]->State(); }));
    for (const auto& node : nodes_) QVERIFY(!IsCorrupt(*node));
  }

 private Q_SLOTS:
  void init() {
    dir_ = std::make_unique<QTemporaryDir>();
    proposed_ = 0;
  }
  void cleanup() { nodes_.clear(); }

  void SoundStates_AgreeForEver() {
    StartGroup();
    QVERIFY(Propose(200));
    for (const auto& node : nodes_) {
      QCOMPARE(node->log().Status().health(), v1::ReplicaStatus::OK);
      QVERIFY(HasHealth(*node, true, true));
    }
  }

  void FlippedFollower_IsFenced() {
    StartGroup();
    QVERIFY(Propose(10));
    QVERIFY(AtTheLeader([&](Node& leader) {
      return &leader != nodes_[0].get() || (leader.log().StepDown().IgnoreError(), false);
    }));
    Flip(*nodes_[0]);
    QVERIFY(Propose(70));
    CheckThatTheFirstIsFenced();
  }

  // The two others agree, so the leader is the odd one, and another must lead.
  void FlippedLeader_IsFenced() {
    StartGroup();
    QVERIFY(Propose(10));
    Flip(*nodes_[0]);
    QVERIFY(AtTheLeader([&](Node& leader) {
      return &leader == nodes_[0].get() || (leader.log().StepDown().IgnoreError(), false);
    }));
    QVERIFY(nodes_[0]->log().Status().applied() < 64);  // No hash was compared yet.
    QVERIFY(Propose(70));
    CheckThatTheFirstIsFenced();
  }

  void Marker_IsForOneReplica() {
    const std::string dir = dir_->path().toStdString();
    QVERIFY(!ReadCorruptMarker(dir, paxos::ReplicaId{7}));
    QVERIFY(WriteCorruptMarker(dir, paxos::ReplicaId{7}, "it differs").ok());
    QCOMPARE(ReadCorruptMarker(dir, paxos::ReplicaId{7}).value_or(""), std::string("it differs"));
    QVERIFY(!ReadCorruptMarker(dir, paxos::ReplicaId{8}));
    // A crash has cut it short.
    QFile file(dir_->filePath("nodemanager.corrupt"));
    QVERIFY(file.resize(0));
    QVERIFY(ReadCorruptMarker(dir, paxos::ReplicaId{8}).has_value());
    QCOMPARE(Reason(WriteCorruptMarker(dir + "/none", paxos::ReplicaId{7}, "why")),
             std::string("MARKER_NOT_WRITTEN"));
  }

  void Health_FollowsTheDisk() {
    signal(SIGXFSZ, SIG_IGN);  // A write above the limit fails, and does not end the process.
    Node& node = Add("nm-1");
    QVERIFY(node.Start().ok());
    QVERIFY(HasHealth(node, true, true));
    rlimit limit{};
    QCOMPARE(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const rlimit tight{.rlim_cur = 64 << 10, .rlim_max = limit.rlim_max};
    QCOMPARE(setrlimit(RLIMIT_FSIZE, &tight), 0);
    v1::Node big = MakeNode("big", v1::PROXY);
    big.set_detail(std::string(256 << 10, 'x'));
    (void)node.log().Propose(RegisterCommand(big, "big"));
    // The replica tries its disk again and again, and it looks well until the next write.
    QVERIFY(Eventually(kNodeLimit, [&] {
      (void)node.log().Propose(RegisterCommand(big, "big"));
      return !Serves(node, "") && !Serves(node, kLeaders);
    }));
    QVERIFY(Serves(node, kConsensus));
    QCOMPARE(setrlimit(RLIMIT_FSIZE, &limit), 0);
    QVERIFY(HasHealth(node, true, true));
  }

  void Health_FollowsTheLeader() {
    StartGroup();
    nodes_[0]->End();
    nodes_[1]->End();
    // It would take part, if there were a leader.
    QVERIFY(HasHealth(*nodes_[2], true, false));
    QVERIFY(nodes_[0]->Start().ok());
    QVERIFY(HasHealth(*nodes_[2], true, true));
    QVERIFY(HasHealth(*nodes_[0], true, true));
  }

  void Health_OfAReplicaThatIsFarBehind() {
    Node& node = Add("nm-2");
    node.options().seats = {{.name = "nm-1", .address = "127.0.0.1:1"}, {.name = "nm-2"}};
    QVERIFY(node.Start().ok());
    FakeLeader leader(node);
    const auto becomes = [&](v1::ReplicaStatus::Health health) {
      return Eventually(kNodeLimit, [&] {
        leader.Beat(paxos::Slot{1000});
        return node.log().Status().health() == health;
      });
    };
    QVERIFY(becomes(v1::ReplicaStatus::CATCHING_UP));
    QCOMPARE(node.log().Status().health_detail(), std::string("1000 slots behind the leader"));
    QVERIFY(HasHealth(node, false, false));
    leader.Install(paxos::Slot{1000}, node);
    QVERIFY(becomes(v1::ReplicaStatus::OK));
    QVERIFY(Eventually(kNodeLimit, [&] {
      leader.Beat(paxos::Slot{1000});
      return Serves(node, "") && Serves(node, kLeaders);
    }));
  }

 private:
  int proposed_ = 0;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::ReplicaChecksTest)
#include "replica_checks_test.moc"
