// Tests whole replicas in one process, over loopback gRPC and with real files.
#include "nodemanager/replication/replicated_log.h"

#include <signal.h>
#include <sys/resource.h>

#include <QDir>
#include <QTemporaryDir>
#include <QtTest>
#include <functional>
#include <future>
#include <random>

#include "absl/strings/str_cat.h"
#include "cluster/rpc/channel.h"
#include "tests/eventually.h"
#include "tests/nodemanager/replication/hold.h"
#include "tests/nodemanager/replication/log_group.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Eventually;

// A stream to a replica, as a peer opens it.
class Caller {
 public:
  explicit Caller(const std::string& address, base::Duration limit = kNodeLimit)
      : stub_(v1::ReplicaService::NewStub(rpc::MakeChannel(address))) {
    rpc::SetTimeout(context_, limit);
    writer_ = stub_->Exchange(&context_, &response_);
  }
  void Say(const v1::ReplicaHello& hello) {
    v1::ReplicaEnvelope envelope;
    *envelope.mutable_hello() = hello;
    said_ = writer_->Write(envelope);
  }
  // Returns the status with which the other side ended the stream.
  absl::Status Finish() {
    // It writes until the stream breaks, so that its own end does not overtake a refusal.
    const v1::ReplicaEnvelope nothing;
    while (said_ && writer_->Write(nothing)) continue;
    return rpc::FromGrpc(writer_->Finish());
  }

 private:
  std::unique_ptr<v1::ReplicaService::Stub> stub_;
  grpc::ClientContext context_;
  google::protobuf::Empty response_;
  std::unique_ptr<grpc::ClientWriter<v1::ReplicaEnvelope>> writer_;
  bool said_ = false;
};

}  // namespace

class ReplicatedLogTest : public QObject, private LogGroup {
  Q_OBJECT
 private:
  // nm-1 begins a group, and the others join it.
  void MakeGroup(int size) {
    Node& first = Add("nm-1");
    QVERIFY(first.Start().ok());
    QVERIFY(first.WaitUntilLeading());
    for (int i = 2; i <= size; ++i) {
      Node& node = Add(absl::StrCat("nm-", i));
      node.options().seats = {first.seat(), {.name = node.options().name}};
      QVERIFY(node.Open().ok());
      QVERIFY(Join(node));
    }
  }
  // Adds nm-1 to nm-3 with seats that name each other, and addresses that stay. None is started.
  void MakeConfiguredGroup() {
    for (const char* name : {"nm-1", "nm-2", "nm-3"}) Add(name);
    MakeConfigured();
  }
  static bool WaitsFor(Node& node, const std::string& detail) {
    return Eventually(kNodeLimit, [&] {
      const v1::ReplicaStatus status = node.log().Status();
      return status.health() == v1::ReplicaStatus::WAITING &&
             status.health_detail().find(detail) != std::string::npos;
    });
  }
  // Adds a seat for an opened node to the group of the first node and starts the opened node.
  // Returns true when the node occupies the seat.
  bool Join(Node& node) {
    const auto add = [&](Node& member) { return member.log().AddSeat(node.seat()).ok(); };
    if (!AtTheLeader(add) || !node.log().Start(node.address()).ok()) return false;
    return Occupies(*nodes_[0], node);
  }
  // Proposes the command to the group until it is known to be applied.
  bool Propose(v1::Command command) {
    static int requests = 0;
    command.set_request_id(absl::StrCat("group", ++requests));
    return AtTheLeader([&](Node& leader) { return leader.log().Propose(command).ok(); });
  }
  static bool Occupies(Node& member, Node& node) {
    return Eventually(kNodeLimit, [&] {
      const std::uint64_t self = node.log().Status().replica();
      const v1::ReplicaStatus status = member.log().Status();
      for (const v1::Seat& seat : status.members().seats()) {
        if (seat.name() == node.options().name && seat.replica() == self) return true;
      }
      return false;
    });
  }
  Node* Leader() {
    Node* leader = nullptr;
    const bool found = Eventually(kNodeLimit, [&] {
      for (const auto& node : nodes_) {
        if (node->Leads()) leader = node.get();
      }
      return leader != nullptr;
    });
    if (!found) qFatal("nobody leads");
    return leader;
  }
  // Returns true once a follower refuses a command and names the node that leads.
  bool FollowersNameTheirLeader() {
    return AtTheLeader([&](Node& leader) {
      const absl::Status refused =
          OtherThan(leader).log().Propose(RegisterCommand(MakeNode("q", v1::PROXY))).status();
      return Reason(refused) == "NOT_LEADER" &&
             base::GetReason(refused).metadata["leader"] == leader.address();
    });
  }
  static std::uint64_t PlanRevision(Node& node) {
    std::uint64_t revision = 0;
    node.log().Read([&](const StateMachine& machine) { revision = machine.plan_revision(); });
    return revision;
  }
  Node& OtherThan(const Node& node) { return *(nodes_[0].get() == &node ? nodes_[1] : nodes_[0]); }
  bool AllEqual() {
    return Eventually(kNodeLimit, [&] {
      for (const auto& node : nodes_) {
        if (node->State() != nodes_[0]->State()) return false;
      }
      return true;
    });
  }

 private Q_SLOTS:
  void init() { dir_ = std::make_unique<QTemporaryDir>(); }
  void cleanup() { nodes_.clear(); }

  void Alone_LeadsWithoutAnElectionWait() {
    Node& node = Add("nm-1");
    node.options().paxos.election_min = node.options().paxos.election_max = seconds(3600);
    for (int start = 0; start < 2; ++start) {
      QVERIFY(node.Start().ok());
      QVERIFY(node.WaitUntilLeading());
      QVERIFY(node.log().IsAlone());
      QVERIFY(node.Propose(RegisterCommand(MakeNode(absl::StrCat("p", start), v1::PROXY))));
      const auto term = node.log().Term();
      QVERIFY(term.ok() && node.log().Confirm(*term).ok());
      QVERIFY(!node.log().Confirm(*term + 1).ok());
      node.End();
    }
  }

  void FullWindow_MakesProposalsWait() {
    Node& node = Add("nm-1");
    node.options().paxos.window_slots = 1;
    QVERIFY(node.Start().ok());
    QVERIFY(node.WaitUntilLeading());
    std::vector<std::future<absl::Status>> answers;
    for (int i = 0; i < 32; ++i) {
      answers.push_back(std::async(std::launch::async, [&node, i] {
        return node.log()
            .Propose(RegisterCommand(MakeNode(absl::StrCat("p", i), v1::PROXY)))
            .status();
      }));
    }
    for (auto& answer : answers) {
      const absl::Status status = answer.get();
      QVERIFY2(status.ok(), status.ToString().c_str());
    }
  }

  void Alone_KeepsEverythingAcrossReopening() {
    Node& node = Add("nm-1");
    node.options().snapshot_every = 16;
    std::mt19937_64 random(3);
    std::string before = StateMachine().Serialize();
    for (int round = 0; round < 4; ++round) {
      QVERIFY(node.Start().ok());
      QVERIFY(node.WaitUntilLeading());
      QCOMPARE(node.State(), before);
      for (int i = 0; i < 25; ++i) {
        v1::Command command;
        node.log().Read(
            [&](const StateMachine& machine) { command = RandomCommand(random, machine); });
        QVERIFY(node.log().Propose(command).ok());
      }
      QVERIFY(node.log().Status().snapshot() > 0);
      before = node.State();
      node.End();
    }
  }

  void Group_AppliesEverywhereAndNamesItsLeader() {
    MakeGroup(3);
    QVERIFY(Propose(RegisterCommand(MakeNode("p", v1::PROXY))));
    QVERIFY(AllEqual());
    QVERIFY(FollowersNameTheirLeader());
    // The lease comes only after the leader has watched the followers' clocks for a while.
    v1::ReplicaStatus status;
    QVERIFY(AtTheLeader([&](Node& leader) {
      status = leader.log().Status();
      return status.lease() && status.role() == v1::ReplicaStatus::LEADER;
    }));
    QCOMPARE(status.members().seats_size(), 3);
    QCOMPARE(status.progress_size(), 3);
    Node& follower = OtherThan(*Leader());
    QCOMPARE(follower.log().Addresses().size(), std::size_t{3});
    QVERIFY(!status.cluster_id().empty());
    QCOMPARE(follower.log().cluster_id(), status.cluster_id());
    const v1::ListLogResponse log = follower.log().ListLog({}, 1000);
    QVERIFY(std::any_of(log.lines().begin(), log.lines().end(), [](const auto& line) {
      return line.kind() == "register_node" && line.subject() == "p";
    }));
  }

  // Heartbeats and votes are the driver's, and the state is the Applier's.
  void SlowReader_CostsNoLeadership() {
    MakeGroup(3);
    Node& leader = *Leader();
    Node& follower = OtherThan(leader);
    const v1::ReplicaStatus before = follower.log().Status();
    std::future<absl::Status> answer;
    {
      const Hold hold(leader.log());
      answer = std::async(std::launch::async, [&leader] {
        return leader.log().Propose(RegisterCommand(MakeNode("p", v1::PROXY), "p")).status();
      });
      // The follower learns from a later heartbeat that the slot is chosen.
      QVERIFY(Eventually(kNodeLimit, [&] { return follower.Knows("p"); }));
      QVERIFY(answer.wait_for(seconds(0)) == std::future_status::timeout);
      QCOMPARE(follower.log().Status().round(), before.round());
    }
    QVERIFY(answer.get().ok());
    QVERIFY(leader.Knows("p"));
  }

  void Group_SurvivesItsLeaderWhichCatchesUp() {
    MakeGroup(3);
    Node& first = *Leader();
    QVERIFY(Propose(RegisterCommand(MakeNode("before", v1::PROXY))));
    first.End();
    QVERIFY(Propose(RegisterCommand(MakeNode("after", v1::PROXY))));
    QVERIFY(Leader()->Knows("before"));
    QVERIFY(first.Start().ok());
    QVERIFY(Eventually(kNodeLimit, [&] { return first.Knows("after"); }));
    QVERIFY(AllEqual());
  }

  void StepDown_HandsOver() {
    MakeGroup(3);
    QVERIFY(Propose(RegisterCommand(MakeNode("p", v1::PROXY))));
    Node* first = nullptr;
    QVERIFY(AtTheLeader([&](Node& leader) {
      first = &leader;
      return leader.log().StepDown().ok();
    }));
    QVERIFY(AtTheLeader([&](Node& leader) { return &leader != first && !first->Leads(); }));
    QVERIFY(Propose(RegisterCommand(MakeNode("q", v1::PROXY))));
  }

  void WipedFollower_ComesBackAsANewReplicaInItsSeat() {
    MakeGroup(3);
    Node& leader = *Leader();
    QVERIFY(Propose(RegisterCommand(MakeNode("p", v1::PROXY))));
    Node& lost = OtherThan(leader);
    const std::uint64_t old = lost.log().Status().replica();
    lost.End();
    lost.Wipe();
    lost.options().seats = {leader.seat(), lost.seat()};
    lost.options().bootstrap = true;  // It is left in the configuration, and makes no second group.
    QVERIFY(lost.Start().ok());
    QVERIFY(lost.log().Status().replica() != old);
    QVERIFY(Occupies(leader, lost));
    QVERIFY(Eventually(kNodeLimit, [&] { return lost.Knows("p"); }));
    QCOMPARE(lost.log().cluster_id(), leader.log().cluster_id());
  }

  void Snapshot_FeedsWhoIsFarBehind() {
    Node& first = Add("nm-1");
    first.options().snapshot_every = 8;
    first.options().paxos.keep_slots = 4;
    QVERIFY(first.Start().ok());
    QVERIFY(first.WaitUntilLeading());
    for (int i = 0; i < 40; ++i)
      QVERIFY(first.Propose(RegisterCommand(MakeNode(absl::StrCat("n", i), v1::PROXY))));
    QVERIFY(first.log().Status().first_slot() > 1);
    Node& second = Add("nm-2");
    second.options().seats = {first.seat(), {.name = "nm-2"}};
    QVERIFY(second.Open().ok());
    QVERIFY(Join(second));
    QVERIFY(AllEqual());
    // Both are asked each time: a change of leader adds a slot, which the second may apply first.
    v1::ReplicaStatus ahead;
    v1::ReplicaStatus behind;
    QVERIFY(Eventually(kNodeLimit, [&] {
      ahead = first.log().StatusWithHash();
      behind = second.log().StatusWithHash();
      return ahead.applied() == behind.applied();
    }));
    QVERIFY(ahead.state_hash() != 0);
    QCOMPARE(behind.state_hash(), ahead.state_hash());
    const auto taken = second.log().TakeSnapshot();
    QVERIFY(taken.ok() && taken->index() > 0 && taken->bytes() > 0);
  }

  void DataFolder_OfAnotherIsRefused() {
    Node& node = Add("nm-1");
    node.options().cluster_id = "blue";
    QVERIFY(node.Start().ok());
    node.End();
    node.options().cluster_id = "red";
    const absl::Status cluster = node.Open();
    QCOMPARE(Reason(cluster), std::string("OTHER_CLUSTER"));
    QVERIFY(base::Message(cluster).find("'blue'") != std::string::npos);
    node.options().cluster_id.clear();
    node.options().name = "nm-2";
    const absl::Status name = node.Open();
    QCOMPARE(Reason(name), std::string("OTHER_REPLICA"));
    QVERIFY(base::Message(name).find("'nm-1'") != std::string::npos);
    node.options().name = "nm-1";
    QVERIFY(node.Open().ok());
    Node second(OptionsOf("nm-1"));
    QCOMPARE(Reason(second.Open()), std::string("DATA_DIR_IN_USE"));
  }

  // The folder was damaged and moved away, and nobody who knows the group is up yet.
  void EmptyFolder_DoesNotTakeSilenceForNoGroup() {
    MakeConfiguredGroup();
    nodes_[0]->options().bootstrap = true;
    for (const auto& node : nodes_) QVERIFY(node->Start().ok());
    QVERIFY(Propose(RegisterCommand(MakeNode("p", v1::PROXY))));
    for (const auto& by : nodes_) {  // Every replica must know who occupies the seats.
      for (const auto& node : nodes_) QVERIFY(Occupies(*by, *node));
    }
    // One more command brings that to the disks, because `chosen` is written with the next batch.
    QVERIFY(Propose(RegisterCommand(MakeNode("r", v1::PROXY))));
    QVERIFY(AllEqual());
    const std::uint64_t group = nodes_[0]->log().Status().group();
    QVERIFY(group != 0);
    for (const auto& node : nodes_) node->End();
    Node& lost = *nodes_[0];
    lost.Wipe();
    QVERIFY(lost.Start().ok());
    QVERIFY(WaitsFor(lost, "nm-2 at ") && WaitsFor(lost, "nm-3 at "));
    QCOMPARE(lost.log().Status().replica(), 0u);
    QCOMPARE(Reason(lost.log().Propose(RegisterCommand(MakeNode("q", v1::PROXY))).status()),
             std::string("NOT_LEADER"));
    QVERIFY(nodes_[1]->Start().ok() && nodes_[2]->Start().ok());
    QVERIFY(Eventually(kNodeLimit, [&] { return lost.Knows("p"); }));
    QCOMPARE(lost.log().Status().group(), group);
    QCOMPARE(lost.log().Status().health(), v1::ReplicaStatus::OK);
  }

  void SeveralToldToBegin_TheFirstByNameDoes() {
    MakeConfiguredGroup();
    for (const auto& node : nodes_) node->options().bootstrap = true;
    QVERIFY(nodes_[2]->Start().ok());
    QVERIFY(WaitsFor(*nodes_[2], "nm-1 at ") && WaitsFor(*nodes_[2], "nm-2 at "));
    QVERIFY(nodes_[0]->Open().ok() && nodes_[1]->Open().ok());
    QVERIFY(WaitsFor(*nodes_[2], "comes first"));
    QVERIFY(nodes_[1]->log().Start(nodes_[1]->address()).ok());
    QVERIFY(WaitsFor(*nodes_[1], "comes first"));
    QVERIFY(nodes_[0]->log().Start(nodes_[0]->address()).ok());
    for (const auto& node : nodes_) {
      QVERIFY(Eventually(kNodeLimit, [&] { return node->log().Status().group() != 0; }));
      QCOMPARE(node->log().Status().group(), nodes_[0]->log().Status().group());
    }
  }

  void WrongReplicas_AreNamedBeforeAGroupIsBegun() {
    MakeConfiguredGroup();
    for (const auto& node : nodes_) node->options().cluster_id = "blue";
    nodes_[0]->options().bootstrap = true;
    std::swap(nodes_[0]->options().seats[1].name, nodes_[0]->options().seats[2].name);
    for (const auto& node : nodes_) QVERIFY(node->Start().ok());
    QVERIFY(WaitsFor(*nodes_[0], "is nm-3: correct"));
    nodes_[0]->End();
    std::swap(nodes_[0]->options().seats[1].name, nodes_[0]->options().seats[2].name);
    nodes_[0]->options().cluster_id = "red";
    QVERIFY(nodes_[0]->Start().ok());
    QVERIFY(WaitsFor(*nodes_[0], "belongs to cluster 'blue'"));
    nodes_[0]->End();  // It ends while it waits.
    nodes_[0]->options().cluster_id = "blue";
    QVERIFY(nodes_[0]->Start().ok());
    QVERIFY(nodes_[0]->WaitUntilLeading());
  }

  // An embedded cluster draws new ports at every start.
  void AllAtNewAddresses_AreFoundAndNamed() {
    MakeConfiguredGroup();
    nodes_[0]->options().bootstrap = true;
    for (const auto& node : nodes_) QVERIFY(node->Start().ok());
    QVERIFY(Propose(RegisterCommand(MakeNode("p", v1::PROXY))));
    for (const auto& node : nodes_) QVERIFY(Occupies(*nodes_[0], *node));
    for (const auto& node : nodes_) node->End();
    for (const auto& node : nodes_) node->Move();
    MakeConfigured();
    std::vector<std::string> addresses;
    for (const auto& node : nodes_) addresses.push_back(node->address());
    // A replica that is alone and has no leader knows the configured addresses of the others.
    QVERIFY(nodes_[0]->Start().ok());
    const auto knows = [&](Node& node) {
      const std::vector<std::string> known = node.log().Addresses();
      return std::all_of(addresses.begin(), addresses.end(), [&](const std::string& address) {
        return std::find(known.begin(), known.end(), address) != known.end();
      });
    };
    QVERIFY(knows(*nodes_[0]));
    QVERIFY(nodes_[1]->Start().ok() && nodes_[2]->Start().ok());
    QVERIFY(Propose(RegisterCommand(MakeNode("q", v1::PROXY))));
    for (const auto& node : nodes_) {
      QVERIFY(Eventually(kNodeLimit, [&] {
        std::vector<std::string> seats;
        const v1::ReplicaStatus status = node->log().Status();
        for (const v1::Seat& seat : status.members().seats()) seats.push_back(seat.address());
        return seats == addresses && node->log().Addresses() == addresses;
      }));
    }
    QVERIFY(FollowersNameTheirLeader());
  }

  // A new group was begun under the old cluster name, and a disk of the old group comes back.
  void OldDiskOfTheSameClusterName_IsKeptOut() {
    for (const char* name : {"nm-1", "nm-2"}) Add(name).options().cluster_id = "pirates";
    Node &first = *nodes_[0], &old = *nodes_[1];
    QVERIFY(first.Start().ok());
    QVERIFY(first.WaitUntilLeading());
    old.options().seats = {first.seat(), {.name = "nm-2"}};
    QVERIFY(old.Open().ok());
    QVERIFY(Join(old));
    for (int i = 0; i < 50; ++i)
      QVERIFY(Propose(RegisterCommand(MakeNode(absl::StrCat("old", i), v1::PROXY))));
    first.End();
    old.End();
    first.Wipe();
    QVERIFY(first.Start().ok());
    QVERIFY(first.WaitUntilLeading());
    QVERIFY(first.Propose(RegisterCommand(MakeNode("new", v1::PROXY))));
    QVERIFY(Eventually(kNodeLimit, [&] { return first.log().AddSeat(old.seat()).ok(); }));
    QVERIFY(old.Start().ok());
    QVERIFY(old.log().Status().group() != first.log().Status().group());
    for (const auto& [from, to] : {std::pair(&first, &old), std::pair(&old, &first)}) {
      v1::ReplicaHello hello;
      hello.set_cluster_id("pirates");
      hello.set_name(from->options().name);
      hello.set_address(from->address());
      hello.set_replica(77);  // The node's own id may be speaking already.
      hello.set_boot(1);
      hello.set_group(from->log().Status().group());
      Caller caller(to->address());
      caller.Say(hello);
      const absl::Status refused = caller.Finish();
      QCOMPARE(Reason(refused), std::string("OTHER_CLUSTER"));
      QVERIFY(base::Message(refused).find("two groups of the same cluster name") !=
              std::string::npos);
    }
    for (int i = 0; i < 20; ++i)
      QVERIFY(first.Propose(RegisterCommand(MakeNode(absl::StrCat("n", i), v1::PROXY))));
    QVERIFY(first.log().IsAlone());
    QCOMPARE(first.log().Status().progress_size(), 1);
    QVERIFY(first.Knows("new") && !first.Knows("old1") && !old.Knows("new"));
  }

  void Hello_OfTheWrongOnesIsRefused_data() {
    QTest::addColumn<QString>("wrong");
    QTest::addColumn<QString>("reason");
    QTest::newRow("another cluster") << "cluster"
                                     << "OTHER_CLUSTER";
    QTest::newRow("another group of our cluster") << "group"
                                                  << "OTHER_CLUSTER";
    QTest::newRow("our own id") << "own"
                                << "DUPLICATE_REPLICA";
    QTest::newRow("same id, another process") << "boot"
                                              << "DUPLICATE_REPLICA";
    QTest::newRow("meant for another replica") << "to"
                                               << "WRONG_REPLICA";
    QTest::newRow("no name at all") << "empty"
                                    << "BAD_HELLO";
  }
  void Hello_OfTheWrongOnesIsRefused() {
    QFETCH(QString, wrong);
    QFETCH(QString, reason);
    Node& node = Add("nm-1");
    QVERIFY(node.Start().ok());
    v1::ReplicaHello good;
    good.set_cluster_id(node.log().cluster_id());
    good.set_name("nm-2");
    good.set_address("127.0.0.1:1");
    good.set_replica(77);
    good.set_boot(1);
    good.set_to(node.log().Status().replica());
    good.set_group(node.log().Status().group());
    QVERIFY(good.group() != 0);
    Caller first(node.address());
    first.Say(good);
    v1::ReplicaHello hello = good;
    if (wrong == "cluster") hello.set_cluster_id("another");
    if (wrong == "group") hello.set_group(good.group() + 1);
    if (wrong == "own") hello.set_replica(node.log().Status().replica());
    if (wrong == "to") hello.set_to(78);
    if (wrong == "empty") hello.Clear();
    if (wrong != "boot") {
      Caller caller(node.address());
      caller.Say(hello);
      QCOMPARE(QString::fromStdString(Reason(caller.Finish())), reason);
      return;
    }
    // The second speaker is a duplicate only once the first has been heard. When the second comes
    // first, the first one is refused and must come again.
    hello.set_boot(2);
    QVERIFY(Eventually(kNodeLimit, [&] {
      Caller again(node.address());
      again.Say(good);
      Caller caller(node.address(), base::Scaled(seconds(2)));
      caller.Say(hello);
      return Reason(caller.Finish()) == reason.toStdString();
    }));
  }

  void DiskFull_IsSurvived() {
    // A write above the limit shall fail and not kill the process. This comes before any thread
    // starts.
    signal(SIGXFSZ, SIG_IGN);
    Node& node = Add("nm-1");
    QVERIFY(node.Start().ok());
    QVERIFY(node.WaitUntilLeading());
    QVERIFY(node.Propose(RegisterCommand(MakeNode("before", v1::PROXY))));
    rlimit limit{};
    QCOMPARE(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const rlimit tight{.rlim_cur = 64 << 10, .rlim_max = limit.rlim_max};
    QCOMPARE(setrlimit(RLIMIT_FSIZE, &tight), 0);
    v1::Node big = MakeNode("big", v1::PROXY);
    big.set_detail(std::string(256 << 10, 'x'));
    const absl::Status failed = node.log().Propose(RegisterCommand(big, "big")).status();
    const bool told = Eventually(
        kNodeLimit, [&] { return node.log().Status().health() == v1::ReplicaStatus::DISK_FAILED; });
    const absl::Status refused = node.log().Propose(RegisterCommand(big, "big")).status();
    QCOMPARE(setrlimit(RLIMIT_FSIZE, &limit), 0);
    QCOMPARE(Reason(failed), std::string("OUTCOME_UNKNOWN"));
    QVERIFY(told);
    QVERIFY(!refused.ok());
    QVERIFY(node.log().counters().disk_failures > 0);
    QVERIFY(node.Propose(RegisterCommand(big, "big")));
    QVERIFY(node.Knows("before") && node.Knows("big"));
    QCOMPARE(node.log().Status().health(), v1::ReplicaStatus::OK);
    node.End();
    QVERIFY(node.Start().ok());
    QVERIFY(node.WaitUntilLeading());
    QVERIFY(node.Knows("before") && node.Knows("big"));
  }

  void NewerSnapshot_IsKeptAndNotApplied() {
    Node& node = Add("nm-1");
    QVERIFY(node.Start().ok());
    QVERIFY(node.WaitUntilLeading());
    QVERIFY(node.Propose(RegisterCommand(MakeNode("p", v1::PROXY))));
    QVERIFY(node.log().TakeSnapshot().ok());
    node.End();
    {
      auto store = Store::Open(node.options().data_dir);
      QVERIFY(store.ok());
      paxos::Snapshot snapshot = (*store)->TakeState().snapshot;
      v1::NodeManagerState state;
      QVERIFY(state.ParseFromString(*snapshot.state));
      state.set_version(kCommandVersion + 1);
      snapshot.state = std::make_shared<const std::string>(state.SerializeAsString());
      paxos::Writes writes;
      writes.install = std::make_shared<const paxos::Snapshot>(std::move(snapshot));
      writes.promise = true;
      writes.promised = {1000, paxos::ReplicaId{1}};
      QVERIFY((*store)->Commit(writes).ok());
    }
    QVERIFY(node.Start().ok());
    QCOMPARE(node.log().Status().health(), v1::ReplicaStatus::NEWER_VERSION);
    QVERIFY(!node.log().TakeSnapshot().ok());
    QVERIFY(!node.Leads());
    QVERIFY(!node.Knows("p"));
  }

  // If such an entry were chosen, every replica would stop at it.
  void UnreadableCommand_IsRefused() {
    Node& node = Add("nm-1");
    QVERIFY(node.Start().ok());
    QVERIFY(node.WaitUntilLeading());
    for (const v1::Command& command :
         {RegisterCommand(MakeNode("torn \xc3", v1::PROXY)), v1::Command()}) {
      const absl::Status refused = node.log().Propose(command).status();
      QCOMPARE(refused.code(), absl::StatusCode::kInvalidArgument);
      QCOMPARE(Reason(refused), std::string("COMMAND_UNREADABLE"));
    }
    QVERIFY(node.Propose(RegisterCommand(MakeNode("p", v1::PROXY))));
    QVERIFY(node.Knows("p"));
  }

  // Operators update replicas one after another.
  void OldReplica_HoldsUpWhatItMayNotKnow() {
    Node& newer = Add("nm-1");
    newer.options().paxos.version = 1;
    QVERIFY(newer.Start().ok());
    QVERIFY(newer.WaitUntilLeading());
    Node& older = Add("nm-2");
    older.options().paxos.version = 1;
    older.options().seats = {newer.seat(), {.name = "nm-2"}};
    QVERIFY(older.Open().ok());
    QVERIFY(Join(older));
    newer.End();
    newer.options().paxos.version = kCommandVersion;
    QVERIFY(newer.Start().ok());
    v1::Command hold;
    hold.mutable_set_hold()->set_active(true);
    hold.mutable_set_hold()->set_actor("operator:ann");
    absl::Status refused;
    QVERIFY(Eventually(kNodeLimit, [&] {
      if (!newer.Leads()) older.log().StepDown().IgnoreError();
      refused = newer.log().Propose(hold).status();
      return Reason(refused) != "NOT_LEADER";
    }));
    QCOMPARE(refused.code(), absl::StatusCode::kUnavailable);
    QCOMPARE(Reason(refused), std::string("OLD_REPLICA"));
    // This command is proposed as version 1.
    QVERIFY(Propose(RegisterCommand(MakeNode("p", v1::PROXY))));
    QVERIFY(AllEqual());
    QCOMPARE(PlanRevision(newer), std::uint64_t{0});
    older.End();
    older.options().paxos.version = kCommandVersion;
    QVERIFY(older.Start().ok());
    // All know the newer version now. It is used once an operator says so.
    QVERIFY(Eventually(kNodeLimit, [&] {
      Node& leader = newer.Leads() ? newer : older;
      return Reason(leader.log().Propose(hold).status()) == "FEATURE_LEVEL";
    }));
    QVERIFY(Propose(RegisterCommand(MakeNode("q", v1::PROXY))));
    QCOMPARE(newer.log().Status().feature_level(), 1u);
    QCOMPARE(PlanRevision(newer), std::uint64_t{0});
    v1::Command raise;
    raise.mutable_raise_feature_level()->set_level(kCommandVersion);
    QVERIFY(Propose(raise));
    QVERIFY(Propose(hold));
    QVERIFY(AllEqual());
    QCOMPARE(older.log().Status().feature_level(), kCommandVersion);
    QVERIFY(PlanRevision(newer) > 0);
    QVERIFY(older.Knows("p"));
  }

  void NewerEntry_IsKeptAndNotApplied() {
    Node& newer = Add("nm-1");
    newer.options().paxos.version = kCommandVersion + 1;
    QVERIFY(newer.Start().ok());
    QVERIFY(newer.WaitUntilLeading());
    Node& older = Add("nm-2");
    older.options().paxos.version = kCommandVersion + 1;
    older.options().seats = {newer.seat(), {.name = "nm-2"}};
    QVERIFY(older.Open().ok());
    QVERIFY(Join(older));
    // This command is proposed as the newer version.
    QVERIFY(Propose(RegisterCommand(MakeNode("p", v1::PROXY))));
    QVERIFY(AllEqual());
    older.End();
    older.options().paxos.version = kCommandVersion;  // The operator goes back to the old program.
    QVERIFY(older.Start().ok());
    QVERIFY(Eventually(kNodeLimit, [&] {
      return older.log().Status().health() == v1::ReplicaStatus::NEWER_VERSION;
    }));
    QVERIFY(!older.Knows("p"));
    // The old program still votes for the replica that can lead. Both votes are needed.
    QVERIFY(newer.WaitUntilLeading());
    QVERIFY(newer.Propose(RegisterCommand(MakeNode("q", v1::PROXY))));
    QVERIFY(Eventually(kNodeLimit,
                       [&] { return newer.log().Status().common_version() == kCommandVersion; }));
    QVERIFY(!older.log().Status().health_detail().empty());
    QVERIFY(!older.log().TakeSnapshot().ok());
  }
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::ReplicatedLogTest)
#include "replicated_log_test.moc"
