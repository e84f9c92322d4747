// Calls to other nodes' rings that only tidy up. Internal to cluster/node.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "grpcpp/client_context.h"
#include "onepiece/v1/ring.grpc.pb.h"

namespace onepiece::node {

/// Calls that no thread waits for. Their answers do not matter: who is gone needs no good-bye, and
/// what a lost call would have given back comes back in time.
///
/// Threading: thread-safe.
///
/// Blocking: the destructor waits for the last call's timeout at most.
class Goodbyes {
 public:
  using Stub = v1::RingService::Stub;
  Goodbyes() = default;
  ~Goodbyes();
  Goodbyes(const Goodbyes&) = delete;
  Goodbyes& operator=(const Goodbyes&) = delete;

  /// Ends a connection to a ring.
  void Say(std::shared_ptr<Stub> stub, const v1::CloseRingRequest& request);
  /// Gives a reservation up.
  void Say(std::shared_ptr<Stub> stub, const v1::RenewValueRequest& request);

 private:
  // The next Say(), or the destructor, destroys a call and perhaps its channel. gRPC's own thread
  // must not: it would wait for itself.
  struct Call {
    std::shared_ptr<Stub> stub;
    grpc::ClientContext context;
    v1::CloseRingRequest close;
    google::protobuf::Empty closed;
    v1::RenewValueRequest give_up;
    v1::RenewValueResponse given_up;
  };
  Call& Begin(std::shared_ptr<Stub> stub);
  void End(Call* call);

  base::Mutex mutex_;
  base::CondVar all_ended_;
  std::map<Call*, std::unique_ptr<Call>> under_way_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Call>> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::node
