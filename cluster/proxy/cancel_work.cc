#include "cluster/proxy/cancel_work.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cluster/rpc/channel.h"
#include "onepiece/v1/instance.grpc.pb.h"

namespace onepiece::proxy {
namespace {

constexpr base::Duration kCancelTimeout = std::chrono::milliseconds(500);

}  // namespace

void CancelWork(const v1::Job& job, const node::Routing& routing, ChannelCache& channels) {
  std::map<std::string, v1::Endpoint> instances;
  if (const v1::Workflow* workflow = routing.FindWorkflow(job.app_id())) {
    for (const v1::StageSpec& stage : workflow->stages()) {
      for (const v1::Endpoint& endpoint : routing.Instances(workflow->app_id(), stage.stage())) {
        instances.emplace(endpoint.address(), endpoint);
      }
    }
  }
  std::vector<v1::Endpoint> endpoints;
  for (auto& [address, endpoint] : instances) endpoints.push_back(std::move(endpoint));
  ForEachEndpoint(endpoints, [&](const v1::Endpoint& endpoint) {
    v1::InstanceService::Stub stub(channels.Get(endpoint.address()));
    v1::CancelWorkRequest request;
    request.set_uid(job.uid());
    // A call that gets lost costs computing time only, because the instance delivers too late.
    (void)rpc::Call(stub, &v1::InstanceService::Stub::CancelWork, request, kCancelTimeout);
  });
}

}  // namespace onepiece::proxy
