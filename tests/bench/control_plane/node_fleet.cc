// Light nodes of ours. They hold no work and load no model: what is real is how they belong to the
// cluster.
#include <list>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/node_agent.h"
#include "cluster/node/shared_routings.h"
#include "cluster/rpc/server.h"
#include "tests/bench/control_plane/fleet.h"

namespace onepiece::bench {
namespace {

v1::Role RoleOf(std::size_t number) {
  if (number < kProxies) return v1::PROXY;
  return number < kProxies + kDatabases ? v1::DATABASE : v1::INSTANCE;
}

/// What an instance says that does at once what it is told.
node::NodeStatus Obey(const v1::Assignment& assignment) {
  return {.state = assignment.has_stage() ? v1::Node::READY : v1::Node::STARTING,
          .detail = assignment.has_stage() ? "" : "idle",
          .assignment_epoch = assignment.epoch(),
          .drained = assignment.draining()};
}

struct LightNode {
  LightNode(const FleetPlan& plan, std::size_t number, std::string address,
            std::shared_ptr<node::SharedRoutings> tables)
      : agent({.role = RoleOf(number),
               .node_id = NodeId(number),
               .nodemanagers = plan.addresses,
               .address = std::move(address),
               .workflow_set = "default",
               .tables = std::move(tables)},
              view) {}
  node::ClusterView view;
  node::NodeAgent agent;
};

class NodeFleet final : public Fleet {
 public:
  explicit NodeFleet(std::size_t count) : Fleet(count) {}

  absl::Status Start(const FleetPlan& plan) {
    // The NodeManager connects to a node before it registers it. One server answers for all.
    ONEPIECE_RETURN_IF_ERROR(server_.Start().status());
    for (std::size_t index = 0; index < plan.count; ++index) {
      const std::size_t number = plan.first + index;
      LightNode& node = nodes_.emplace_back(plan, number, server_.address(), tables_);
      node.agent.OnRouting([this, index](const std::shared_ptr<const node::Routing>& routing) {
        const v1::Workflow* changing = routing->FindWorkflow(kChangingApp);
        if (changing == nullptr) return;
        tables.Saw(index, VersionOf(changing->display_name()), base::SystemClock().Now());
      });
      if (RoleOf(number) == v1::INSTANCE) {
        node.agent.OnAssignment([&agent = node.agent](const v1::Assignment& assignment) {
          agent.SetState(Obey(assignment));
        });
      } else {
        node.agent.SetState({.state = v1::Node::READY});
      }
      node.agent.Start();
    }
    return absl::OkStatus();
  }

  std::string Complaint(std::size_t index) override {
    LightNode& node = *std::next(nodes_.begin(), static_cast<std::ptrdiff_t>(index));
    const absl::Status ready = node.agent.WaitReady(base::Duration::zero());
    return absl::StrCat(node.view.self().node_id(), ": ",
                        ready.ok()
                            ? absl::StrCat("its table has epoch ", node.view.routing()->epoch())
                            : base::Message(ready));
  }

 private:
  rpc::Server server_{rpc::ServerOptions{}};
  // In a cluster each node makes its tables on a processor of its own. A thousand times the same
  // work on this machine would measure that and not the NodeManagers.
  const std::shared_ptr<node::SharedRoutings> tables_ = std::make_shared<node::SharedRoutings>();
  std::list<LightNode> nodes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Fleet>> StartNodes(const FleetPlan& plan) {
  auto fleet = std::make_unique<NodeFleet>(plan.count);
  ONEPIECE_RETURN_IF_ERROR(fleet->Start(plan));
  return fleet;
}

}  // namespace onepiece::bench
