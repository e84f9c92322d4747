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

/// The connections of one thread to keepers, one for each address.
class Stubs {
 public:
  v1::WorkService::Stub& At(const std::string& address) {
    // Most of them are addresses of nodes that are long gone. Those in use come back at once.
    if (stubs_.size() >= kMaxKeeperStubs && !stubs_.contains(address)) stubs_.clear();
    auto& stub = stubs_[address];
    if (stub == nullptr) stub = v1::WorkService::NewStub(rpc::MakeChannel(address));
    return *stub;
  }

 private:
  std::map<std::string, std::unique_ptr<v1::WorkService::Stub>> stubs_;
};

grpc::Status CheckCount(int works) {
  if (works <= Settler::kMaxWorks) return grpc::Status::OK;
  return rpc::ToGrpc(
      base::MakeError(absl::StatusCode::kInvalidArgument, "TOO_MANY_WORKS", "at most 1000 works"));
}

}  // namespace

Settler::Tell TellByGrpc() {
  // Only the settler's thread calls it.
  return [stubs = std::make_shared<Stubs>()](const v1::Endpoint& keeper,
                                             const v1::SettleWorkRequest& request) {
    return rpc::Call(stubs->At(keeper.address()), &v1::WorkService::Stub::Settle, request,
                     kTellTimeout)
        .status();
  };
}

AskKept AskKeptByGrpc() {
  return [stubs = std::make_shared<Stubs>()](const v1::Endpoint& keeper,
                                             const v1::FindKeptRequest& request) {
    return rpc::Call(stubs->At(keeper.address()), &v1::WorkService::Stub::FindKept, request,
                     kTellTimeout);
  };
}

grpc::Status WorkService::Settle(grpc::ServerContext*, const v1::SettleWorkRequest* request,
                                 google::protobuf::Empty*) {
  grpc::Status checked = CheckCount(request->works_size());
  if (!checked.ok()) return checked;
  for (const v1::WorkSettled& settled : request->works()) kept_.Settle(settled);
  return checked;
}

grpc::Status WorkService::FindKept(grpc::ServerContext*, const v1::FindKeptRequest* request,
                                   v1::FindKeptResponse* response) {
  grpc::Status checked = CheckCount(request->works_size());
  if (!checked.ok()) return checked;
  for (const v1::HeldWork& work : request->works()) response->add_kept(kept_.Keeps(work));
  return checked;
}

}  // namespace onepiece::node
