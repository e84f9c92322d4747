// SubmitJob: what a request must look like, the record and the message that it becomes, and its way
// from the request to the started job.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <semaphore>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cluster/admission/request_monitor.h"
#include "cluster/base/clock.h"
#include "cluster/base/ids.h"
#include "cluster/message/message.h"
#include "cluster/node/cluster_view.h"
#include "cluster/node/job_records.h"
#include "cluster/node/kept_work.h"
#include "cluster/node/outbox.h"
#include "cluster/proxy/channel_cache.h"
#include "cluster/proxy/input_budget.h"
#include "cluster/proxy/start_claim.h"
#include "cluster/proxy/tenant_accounts.h"
#include "cluster/rpc/caller.h"
#include "cluster/telemetry/metrics.h"
#include "cluster/telemetry/spans.h"
#include "cluster/workflow/graph.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "onepiece/v1/database.pb.h"
#include "onepiece/v1/generation.pb.h"
#include "onepiece/v1/workflow.pb.h"

namespace onepiece::proxy {

/// Returns the uid of a job. It is made of the tenant, the request id and the cluster's secret. So
/// every proxy finds the same job for the same request id, tenants that choose one id neither
/// collide nor learn of each other, and nobody else can guess it (UUIDv8, RFC 9562). Without a
/// request id it is a fresh UUIDv7.
base::Uid MakeUid(std::string_view cluster_secret, std::string_view tenant,
                  std::string_view request_id, base::WallTime now);

/// Checks everything that needs no schema: request_id, priority, labels, deadline, number and size
/// of parameters.
///
/// Errors: INVALID_ARGUMENT with BAD_REQUEST_ID, BAD_PRIORITY, BAD_LABELS, BAD_DEADLINE or
/// INVALID_PARAMETERS.
absl::Status CheckEnvelope(const v1::SubmitJobRequest& request);

/// Returns how long the job may take: as the request says, or the application's default.
base::Duration DeadlineOf(const v1::SubmitJobRequest& request, const v1::Workflow& workflow);

/// Who submits a job.
struct Submitter {
  std::string tenant;  ///< Whose job it is.
  /// Whose share of the capacity the job takes: the tenant's. An insecure cluster believes the
  /// request's label "tenant".
  std::string share;
};
Submitter SubmitterOf(const rpc::Caller& caller, const v1::SubmitJobRequest& request);

/// Returns what the request monitor judges by. Neither checks the parameters nor touches the
/// inputs. REQUIRES: CheckEnvelope passed.
admission::AdmissionRequest AdmissionOf(const v1::SubmitJobRequest& request,
                                        const std::string& share, const v1::Workflow& workflow,
                                        const workflow::Graph& graph, const base::Uid& uid,
                                        base::WallTime now);

using InputDigests = google::protobuf::RepeatedPtrField<v1::InputDigest>;

/// Returns what the record keeps of the job's inputs: everything but the bytes. Reads every byte
/// once.
InputDigests DigestInputs(const v1::SubmitJobRequest& request);

/// Returns the SHA-256 of what the client asked for, inputs included and the request_id left out.
/// `inputs` are the digests of the request's own inputs.
std::string Fingerprint(const v1::SubmitJobRequest& request, const InputDigests& inputs);

/// Returns the record of a new job, QUEUED at the first stage. REQUIRES: CheckEnvelope passed, and
/// the workflow has stages.
v1::JobRecord MakeRecord(const v1::SubmitJobRequest& request, const std::string& tenant,
                         const v1::Workflow& workflow, const base::Uid& uid, base::WallTime now,
                         std::string_view workflow_set);

/// Returns the message that starts the recorded job, with its inputs as artifacts.
///
/// Its deadline is record.time_left() from `now`.
///
/// Ownership: the message borrows the inputs' bytes, so the request must outlive it.
message::Message MakeMessage(const v1::JobRecord& record, message::Parameters parameters,
                             const v1::SubmitJobRequest& request, std::uint64_t routing_epoch,
                             base::MonotonicTime now);

struct SubmissionOptions {
  std::string workflow_set;
  /// Bytes of inputs in all submissions under way together, at most; not less than one job's.
  std::int64_t max_input_bytes = std::int64_t{256} << 20;
  /// Borrowed. Keeps the inputs of entrance stages until these have completed. None: they are lost
  /// with the instance that has them.
  node::KeptWork* kept = nullptr;
};

/// Takes a request to the started job: checks it, asks the request monitor, creates the job's
/// record and sends its message to every entrance of its workflow.
///
/// The record comes first, so a client that lost the answer, and asks again under its request_id,
/// finds the job through any proxy and never starts a second one. Whoever starts a job has the
/// record's lease (StartClaim): the call that made the record, or, when that lease has run out, the
/// next call with the request_id. It starts whatever entrances have nothing yet, in the run of the
/// work that has begun, or in a new run when none has.
///
/// Ownership: borrows everything it is given, which must outlive it.
///
/// Threading: thread-safe.
///
/// Blocking: StartJob and LookUp answer within about 4 s (scaled), and soon after Stop().
class Submission {
 public:
  Submission(const node::ClusterView& view, SubmissionOptions options, node::JobRecords& records,
             node::Outbox& outbox, admission::RequestMonitor& monitor, TenantAccounts& accounts,
             ChannelCache& channels, telemetry::Metrics& metrics, telemetry::Spans& spans,
             base::Clock& clock);

  /// Returns the tenant's job, started now or known before. With validate_only nothing is made, and
  /// the job has no name. `repeated`: the client may have asked before.
  ///
  /// Errors: those of GenerationService.SubmitJob.
  absl::StatusOr<v1::Job> StartJob(const v1::SubmitJobRequest& request, const Submitter& who,
                                   bool repeated);
  /// Returns which workflow set has the tenant's job of this request id, a UUID.
  ///
  /// Errors: NOT_FOUND: this set does not have the job, or nobody computes it here. UNAVAILABLE.
  absl::StatusOr<v1::Job> LookUp(const std::string& tenant, const std::string& request_id);
  /// Ends waits, now and later. Idempotent.
  void Stop() { stopping_.request_stop(); }

 private:
  /// One request on its way.
  struct Order {
    const v1::SubmitJobRequest& request;
    const Submitter& who;
    std::shared_ptr<const node::Routing> routing;  // Keeps `workflow` alive.
    const v1::Workflow& workflow;
    base::WallTime start;
    base::Uid uid;
    // Prepare() makes these three.
    std::optional<InputBudget::Share> inputs;
    message::Parameters parameters;
    v1::JobRecord wanted;
    bool begun = false;  // This call has begun the job.
  };

  absl::StatusOr<v1::Job> Decide(const v1::SubmitJobRequest& request, const Submitter& who,
                                 bool repeated);
  absl::Status Prepare(Order& order);
  absl::StatusOr<v1::Job> Validate(Order& order);
  absl::StatusOr<v1::Job> Admit(Order& order);
  absl::StatusOr<v1::Job> FindKnown(const Order& order, const absl::Status& refused);
  absl::StatusOr<v1::JobRecord> Start(Order& order, StartClaim& claim, const v1::JobRecord& record);
  absl::StatusOr<v1::WorkHolder> SendTo(const node::Routing& routing, message::Message& message,
                                        base::MonotonicTime deadline);
  absl::Status KeepClaim(StartClaim& claim, const std::string& uid);
  absl::StatusOr<v1::JobRecord> NotePlaced(const v1::UpdateJobRequest& update,
                                           const v1::JobRecord& record);
  void KeepRest(message::Message message, std::span<const std::string> stages);
  absl::Status GiveUp(const v1::JobRecord& record, const v1::UpdateJobRequest& placed,
                      const message::Message& message, std::span<const std::string> stages,
                      const absl::Status& status);
  absl::StatusOr<v1::JobRecord> AwaitTurn(StartClaim& claim, v1::JobRecord record);
  absl::StatusOr<v1::JobRecord> AwaitHolder(v1::JobRecord record);
  void CountAnswer(const std::string& result);
  void CountDecision(const absl::Status& status, base::Duration taken);

  const node::ClusterView& view_;
  const SubmissionOptions options_;
  node::JobRecords& records_;
  node::Outbox& outbox_;
  admission::RequestMonitor& monitor_;
  TenantAccounts& accounts_;
  ChannelCache& channels_;
  telemetry::Metrics& metrics_;
  telemetry::Spans& spans_;
  base::Clock& clock_;
  // Looked up once, because a rejection must stay cheap.
  prometheus::Histogram& admitted_seconds_;
  prometheus::Histogram& rejected_seconds_;
  prometheus::Histogram& failed_seconds_;
  InputBudget inputs_;
  std::counting_semaphore<> look_ups_;  // Of FindKnown.
  std::stop_source stopping_;
};

}  // namespace onepiece::proxy
