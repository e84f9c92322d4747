#include "cluster/node/record_copy.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/status.h"

namespace onepiece::node {

struct RecordCopy::State {
  std::shared_ptr<v1::DatabaseService::Stub> stub;
  Done done;
  grpc::ClientContext context;
  v1::ReplicateJobsRequest request;
  v1::ReplicateJobsResponse response;
  base::Mutex mutex;
  base::CondVar changed;
  bool over ABSL_GUARDED_BY(mutex) = false;
};

RecordCopy::RecordCopy(std::shared_ptr<v1::DatabaseService::Stub> stub, const v1::JobRecord& record,
                       const std::string& cluster_id, base::Duration limit, Done done)
    : state_(std::make_shared<State>()) {
  state_->stub = std::move(stub);
  state_->done = std::move(done);
  *state_->request.add_records() = record;
  state_->request.set_cluster_id(cluster_id);
  rpc::SetTimeout(state_->context, limit);
  state_->stub->async()->ReplicateJobs(&state_->context, &state_->request, &state_->response,
                                       [state = state_](const grpc::Status& status) {
                                         state->done(rpc::FromGrpc(status));
                                         const base::MutexLock lock(state->mutex);
                                         state->over = true;
                                         state->changed.NotifyAll();
                                       });
}

RecordCopy::~RecordCopy() {
  state_->context.TryCancel();
  Await();
}

void RecordCopy::Await() {
  State& state = *state_;
  base::MutexLock lock(state.mutex);
  state.changed.Wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mutex) { return state.over; });
}

}  // namespace onepiece::node
