// RecordCopy: one job's record on its way to one more database.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "onepiece/v1/database.grpc.pb.h"

namespace onepiece::node {

/// Sends a record to a database, beside whatever the caller does meanwhile.
///
/// Threading: thread-confined. `done` runs on a thread of gRPC.
///
/// Blocking: Await() until the database has answered, or for the rest of the limit. The destructor
/// gives the call up and waits until gRPC is done with it.
class RecordCopy {
 public:
  using Done = std::function<void(const absl::Status&)>;

  /// `cluster_id` is the sender's. `done` is called once, with how the call ended. It must not
  /// block.
  RecordCopy(std::shared_ptr<v1::DatabaseService::Stub> stub, const v1::JobRecord& record,
             const std::string& cluster_id, base::Duration limit, Done done);
  ~RecordCopy();
  RecordCopy(const RecordCopy&) = delete;
  RecordCopy& operator=(const RecordCopy&) = delete;

  void Await();

 private:
  struct State;
  // Shared with gRPC's callback.
  const std::shared_ptr<State> state_;
};

}  // namespace onepiece::node
