#include "tests/chaos/ledger_disaster.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/base/generation.h"
#include "cluster/base/status.h"
#include "cluster/identity/secret_files.h"
#include "cluster/rpc/channel.h"
#include "onepiece/v1/consensus.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"
#include "tests/chaos/ledger_verb.h"
#include "tests/eventually.h"

namespace onepiece::ledger {
namespace {

namespace fs = std::filesystem;

constexpr auto kAnswer = std::chrono::seconds(2), kKilled = std::chrono::seconds(10),
               kBack = std::chrono::seconds(90);

absl::Status Failed(const std::string& what) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "NO_FAULT", what);
}

/// Asks the NodeManagers in their order until one answers.
template <typename Service, typename Stub, typename Request, typename Response>
absl::StatusOr<Response> AskAny(const std::vector<std::string>& addresses,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*)) {
  absl::StatusOr<Response> answer = Failed("no NodeManager");
  for (const std::string& address : addresses) {
    answer = rpc::Call(*Service::NewStub(rpc::MakeChannel(address)), method, Request(), kAnswer);
    if (answer.ok()) break;
  }
  return answer;
}

absl::StatusOr<v1::Cluster> AskCluster(const std::vector<std::string>& addresses) {
  return AskAny<v1::NodeManagerService>(addresses, &v1::NodeManagerService::Stub::GetCluster);
}

absl::StatusOr<v1::ReplicaStatus> AskReplica(const std::vector<std::string>& addresses) {
  return AskAny<v1::ConsensusService>(addresses, &v1::ConsensusService::Stub::GetReplica);
}

/// What both disasters share. A derived class says what is lost, and makes the new group.
class Disaster : public Fault {
 public:
  absl::Status Strike(Cluster& cluster, const Injury& injury) final {
    ONEPIECE_RETURN_IF_ERROR(LookAround(cluster));
    ONEPIECE_RETURN_IF_ERROR(Prepare(cluster));
    // The supervisor would start the NodeManagers again at once.
    ONEPIECE_RETURN_IF_ERROR(cluster.SignalSupervisor(SIGSTOP));
    absl::Status status = LoseAndRegroup(cluster, injury);
    if (!status.ok()) (void)cluster.SignalSupervisor(SIGCONT);
    return status;
  }

  absl::Status Heal(Cluster& cluster, const Injury&) final {
    ONEPIECE_RETURN_IF_ERROR(cluster.SignalSupervisor(SIGCONT));
    ONEPIECE_RETURN_IF_ERROR(Complete(cluster));
    std::string missing = "no NodeManager leads";
    const bool back = testing::Eventually(base::Scaled(kBack), [&] {
      missing = Missing(cluster);
      return missing.empty();
    });
    return back ? absl::OkStatus() : Failed("after the new group began: " + missing);
  }

 protected:
  /// What is done while the old group is well.
  virtual absl::Status Prepare(Cluster& cluster) = 0;
  /// The seat whose disk stays. Empty: none.
  [[nodiscard]] virtual std::string Survivor(const Injury& injury) const = 0;
  virtual absl::Status Regroup(Cluster& cluster, const Injury& injury) = 0;
  /// Waits for the new group, and makes it as large as the old one was.
  virtual absl::Status Complete(Cluster& cluster) = 0;

  absl::Status RunClusterVerb(const Cluster& cluster, const QStringList& arguments) const {
    QStringList addresses;
    for (const v1::Seat& seat : seats_) addresses << QString::fromStdString(seat.address());
    return RunVerb(cluster, QStringList{"cluster"} + arguments +
                                QStringList{"--nodemanager", addresses.join(','), "--identity",
                                            QString::fromStdString(cluster.State().identity)})
        .status();
  }
  [[nodiscard]] const std::vector<v1::Seat>& seats() const { return seats_; }
  [[nodiscard]] const std::string& cluster_id() const { return cluster_id_; }
  [[nodiscard]] std::vector<std::string> Addresses() const {
    std::vector<std::string> addresses;
    for (const v1::Seat& seat : seats_) addresses.push_back(seat.address());
    return addresses;
  }

 private:
  /// Remembers the seats, and who every other process is.
  absl::Status LookAround(const Cluster& cluster) {
    std::vector<std::string> addresses;
    for (const local::ProcessRecord& record : cluster.Ready(Role::kNodeManager))
      addresses.push_back(record.address);
    ONEPIECE_ASSIGN_OR_RETURN(const v1::ReplicaStatus replica, AskReplica(addresses));
    seats_.assign(replica.members().seats().begin(), replica.members().seats().end());
    ONEPIECE_ASSIGN_OR_RETURN(const v1::Cluster known, AskCluster(addresses));
    cluster_id_ = known.cluster_id();
    generation_ = base::GenerationOf(known.epoch());
    for (const v1::Node& node : known.nodes()) {
      if (node.role() != v1::NODE_MANAGER && node.state() != v1::Node::DEAD)
        incarnations_[node.node_id()] = {node.pid(), node.incarnation()};
    }
    return absl::OkStatus();
  }

  absl::Status LoseAndRegroup(Cluster& cluster, const Injury& injury) {
    for (int i = 0; i < static_cast<int>(seats_.size()); ++i) {
      const local::ProcessId process = cluster.Find(Role::kNodeManager, i).process;
      if (process.pid > 0 && !local::KillAndWait(process, kKilled))
        return Failed("a NodeManager does not die");
    }
    for (const v1::Seat& seat : seats_) {
      if (seat.name() == Survivor(injury)) continue;
      std::error_code error;
      fs::remove_all(cluster.DataDirOf(seat.name()), error);
      if (error) return Failed(cluster.DataDirOf(seat.name()) + ": " + error.message());
    }
    return Regroup(cluster, injury);
  }

  /// What the new group lacks yet: "instance-1 is not READY".
  [[nodiscard]] std::string Missing(const Cluster& cluster) const {
    const auto known = AskCluster(Addresses());
    if (!known.ok()) return base::Message(known.status());
    if (base::GenerationOf(known->epoch()) != generation_ + 1)
      return "generation " + std::to_string(base::GenerationOf(known->epoch()));
    for (const v1::Node& node : known->nodes()) {
      if (node.state() != v1::Node::READY) return node.node_id() + " is not READY";
      const auto before = incarnations_.find(node.node_id());
      // A process that died for another reason has come back as a new one.
      if (before == incarnations_.end() || before->second.pid != node.pid()) continue;
      if (before->second.incarnation != node.incarnation())
        return node.node_id() + " has another incarnation";
    }
    if (known->nodes_size() < static_cast<int>(incarnations_.size() + seats_.size()))
      return "nodes are missing";
    const auto replica = AskReplica(Addresses());
    const bool whole = replica.ok() && cluster.IsWhole(Role::kNodeManager) &&
                       replica->members().seats_size() == static_cast<int>(seats_.size()) &&
                       replica->members().warnings().empty();
    return whole ? "" : "seats are vacant";
  }

  struct Life {
    std::int32_t pid = 0;
    std::uint64_t incarnation = 0;
  };
  std::vector<v1::Seat> seats_;
  std::string cluster_id_;
  std::uint32_t generation_ = 0;
  std::map<std::string, Life> incarnations_;  // By node id, without NodeManagers.
};

class AllDisksLost final : public Disaster {
  absl::Status Prepare(Cluster& cluster) override {
    file_ = cluster.folder() + "/nodemanagers.backup";
    passphrase_ = cluster.folder() + "/passphrase";
    ONEPIECE_RETURN_IF_ERROR(identity::WriteSecretFile(passphrase_, "one of a disaster\n"));
    return RunClusterVerb(cluster, {"backup", QString::fromStdString(file_), "--passphrase-file",
                                    QString::fromStdString(passphrase_)});
  }
  [[nodiscard]] std::string Survivor(const Injury&) const override { return ""; }
  absl::Status Regroup(Cluster& cluster, const Injury&) override {
    // Its key and the CA's are lost with the disk. The passphrase brings both back.
    const std::string name = seats().front().name();
    const std::string folder = cluster.State().identity + "/" + name;
    std::error_code error;
    if (fs::remove_all(folder, error) == 0) return Failed(folder + ": nothing to lose");
    QStringList replicas;
    for (const v1::Seat& seat : seats())
      replicas << QString::fromStdString(seat.name() + "=" + seat.address());
    return RunClusterVerb(cluster, {"restore", QString::fromStdString(file_), "--into",
                                    QString::fromStdString(cluster.DataDirOf(name)), "--name",
                                    QString::fromStdString(name), "--replicas", replicas.join(','),
                                    "--passphrase-file", QString::fromStdString(passphrase_),
                                    "--identity-out", QString::fromStdString(folder)});
  }
  // The other replicas take their seats by themselves.
  absl::Status Complete(Cluster&) override { return absl::OkStatus(); }

  std::string file_, passphrase_;
};

class MajorityLost final : public Disaster {
  absl::Status Prepare(Cluster&) override { return absl::OkStatus(); }
  [[nodiscard]] std::string Survivor(const Injury& injury) const override {
    return seats()[injury.dice % seats().size()].name();
  }
  absl::Status Regroup(Cluster& cluster, const Injury& injury) override {
    survivor_ = Survivor(injury);
    return RunClusterVerb(
        cluster, {"recover", "--from", QString::fromStdString(cluster.DataDirOf(survivor_)),
                  "--cluster-id", QString::fromStdString(cluster_id())});
  }
  absl::Status Complete(Cluster& cluster) override {
    for (const v1::Seat& seat : seats()) {
      if (seat.name() == survivor_) continue;
      absl::Status added;
      // Before the group leads, it takes nothing. It takes one change of its members at a time.
      const bool done = testing::Eventually(base::Scaled(kBack), [&] {
        added = RunClusterVerb(cluster, {"add", QString::fromStdString(seat.name()), "--address",
                                         QString::fromStdString(seat.address())});
        return added.ok() && IsOccupied(seat.name());
      });
      if (!done) return added.ok() ? Failed(seat.name() + " does not take its seat") : added;
    }
    return absl::OkStatus();
  }
  [[nodiscard]] bool IsOccupied(const std::string& name) const {
    return testing::Eventually([&] {
      const auto replica = AskReplica(Addresses());
      return replica.ok() && std::ranges::any_of(replica->members().seats(), [&](const auto& seat) {
               return seat.name() == name && seat.replica() != 0;
             });
    });
  }

  std::string survivor_;
};

}  // namespace

std::unique_ptr<Fault> MakeAllDisksLost() { return std::make_unique<AllDisksLost>(); }
std::unique_ptr<Fault> MakeMajorityLost() { return std::make_unique<MajorityLost>(); }

}  // namespace onepiece::ledger
