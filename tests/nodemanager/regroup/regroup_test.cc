// Tests how a new group begins with a backup or with one replica's disk. The replicas are whole
// ones in this process.
#include "nodemanager/regroup/regroup.h"

#include <QDir>
#include <QTemporaryDir>
#include <QtTest>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/canonical_bytes.h"
#include "cluster/base/generation.h"
#include "cluster/identity/identity_folder.h"
#include "cluster/identity/seal.h"
#include "nodemanager/replication/corrupt_marker.h"
#include "nodemanager/replication/store.h"
#include "tests/eventually.h"
#include "tests/nodemanager/replication/log_node.h"
#include "tests/nodemanager/state/builders.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using testing::Eventually;

const base::WallTime kNow = base::FromUnixMs(1'700'000'000'000);

v1::Command InitializeCommand() {
  v1::Command command;
  command.mutable_initialize()->set_cluster_id("pirates");
  command.mutable_initialize()->set_cluster_secret("secret");
  return command;
}

paxos::LogEntry CommandEntry(const v1::Command& command) {
  paxos::LogEntry entry;
  entry.kind = paxos::LogEntry::Kind::kCommand;
  entry.version = 1;
  entry.payload = std::make_shared<const std::string>(base::CanonicalBytes(command));
  return entry;
}

}  // namespace

class RegroupTest : public QObject {
  Q_OBJECT
 private:
  std::string Path(const std::string& name) const {
    return dir_->filePath(QString::fromStdString(name)).toStdString();
  }
  Node& Add(const std::string& name) {
    ReplicatedLogOptions options{
        .data_dir = Path(name), .cluster_id = "pirates", .name = name, .bootstrap = true};
    options.paxos.version = kCommandVersion;
    nodes_.push_back(std::make_unique<Node>(options));
    return *nodes_.back();
  }
  // Adds replicas that name each other, and addresses that stay. None is started.
  void Configure(int count) {
    std::vector<paxos::Seat> seats;
    for (int i = 1; i <= count; ++i) {
      Node& node = Add(absl::StrCat("nm-", i));
      QVERIFY(node.Open().ok());  // This draws a port.
      seats.push_back(node.seat());
      node.End();
    }
    for (const auto& node : nodes_) node->options().seats = seats;
  }
  // Starts the first `count` and waits until all of them vote.
  void StartAll(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) QVERIFY(nodes_[i]->Start().ok());
    QVERIFY(Eventually(kNodeLimit, [&] {
      return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
        if (!node->Leads()) return false;
        const v1::ConsensusMembers members = node->log().Status().members();
        return std::count_if(members.seats().begin(), members.seats().end(), [](const auto& seat) {
                 return seat.replica() != 0;
               }) == static_cast<std::ptrdiff_t>(count);
      });
    }));
  }
  bool Propose(v1::Command command) {
    static int requests = 0;
    command.set_request_id(absl::StrCat("regroup", ++requests));
    return Eventually(kNodeLimit, [&] {
      return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
        return node->Leads() && node->log().Propose(command).ok();
      });
    });
  }
  bool AllKnow(std::size_t count, const std::string& node_id) {
    return Eventually(kNodeLimit, [&] {
      for (std::size_t i = 0; i < count; ++i) {
        if (!nodes_[i]->Knows(node_id)) return false;
      }
      return true;
    });
  }
  static std::uint64_t EpochOf(const Node& node) {
    StateMachine machine;
    if (!machine.Restore(node.State()).ok()) qFatal("not a state");
    return machine.epoch();
  }
  // A backup of a cluster with this CA, whose seal key stands behind "a passphrase".
  static backup::Backup BackupWithCa(const identity::Authority& authority,
                                     const std::string& seal_key) {
    StateMachine machine;
    machine.Apply(1, InitializeCommand());
    v1::Command command;
    v1::SetAuthorities& change = *command.mutable_set_authorities();
    change.add_authorities()->set_certificate(authority.certificate().ToPem());
    change.mutable_authorities(0)->set_sealed_key(identity::SealAuthority(seal_key, authority));
    change.set_rotation(v1::AuthorityStatus::NONE);
    if (machine.Apply(2, command).code() != 0) qFatal("no CA");
    backup::Backup backup{.header = {}, .state = machine.Serialize()};
    const std::string salt(identity::kWrapSaltBytes, 's');
    backup.header.set_wrapping_salt(salt);
    backup.header.set_wrapped_seal_key(identity::Seal(*identity::WrapKeyOf("a passphrase", salt),
                                                      seal_key, identity::kBackupSealContext));
    return backup;
  }
  // A group of one with the node "before", and its backup.
  backup::Backup BackupOfOne() {
    Node& node = Add("nm-1");
    if (!node.Start().ok() || !node.WaitUntilLeading()) qFatal("it does not lead");
    if (!node.Propose(InitializeCommand()) ||
        !node.Propose(RegisterCommand(MakeNode("before", v1::PROXY))))
      qFatal("nothing is chosen");
    auto backup = node.log().MakeBackup(kNow);
    if (!backup.ok()) qFatal("no backup");
    return *std::move(backup);
  }
  // The disk of nm-1, which knows slot 3 to be chosen and has accepted slots 4 to 6.
  void MakeDoubtfulDisk() {
    const auto store = Store::Open(Path("nm-1"));
    QVERIFY(store.ok());
    const paxos::ReplicaId replica{7};
    const std::vector<paxos::Seat> seats = {
        {.name = "nm-1", .address = "127.0.0.1:1", .replica = replica},
        {.name = "nm-2", .address = "127.0.0.1:2", .replica = paxos::ReplicaId{8}},
        {.name = "nm-3", .address = "127.0.0.1:3", .replica = paxos::ReplicaId{9}}};
    paxos::DurableState durable =
        paxos::Replica::Bootstrap(replica, {{seats[0], seats[1], seats[2]}}, "nm-1");
    durable.log[0].entry.members.seats = seats;
    const paxos::Ballot ballot{.round = 2, .replica = replica};
    paxos::LogEntry fewer;
    fewer.kind = paxos::LogEntry::Kind::kMembers;
    fewer.members.seats = {seats[0]};
    for (paxos::LogEntry entry :
         {CommandEntry(InitializeCommand()),
          CommandEntry(RegisterCommand(MakeNode("chosen", v1::PROXY))),
          CommandEntry(RegisterCommand(MakeNode("doubtful", v1::PROXY))), paxos::LogEntry(), fewer})
      durable.log.push_back({durable.log.back().slot + 1, ballot, std::move(entry)});
    durable.promised = ballot;
    durable.chosen = paxos::Slot{3};
    QVERIFY(
        (*store)
            ->Create(
                {.cluster_id = "pirates", .name = "nm-1", .replica = replica, .group = GroupId{77}},
                durable)
            .ok());
  }

 private Q_SLOTS:
  // All hosts are lost, and ca.key with them. The backup and the passphrase are enough.
  void RestoreIdentity_MakesAReplicaThatSigns() {
    const base::WallTime now = base::SystemClock().WallNow();
    const identity::Authority authority = *identity::Authority::Create("pirates", now);
    const backup::Backup backup = BackupWithCa(authority, identity::MakeSealKey());
    QCOMPARE(Reason(OpenSealKey(backup.header, "a guess").status()),
             std::string("WRONG_PASSPHRASE"));
    QCOMPARE(Reason(OpenSealKey({}, "a passphrase").status()), std::string("NO_SEAL_KEY"));
    const absl::StatusOr<std::string> key = OpenSealKey(backup.header, "a passphrase");
    QVERIFY(key.ok());
    const std::string folder = Path("identity");
    QCOMPARE(Reason(RestoreIdentity(backup, identity::MakeSealKey(), "nm-1", folder, now)),
             std::string("BAD_SEAL"));
    QVERIFY(!QDir(QString::fromStdString(folder)).exists());
    QVERIFY(RestoreIdentity(backup, *key, "nm-1", folder, now).ok());
    const auto own = identity::LoadIdentity(folder, identity::kNodeName, now);
    QVERIFY2(own.ok(), base::Message(own.status()).c_str());
    QCOMPARE(identity::Describe(own->subject),
             std::string("node nm-1 (nodemanager) of cluster pirates"));
    QVERIFY(own->authorities.Has(authority.certificate().PublicKeyHash()));
    QCOMPARE(*identity::ReadSealKeyFile(folder), *key);
  }

  void init() { dir_ = std::make_unique<QTemporaryDir>(); }
  void cleanup() { nodes_.clear(); }

  void Restore_ThreeNewDisks_GoOnFromTheBackup() {
    Configure(3);
    StartAll(3);
    QVERIFY(Propose(InitializeCommand()));
    QVERIFY(Propose(RegisterCommand(MakeNode("before", v1::PROXY))));
    QVERIFY(AllKnow(3, "before"));
    const auto taken = nodes_[2]->log().MakeBackup(kNow);  // Any replica will do.
    QVERIFY(taken.ok());
    QCOMPARE(taken->header.seats_size(), 3);
    QVERIFY(Propose(RegisterCommand(MakeNode("after", v1::PROXY))));
    const std::uint64_t lost_group = nodes_[0]->log().Status().group();
    for (const auto& node : nodes_) {
      node->End();
      node->Wipe();
    }

    const auto backup = backup::Decode(backup::Encode(*taken));
    QVERIFY(backup.ok());
    const auto group = RestoreGroup(
        *backup,
        {.data_dir = Path("nm-2") + "/", .name = "nm-2", .seats = nodes_[0]->options().seats},
        kNow);
    QVERIFY2(group.ok(), base::Message(group.status()).c_str());
    QCOMPARE(base::GenerationOf(group->epoch), 1U);
    StartAll(3);
    QVERIFY(AllKnow(3, "before"));
    for (const auto& node : nodes_) {
      QVERIFY(!node->Knows("after"));
      QCOMPARE(node->log().Status().group(), group->group.value);
      QCOMPARE(node->log().cluster_id(), std::string("pirates"));
    }
    QVERIFY(group->group.value != lost_group);
    QVERIFY(Propose(RegisterCommand(MakeNode("anew", v1::PROXY))));
    QVERIFY(AllKnow(3, "anew"));
    QVERIFY(EpochOf(*nodes_[0]) > group->epoch);
    QCOMPARE(nodes_[1]->State(), nodes_[0]->State());
    StateMachine machine;
    QVERIFY(machine.Restore(nodes_[0]->State()).ok());
    QCOMPARE(machine.cluster_secret(), std::string("secret"));
    const auto begun =
        std::ranges::find(machine.audit(), "begin_generation",
                          [](const v1::AuditEntry& entry) { return entry.action(); });
    QVERIFY(begun != machine.audit().end());
    QVERIFY(begun->detail().find("of nm-3, 2023-11-14T22:13:20") != std::string::npos);
  }

  // A backup of a generation gives the next one.
  void Restore_OfARestoredGroup_BeginsAnotherGeneration() {
    backup::Backup backup = BackupOfOne();
    Node& node = *nodes_[0];
    for (std::uint32_t generation = 1; generation <= 3; ++generation) {
      node.End();
      node.Wipe();
      const auto group = RestoreGroup(
          backup, {.data_dir = Path("nm-1"), .name = "nm-1", .seats = {node.seat()}}, kNow);
      QVERIFY(group.ok());
      QCOMPARE(base::GenerationOf(group->epoch), generation);
      QVERIFY(node.Start().ok());
      QVERIFY(node.WaitUntilLeading());
      QCOMPARE(EpochOf(node), base::FirstEpochOf(generation));
      QVERIFY(node.Knows("before"));
      const auto next = node.log().MakeBackup(kNow);
      QVERIFY(next.ok());
      QVERIFY(next->header.slot() > backup.header.slot());
      backup = *next;
    }
  }

  // Otherwise a backup that a replica makes before it has applied its log, or a follower when it
  // has just got the snapshot, would be of the generation before.
  void Restore_EvenTheSnapshotIsOfTheNewGeneration() {
    const backup::Backup backup = BackupOfOne();
    nodes_[0]->End();
    const auto group = RestoreGroup(
        backup, {.data_dir = Path("new"), .name = "nm-1", .seats = {nodes_[0]->seat()}}, kNow);
    QVERIFY(group.ok());
    const auto store = Store::Open(Path("new"));
    QVERIFY(store.ok());
    StateMachine machine;
    QVERIFY(machine.Restore(*(*store)->TakeState().snapshot.state).ok());
    QCOMPARE(machine.epoch(), base::FirstEpochOf(1));
  }

  void Restore_WhatWouldLoseSomething_IsRefused() {
    const backup::Backup backup = BackupOfOne();
    Node& node = *nodes_[0];
    const std::vector<paxos::Seat> seats = {node.seat()};
    const auto reason = [&](const backup::Backup& of, const std::string& dir) {
      return Reason(
          RestoreGroup(of, {.data_dir = dir, .name = "nm-1", .seats = seats}, kNow).status());
    };
    QCOMPARE(reason(backup, Path("nm-1")), std::string("DATA_DIR_NOT_EMPTY"));
    QCOMPARE(reason(backup, Path("new")), std::string("GROUP_ALIVE"));
    // The seats of the earlier group are asked even when the new one has others.
    const auto elsewhere = RestoreGroup(backup,
                                        {.data_dir = Path("new"),
                                         .name = "nm-9",
                                         .seats = {{.name = "nm-9", .address = "127.0.0.1:1"}}},
                                        kNow);
    QCOMPARE(Reason(elsewhere.status()), std::string("GROUP_ALIVE"));
    node.End();
    backup::Backup newer = backup;
    v1::NodeManagerState state;
    QVERIFY(state.ParseFromString(newer.state));
    state.set_version(kCommandVersion + 1);
    newer.state = state.SerializeAsString();
    QCOMPARE(reason(newer, Path("new")), std::string("NEWER_VERSION"));
    newer.state = "no state";
    QCOMPARE(reason(newer, Path("new")), std::string("BAD_SNAPSHOT"));
    QVERIFY(QDir(dir_->path()).entryList(QDir::AllEntries | QDir::NoDotAndDotDot) ==
            QStringList{"nm-1"});
    QVERIFY(QDir(dir_->path()).mkdir("new"));  // An empty folder is as good as none.
    QCOMPARE(reason(backup, Path("new")), std::string());
  }

  void Backup_OfAReplicaThatKnowsNothing_IsRefused() {
    Node& node = Add("nm-1");
    QVERIFY(node.Start().ok());
    QVERIFY(node.WaitUntilLeading());
    QCOMPARE(Reason(node.log().MakeBackup(kNow).status()), std::string("NOTHING_TO_BACK_UP"));
  }

  void Recover_OneOfThree_KeepsWhatItKnowsAndFencesTheOthers() {
    Configure(3);
    StartAll(3);
    QVERIFY(Propose(InitializeCommand()));
    QVERIFY(Propose(RegisterCommand(MakeNode("before", v1::PROXY))));
    QVERIFY(AllKnow(3, "before"));
    Node& kept = *nodes_[0];
    QCOMPARE(Reason(ReadSurvivor(Path("nm-1")).status()), std::string("DATA_DIR_IN_USE"));
    const std::uint64_t lost_group = kept.log().Status().group();
    kept.End();
    const auto survivor = ReadSurvivor(Path("nm-1"));
    QVERIFY2(survivor.ok(), base::Message(survivor.status()).c_str());
    QCOMPARE(survivor->cluster_id, std::string("pirates"));
    QCOMPARE(survivor->members.seats.size(), std::size_t{3});

    RecoverOptions options{.data_dir = Path("nm-1"), .cluster_id = "pirate"};
    const auto mistyped = RecoverGroup(*survivor, options, kNow);
    QCOMPARE(Reason(mistyped.status()), std::string("WRONG_CLUSTER_ID"));
    QVERIFY(base::Message(mistyped.status()).find("--cluster-id pirates") != std::string::npos);
    options.cluster_id = "pirates";
    QCOMPARE(Reason(RecoverGroup(*survivor, options, kNow).status()),
             std::string("MAJORITY_ALIVE"));
    nodes_[1]->End();
    // One that answers is a majority together with the survivor.
    QCOMPARE(Reason(RecoverGroup(*survivor, options, kNow).status()),
             std::string("MAJORITY_ALIVE"));
    nodes_[2]->End();
    const auto recovered = RecoverGroup(*survivor, options, kNow);
    QVERIFY2(recovered.ok(), base::Message(recovered.status()).c_str());
    QVERIFY(QFile::exists(QString::fromStdString(recovered->kept) + "/nodemanager.sqlite"));
    QCOMPARE(recovered->kept, Path("nm-1") + ".before-recover-20231114T221320Z");

    QVERIFY(kept.Start().ok());
    QVERIFY(kept.WaitUntilLeading());
    QVERIFY(kept.log().IsAlone());
    QVERIFY(kept.Knows("before"));
    QCOMPARE(base::GenerationOf(EpochOf(kept)), 1U);
    QVERIFY(kept.log().Status().group() != lost_group);
    // The old disks come back, and lead each other as before. They learn nothing of the new group,
    // and it learns nothing of them.
    QVERIFY(nodes_[1]->Start().ok());
    QVERIFY(nodes_[2]->Start().ok());
    QVERIFY(Eventually(kNodeLimit, [&] { return nodes_[1]->Leads() || nodes_[2]->Leads(); }));
    QVERIFY(kept.Propose(RegisterCommand(MakeNode("new", v1::PROXY))));
    Node& old = nodes_[1]->Leads() ? *nodes_[1] : *nodes_[2];
    QVERIFY(old.Propose(RegisterCommand(MakeNode("old", v1::PROXY))));
    QVERIFY(!kept.Knows("old") && !old.Knows("new"));
    QVERIFY(kept.log().IsAlone());
    QCOMPARE(nodes_[1]->log().Status().group(), lost_group);
  }

  void Recover_WithForce_DoesNotMindAMajority() {
    Configure(3);
    StartAll(3);
    QVERIFY(Propose(InitializeCommand()));
    nodes_[0]->End();
    const auto survivor = ReadSurvivor(Path("nm-1"));
    QVERIFY(survivor.ok());
    QVERIFY(RecoverGroup(*survivor,
                         {.data_dir = Path("nm-1"), .cluster_id = "pirates", .force = true}, kNow)
                .ok());
  }

  // Nobody can tell which of them were acknowledged, so all are kept and named.
  void Recover_DoubtfulEntries_AreKeptAndNamed() {
    MakeDoubtfulDisk();
    const auto survivor = ReadSurvivor(Path("nm-1"));
    QVERIFY2(survivor.ok(), base::Message(survivor.status()).c_str());
    QCOMPARE(survivor->chosen, paxos::Slot{3});
    QCOMPARE(survivor->last, paxos::Slot{6});
    QCOMPARE(survivor->doubtful.size(), std::size_t{3});
    QCOMPARE(survivor->doubtful[0].slot(), std::uint64_t{4});
    QCOMPARE(survivor->doubtful[0].kind(), std::string("register_node"));
    QCOMPARE(survivor->doubtful[0].subject(), std::string("doubtful"));
    QCOMPARE(survivor->doubtful[2].kind(), std::string("members"));
    // A change of members that is not known to be chosen does not make the majority smaller.
    QCOMPARE(survivor->members.voters(), std::size_t{3});
    const auto recovered =
        RecoverGroup(*survivor, {.data_dir = Path("nm-1"), .cluster_id = "pirates"}, kNow);
    QVERIFY2(recovered.ok(), base::Message(recovered.status()).c_str());
    QCOMPARE(recovered->group.slot, paxos::Slot{6});
    Node& node = Add("nm-1");
    QVERIFY(node.Start().ok());
    QVERIFY(node.WaitUntilLeading());
    QVERIFY(node.Knows("chosen") && node.Knows("doubtful"));
    QVERIFY(node.log().IsAlone());
  }

  // A new group would begin with the state that differs from the others'.
  void Recover_FromACorruptReplica_IsRefused() {
    (void)BackupOfOne();
    Node& node = *nodes_[0];
    const paxos::ReplicaId replica{node.log().Status().replica()};
    node.End();
    QVERIFY(ReadSurvivor(Path("nm-1")).ok());
    QVERIFY(WriteCorruptMarker(Path("nm-1"), replica, "it differs").ok());
    const absl::Status refused = ReadSurvivor(Path("nm-1")).status();
    QCOMPARE(Reason(refused), std::string("CORRUPT"));
    QVERIFY(base::Message(refused).find("it differs") != std::string::npos);
  }

  void Recover_WhatHoldsNoState_IsRefused() {
    QCOMPARE(Reason(ReadSurvivor(Path("nothing")).status()), std::string("NOTHING_TO_RECOVER"));
    QVERIFY(!QFile::exists(dir_->filePath("nothing")));
    { QVERIFY(Store::Open(Path("empty")).ok()); }
    QCOMPARE(Reason(ReadSurvivor(Path("empty")).status()), std::string("NOTHING_TO_RECOVER"));
  }

 private:
  std::unique_ptr<QTemporaryDir> dir_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::RegroupTest)
#include "regroup_test.moc"
