#include "cluster/node/work_service.h"

#include <map>
#include <memory>
#include <string>

#include "cluster/base/status.h"
#include "cluster/node/kept_work.h"
#include "cluster/rpc/channel.h"

namespace onepiece::node {
namespace {

// For one call; scaled. A keeper that was stopped for a moment must not hold up the others long.
constexpr base::Duration kTellTimeout = std::chrono::milliseconds(500);
constexpr std::size_t kMaxKeeperStubs = 256;

}  // namespace

Settler::Tell TellByGrpc() {
  // Only the settler's thread calls it.
  const auto stubs =
      std::make_shared<std::map<std::string, std::unique_ptr<v1::WorkService::Stub>>>();
  return [stubs](const v1::Endpoint& keeper, const v1::SettleWorkRequest& request) {
    // Most of them are addresses of nodes that are long gone. Those in use come back at once.
    if (stubs->size() >= kMaxKeeperStubs && !stubs->contains(keeper.address())) stubs->clear();
    auto& stub = (*stubs)[keeper.address()];
    if (stub == nullptr) stub = v1::WorkService::NewStub(rpc::MakeChannel(keeper.address()));
    return rpc::Call(*stub, &v1::WorkService::Stub::Settle, request, kTellTimeout).status();
  };
}

grpc::Status WorkService::Settle(grpc::ServerContext*, const v1::SettleWorkRequest* request,
                                 google::protobuf::Empty*) {
  if (request->works_size() > Settler::kMaxWorks)
    return rpc::ToGrpc(base::MakeError(absl::StatusCode::kInvalidArgument, "TOO_MANY_WORKS",
                                       "at most 1000 works"));
  for (const v1::WorkSettled& settled : request->works()) kept_.Settle(settled);
  return grpc::Status::OK;
}

}  // namespace onepiece::node
