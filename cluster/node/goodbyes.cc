#include "cluster/node/goodbyes.h"

#include <utility>

#include "cluster/rpc/channel.h"

namespace onepiece::node {
namespace {

constexpr base::Duration kRingGoodbyeTimeout = std::chrono::milliseconds(500);  // Scaled.

}  // namespace

Goodbyes::~Goodbyes() {
  base::MutexLock lock(mutex_);
  // A consumer that answers does so at once.
  all_ended_.Wait(lock,
                  [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return under_way_.empty(); });
}

Goodbyes::Call& Goodbyes::Begin(std::shared_ptr<Stub> stub) {
  auto call = std::make_unique<Call>();
  call->stub = std::move(stub);
  rpc::SetTimeout(call->context, kRingGoodbyeTimeout);
  Call& begun = *call;
  std::vector<std::unique_ptr<Call>> ended;  // Destroyed without the lock.
  const base::MutexLock lock(mutex_);
  ended.swap(ended_);
  under_way_.emplace(&begun, std::move(call));
  return begun;
}

void Goodbyes::End(Call* call) {
  const base::MutexLock lock(mutex_);
  ended_.push_back(std::move(under_way_.extract(call).mapped()));
  all_ended_.NotifyAll();
}

void Goodbyes::Say(std::shared_ptr<Stub> stub, const v1::CloseRingRequest& request) {
  Call& call = Begin(std::move(stub));
  call.close = request;
  call.stub->async()->CloseRing(&call.context, &call.close, &call.closed,
                                [this, ended = &call](const grpc::Status&) { End(ended); });
}

void Goodbyes::Say(std::shared_ptr<Stub> stub, const v1::RenewValueRequest& request) {
  Call& call = Begin(std::move(stub));
  call.give_up = request;
  call.give_up.set_give_up(true);
  call.stub->async()->RenewValue(&call.context, &call.give_up, &call.given_up,
                                 [this, ended = &call](const grpc::Status&) { End(ended); });
}

}  // namespace onepiece::node
