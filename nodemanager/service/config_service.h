// Serves ConfigService over gRPC.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nodemanager/service/controller.h"
#include "onepiece/v1/cluster_config.grpc.pb.h"

namespace onepiece::nodemanager {

/// What operators decide for the whole cluster, and what they decided before.
///
/// Ownership: borrows the controller, which must outlive it.
/// Threading: thread-safe.
/// Blocking: changes wait for the log.
/// Errors: every error carries a reason (google.rpc.ErrorInfo). A replica that does not lead
/// answers GetConfig() and ListConfigRevisions() after it has caught up with the leader, and
/// refuses every other call with UNAVAILABLE (NOT_LEADER), as it does all while there is no
/// revision.
class ConfigService final : public v1::ConfigService::Service {
 public:
  /// A list names at most so many changes of each revision. The answer to ApplyConfig names more.
  static constexpr int kMaxShownChanges = 20, kMaxAppliedChanges = 1000;

  /// `read_only` means what it means in NodeConfig. Requests that only validate are answered.
  /// The door knows who calls; null: the NodeManager is insecure.
  explicit ConfigService(Controller& controller, bool read_only = false,
                         const rpc::Door* door = nullptr)
      : controller_(controller), read_only_(read_only), door_(door) {}

  grpc::Status GetConfig(grpc::ServerContext* context, const v1::GetConfigRequest* request,
                         v1::ConfigRevision* response) override;
  grpc::Status ListConfigRevisions(grpc::ServerContext* context,
                                   const v1::ListConfigRevisionsRequest* request,
                                   v1::ListConfigRevisionsResponse* response) override;
  grpc::Status ApplyConfig(grpc::ServerContext* context, const v1::ApplyConfigRequest* request,
                           v1::ApplyConfigResponse* response) override;

 private:
  absl::StatusOr<v1::ConfigRevision> Find(std::uint64_t revision);
  absl::StatusOr<v1::ListConfigRevisionsResponse> List(
      const v1::ListConfigRevisionsRequest& request);
  // `command` says who asks.
  absl::StatusOr<v1::ApplyConfigResponse> Apply(v1::Command command,
                                                const v1::ApplyConfigRequest& request);
  // What the change would do to the newest state.
  absl::StatusOr<v1::ApplyConfigResponse> Preview(const v1::SetConfig& change);

  Controller& controller_;
  const bool read_only_;
  const rpc::Door* const door_;
};

}  // namespace onepiece::nodemanager
