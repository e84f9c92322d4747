// What every node of a simulated cluster has: its view of the cluster, a client of the databases,
// and a way to hand messages on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/message/message.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/delivered.h"
#include "cluster/node/kept_work.h"
#include "cluster/node/settler.h"
#include "onepiece/v1/database.pb.h"
#include "tests/database/simulation/ledger.h"
#include "tests/database/simulation/node_manager.h"
#include "tests/database/simulation/world.h"

namespace onepiece::simulation {

class Database;
class Instance;
class Proxy;

/// The processes of a history, by their names.
struct Cluster {
  explicit Cluster(std::uint64_t seed) : world(seed) {}
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  ~Cluster();

  World world;
  Ledger ledger{world};
  NodeManager manager{world, ledger};
  std::map<std::string, std::unique_ptr<Database>> databases;
  std::map<std::string, std::unique_ptr<Instance>> instances;
  std::map<std::string, std::unique_ptr<Proxy>> proxies;
  /// Jobs whose computation of this stage ends the process that does it.
  std::map<base::Uid, std::string> poison;
};

/// A life of a node registers itself, reports, and takes the tables that it is given
/// (cluster/node/node_agent.h).
class Node {
 public:
  Node(std::string id, std::string stage, Cluster& cluster);
  virtual ~Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] const node::ClusterView& view() const { return *view_; }

 protected:
  /// Begins a life. What the last one knew is gone.
  void BeginLife();
  World& world() const { return cluster_.world; }

  const std::string id_;
  const std::string stage_;
  Cluster& cluster_;
  std::unique_ptr<node::ClusterView> view_;

 private:
  void SetIncarnation();
  void Report();

  std::uint64_t incarnation_ = 0;
};

/// A node's client of the databases (cluster/node/job_records.h). All calls wait, so only threads
/// call them.
class Records {
 public:
  Records(std::string id, Cluster& cluster, const node::ClusterView& view)
      : id_(std::move(id)), cluster_(cluster), view_(view) {}

  absl::StatusOr<v1::CreateJobResponse> Create(const v1::JobRecord& record);
  absl::StatusOr<v1::ClaimStartResponse> Claim(const v1::ClaimStartRequest& request);
  absl::StatusOr<v1::JobRecord> Update(const v1::UpdateJobRequest& request);
  absl::StatusOr<v1::JobRecord> Get(const base::Uid& uid, Duration timeout = World::kTimeout);
  absl::StatusOr<v1::Job> Acknowledge(const base::Uid& uid);
  absl::Status Delete(const base::Uid& uid);

 private:
  template <typename Answer>
  absl::StatusOr<Answer> Ask(const base::Uid& uid,
                             std::function<absl::StatusOr<Answer>(Database&)> ask,
                             bool is_write = true, Duration timeout = World::kTimeout);
  template <typename Answer>
  absl::StatusOr<Answer> AskOne(const v1::Endpoint& database,
                                std::function<absl::StatusOr<Answer>(Database&)> ask,
                                Duration timeout);
  template <typename Answer>
  void AskOther(const base::Uid& uid, const std::function<absl::StatusOr<Answer>(Database&)>& ask);
  v1::CreateJobResponse PreferElsewhere(const base::Uid& uid, v1::CreateJobResponse created);

  const std::string id_;
  Cluster& cluster_;
  const node::ClusterView& view_;
  std::map<base::Uid, std::string> last_;  ///< Who took the last write of a job.
};

/// What a node keeps, and tells keepers of (cluster/node/kept_work.h, settler.h), with threads of
/// the simulation.
class Keeping {
 public:
  Keeping(std::string id, Cluster& cluster, const node::ClusterView& view, Records& records);

  node::KeptWork& kept() { return kept_; }
  void Completed(const message::Header& header);
  void Moved(const message::Header& header, const v1::WorkHolder& to);
  /// Gives the message to one of its stage's instances, or to one of its job's databases. What may
  /// have arrived is sent there again until the node is dead.
  absl::StatusOr<node::Delivered> Deliver(message::Message message, Duration patience,
                                          base::MonotonicTime deadline,
                                          const std::function<bool()>& wanted = {});
  [[nodiscard]] std::size_t pending() const { return settler_.pending(); }

 private:
  struct Doubt {
    v1::Endpoint endpoint;
    std::uint64_t epoch = 0;
  };

  std::vector<v1::Endpoint> Candidates(const node::Routing& table,
                                       const message::Header& header) const;
  World::Put PutAt(const v1::Endpoint& endpoint, const message::Message& message,
                   std::uint64_t number);
  void LookAfterKept();
  void TellKeepers();

  const std::string id_;
  Cluster& cluster_;
  const node::ClusterView& view_;
  Records& records_;
  node::KeptWork kept_;
  node::Settler settler_;
  bool looking_ = false, telling_ = false;
};

/// What the instance or proxy of this name keeps.
node::KeptWork& KeptAt(Cluster& cluster, const std::string& id);

}  // namespace onepiece::simulation
