// Follows a cluster for a principal without the scope `read`. The NodeManager lets it have no
// stream of events, but tells which workflows there are and where its proxies are: enough to submit
// jobs and to see the own ones.
#include <grpcpp/grpcpp.h>

#include <utility>

#include "cluster/base/status.h"
#include "cluster/session/feeds.h"
#include "onepiece/v1/identity.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"

namespace onepiece::session {
namespace {

using NodeManagerStub = v1::NodeManagerService::Stub;

/// A cluster has fewer workflows than fit on so many pages.
constexpr int kMaxPages = 20;

absl::StatusOr<v1::Cluster> AskForWhatIsShown(NodeManagerStub& stub, const std::string& cluster_id,
                                              const std::stop_token& stop) {
  v1::Cluster shown;
  shown.set_cluster_id(cluster_id);
  ONEPIECE_ASSIGN_OR_RETURN(const v1::ListProxiesResponse proxies,
                            Ask(stub, &NodeManagerStub::ListProxies, {}, kReadTimeout, stop));
  for (const v1::ListProxiesResponse::Proxy& proxy : proxies.proxies()) {
    v1::Node& node = *shown.add_nodes();
    node.set_role(v1::PROXY);
    node.set_state(v1::Node::READY);
    node.set_node_id(proxy.endpoint().node_id().empty() ? proxy.endpoint().address()
                                                        : proxy.endpoint().node_id());
    node.set_incarnation(proxy.endpoint().incarnation());
    node.set_address(proxy.endpoint().address());
    node.set_workflow_set(proxy.workflow_set());
  }
  v1::ListWorkflowsRequest request;
  for (int page = 0; page < kMaxPages; ++page) {
    ONEPIECE_ASSIGN_OR_RETURN(
        v1::ListWorkflowsResponse answer,
        Ask(stub, &NodeManagerStub::ListWorkflows, request, kReadTimeout, stop));
    for (v1::Workflow& workflow : *answer.mutable_workflows())
      *shown.add_workflows() = std::move(workflow);
    if (answer.next_page_token().empty()) break;
    request.set_page_token(answer.next_page_token());
  }
  return shown;
}

}  // namespace

absl::Status FollowWithoutRead(Feeds& feeds, const rpc::Replica& replica, const absl::Status& why,
                               const std::stop_token& stop) {
  const Turns turns = feeds.board.turns();
  v1::IdentityService::Stub identity(replica.channel);
  ONEPIECE_ASSIGN_OR_RETURN(
      const v1::WhoAmIResponse me,
      Ask(identity, &v1::IdentityService::Stub::WhoAmI, {}, kReadTimeout, stop));
  NodeManagerStub stub(replica.channel);
  std::shared_ptr<const v1::Cluster> published;
  std::uint64_t wakes = 0;
  do {
    ONEPIECE_ASSIGN_OR_RETURN(v1::Cluster shown, AskForWhatIsShown(stub, me.cluster_id(), stop));
    feeds.board.Heard(0, 0);
    const bool first = published == nullptr;
    published = Keep(published, std::move(shown));
    // The error stays with the part: what is shown is not the whole cluster.
    feeds.board.Put(&Snapshot::cluster, published, Explain(why));
    if (first) feeds.board.Wake();  // The feed of jobs knows now whom to ask.
    // A resync tries the stream again: somebody may have got more scopes.
  } while (feeds.board.Sleep(feeds.options.poll_interval, stop, wakes) &&
           feeds.board.turns().resyncs == turns.resyncs);
  return absl::OkStatus();
}

}  // namespace onepiece::session
