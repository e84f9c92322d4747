// The C++ client library submits jobs to a cluster and fetches their results (docs/architecture.md,
// "Life of a job").
//
// A client finds proxies through the NodeManager, where any replica leads it to the leader. It
// talks to one proxy and moves on to another when that one does not answer. It asks proxies that it
// knows without any NodeManager, so jobs flow while there is none. When a workflow set is full, the
// client tries the other sets and then waits as long as the cluster asks for. Every call may be
// repeated safely: Submit carries a request id, and the other calls are idempotent.
//
// Ownership: a Client owns its channels. It borrows callbacks for the call.
// Threading: may be used from any thread.
// Blocking: every call blocks, for at most `ClientOptions::timeout` unless it says otherwise.
// Errors: absl::Status with the reason that the cluster gave (base::GetReason). UNAVAILABLE when no
// NodeManager or no proxy answered in time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "onepiece/v1/cluster_config.pb.h"
#include "onepiece/v1/consensus.pb.h"
#include "onepiece/v1/elasticity.pb.h"
#include "onepiece/v1/generation.pb.h"
#include "onepiece/v1/identity.pb.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::client {

struct ClientOptions {
  /// host:port of NodeManager replicas. The client learns the others.
  std::vector<std::string> nodemanagers;
  /// host:port of proxies, which are asked before any NodeManager. At least one of both lists must
  /// not be empty.
  std::vector<std::string> proxies;
  std::string workflow_set;  ///< The set that is asked first. Empty: any set.
  /// How long a call is retried before it fails.
  base::Duration timeout = base::Scaled(std::chrono::seconds(30));
  /// How long one proxy or NodeManager may take to answer.
  base::Duration attempt_timeout = base::Scaled(std::chrono::seconds(5));
  /// Once its stop is requested, calls under way and later calls end soon with CANCELLED
  /// (INTERRUPTED).
  std::stop_token stop;
  /// The first pause between two rounds over all proxies. It doubles up to `max_pause`.
  base::Duration first_pause = std::chrono::milliseconds(50);
  base::Duration max_pause = std::chrono::seconds(2);
  std::string user_agent;  ///< The name of this program for servers: "onepiece-console".
  base::Clock* clock = &base::SystemClock();
};

/// Takes the next bytes of an artifact. An error ends the fetch.
using ChunkSink = std::function<absl::Status(std::string_view chunk)>;
/// Is called with the job now and after every change. Returning false ends the watch.
using JobObserver = std::function<bool(const v1::Job& job)>;
/// Is called with every event of the cluster. Returning false ends the watch.
using ClusterObserver = std::function<bool(const v1::ClusterEvent& event)>;
/// Is called with the plan after every poll.
using PlanObserver = std::function<void(const v1::Plan& plan)>;

/// The status of a NodeManager replica, or why it did not answer.
struct ReplicaAnswer {
  std::string address;
  std::string name;  ///< Its seat's name. Empty when it is silent and no seat has its address.
  absl::StatusOr<v1::ReplicaStatus> status;
};

class Client {
 public:
  explicit Client(ClientOptions options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Submits a job. Where ClientOptions name no workflow set, the request_id chooses one. An empty
  /// request_id is replaced by a fresh UUIDv4, so that a retry gives the same job.
  ///
  /// Blocking: may take one second longer for each MiB of inputs.
  /// Errors: NOT_FOUND (unknown application), INVALID_ARGUMENT (parameters, inputs,
  /// REQUEST_TOO_LARGE), RESOURCE_EXHAUSTED (every set is full), FAILED_PRECONDITION
  /// (DEADLINE_TOO_SHORT: no set can finish it in time).
  absl::StatusOr<v1::Job> Submit(v1::SubmitJobRequest request);
  /// Errors: NOT_FOUND.
  absl::StatusOr<v1::Job> Get(std::string_view uid);
  /// One page, newest first.
  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request);
  absl::StatusOr<v1::Job> Cancel(std::string_view uid);
  absl::Status Delete(std::string_view uid);
  absl::StatusOr<v1::GetJobTraceResponse> Trace(std::string_view uid);

  /// Follows a job, also over broken connections, until it ends or `observer` returns false.
  /// Returns the job as last seen.
  ///
  /// Errors: DEADLINE_EXCEEDED when `deadline` passes, CANCELLED when `stop` is requested,
  /// UNAVAILABLE when nothing answered for ClientOptions::timeout.
  absl::StatusOr<v1::Job> Watch(std::string_view uid, const JobObserver& observer,
                                base::MonotonicTime deadline, std::stop_token stop = {});

  /// Streams one artifact (empty name: the main one) into `sink`, and checks size and SHA-256 at
  /// the end. After a broken connection it resumes where it stopped. The result stays in the
  /// cluster until Acknowledge().
  ///
  /// Blocking: a stream that keeps moving may take longer than ClientOptions::timeout.
  /// Errors: NOT_FOUND, FAILED_PRECONDITION (not done, or gone), DATA_LOSS (CHECKSUM_MISMATCH), and
  /// the errors of `sink`.
  absl::StatusOr<v1::ResultArtifact> Fetch(std::string_view uid, std::string_view artifact,
                                           const ChunkSink& sink);
  /// Fetches into a file, which appears under its name only when it is complete. Tries a second
  /// time when the bytes arrive damaged.
  absl::StatusOr<v1::ResultArtifact> FetchToFile(std::string_view uid, std::string_view artifact,
                                                 const std::string& path);
  /// Says that the result has arrived. The cluster then purges its bytes.
  absl::StatusOr<v1::Job> Acknowledge(std::string_view uid);

  /// Returns the cluster as the NodeManager sees it.
  absl::StatusOr<v1::Cluster> GetCluster();
  /// Follows the cluster until `observer` returns false (OK), also over broken connections and
  /// changes of the leader.
  ///
  /// The observer gets every change after `start_revision` (0: a snapshot first) exactly once, and
  /// revisions never fall. An event with a snapshot replaces everything told before. Heartbeats (no
  /// change) come in between. Telemetry events come every `telemetry_interval` (not scaled; 0 means
  /// none; at least 200 ms). They tell what every node reported last, under the revision seen last.
  ///
  /// Errors: DEADLINE_EXCEEDED when `deadline` passes, CANCELLED when `stop` is requested,
  /// UNAVAILABLE when nothing answered for ClientOptions::timeout, UNAVAILABLE (HISTORY_LOST) when
  /// the NodeManager's revision is before what was seen, INVALID_ARGUMENT (BAD_TELEMETRY_INTERVAL).
  absl::Status WatchCluster(std::uint64_t start_revision, const ClusterObserver& observer,
                            base::MonotonicTime deadline, std::stop_token stop = {},
                            base::Duration telemetry_interval = base::Duration::zero());
  /// Forgets a dead node.
  ///
  /// Errors: NOT_FOUND (NODE_UNKNOWN), FAILED_PRECONDITION (NODE_ALIVE).
  absl::Status RemoveNode(v1::RemoveNodeRequest request);
  /// Creates, replaces or (validate_only) checks an application.
  absl::StatusOr<v1::Workflow> ApplyWorkflow(const v1::ApplyWorkflowRequest& request);

  /// Returns pools, limits, the hold and the plans under way.
  absl::StatusOr<v1::Elasticity> GetElasticity();
  /// Returns what the moves would do, or which moves the policy would make now. Changes nothing.
  ///
  /// Errors: those of ElasticityService, as for the calls below.
  absl::StatusOr<v1::Plan> ProposePlan(const v1::ProposePlanRequest& request);
  absl::StatusOr<v1::Plan> ApplyPlan(v1::ApplyPlanRequest request);
  /// Errors: NOT_FOUND (PLAN_UNKNOWN).
  absl::StatusOr<v1::Plan> GetPlan(std::string_view plan_id);
  /// One page, newest first.
  absl::StatusOr<v1::ListPlansResponse> ListPlans(const v1::ListPlansRequest& request);
  absl::StatusOr<v1::Plan> ConfirmPlan(v1::DecidePlanRequest request);
  absl::StatusOr<v1::Plan> UndoPlan(v1::DecidePlanRequest request);
  absl::StatusOr<v1::Hold> SetHold(v1::SetHoldRequest request);
  absl::StatusOr<v1::PoolLimits> SetPoolLimits(v1::SetPoolLimitsRequest request);
  /// One page, newest first.
  absl::StatusOr<v1::ListAuditResponse> ListAudit(const v1::ListAuditRequest& request);
  /// Polls a plan until it has settled. The plan goes on however this call ends.
  ///
  /// Errors: DEADLINE_EXCEEDED when `deadline` passes, CANCELLED (INTERRUPTED) when `stop` is
  /// requested.
  absl::StatusOr<v1::Plan> AwaitPlan(std::string_view plan_id, const PlanObserver& observer,
                                     base::MonotonicTime deadline, std::stop_token stop = {});

  /// Returns a revision of the cluster's configuration. 0 is the present one.
  ///
  /// Errors: NOT_FOUND (REVISION_UNKNOWN).
  absl::StatusOr<v1::ConfigRevision> GetConfig(std::uint64_t revision = 0);
  /// One page, newest first, without the configurations.
  absl::StatusOr<v1::ListConfigRevisionsResponse> ListConfigRevisions(
      const v1::ListConfigRevisionsRequest& request);
  /// Replaces sections of the configuration, or (validate_only) says what that would change.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_CONFIG), FAILED_PRECONDITION (BELOW_USE, FEATURE_LEVEL), ABORTED
  /// (STALE_REVISION).
  absl::StatusOr<v1::ApplyConfigResponse> ApplyConfig(v1::ApplyConfigRequest request);

  /// Gives a host its first certificate for a join token. The same request_id gives the same answer
  /// and uses the token once; an empty one is replaced.
  ///
  /// Errors: those of IdentityService, as for the calls below.
  absl::StatusOr<v1::JoinResponse> Join(v1::JoinRequest request);
  /// Says whom the cluster takes this process for, and what that one may do.
  absl::StatusOr<v1::WhoAmIResponse> WhoAmI();
  absl::StatusOr<v1::RenewResponse> Renew(const v1::RenewRequest& request);
  /// When an answer was lost, a second token is made, which `ListTokens` shows and nobody knows.
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(const v1::CreateTokenRequest& request);
  absl::StatusOr<v1::ListTokensResponse> ListTokens();
  absl::Status RevokeToken(const v1::RevokeTokenRequest& request);
  absl::StatusOr<v1::ListCertificatesResponse> ListCertificates();
  absl::Status RevokeCertificate(const v1::RevokeCertificateRequest& request);
  /// Takes the change to the next CA one step further. When an answer was lost it may be two, each
  /// only after the nodes have followed.
  absl::StatusOr<v1::AuthorityStatus> RotateAuthority(const v1::RotateAuthorityRequest& request);
  absl::StatusOr<v1::AuthorityStatus> GetAuthority();
  absl::StatusOr<v1::Tenant> SetTenant(const v1::SetTenantRequest& request);
  absl::StatusOr<v1::ListTenantsResponse> ListTenants();

  /// Asks every replica of the NodeManager that is configured, known, or has a seat. The answers
  /// are sorted by name.
  ///
  /// Blocking: asks all replicas at the same time, each for ClientOptions::attempt_timeout.
  std::vector<ReplicaAnswer> AskReplicas();
  /// These change the seats. When an answer was lost, the same change is asked for again and may be
  /// refused the second time.
  ///
  /// Errors: those of ConsensusService.
  absl::StatusOr<v1::ConsensusMembers> AddSeat(const v1::AddSeatRequest& request);
  absl::StatusOr<v1::ConsensusMembers> RemoveSeat(const v1::RemoveSeatRequest& request);
  absl::StatusOr<v1::ConsensusMembers> ReplaceSeat(const v1::ReplaceSeatRequest& request);
  /// Raises the cluster's feature level.
  absl::StatusOr<v1::RaiseFeatureLevelResponse> RaiseFeatureLevel(
      v1::RaiseFeatureLevelRequest request);
  /// Asks the leader, the replica at `address`, to hand over. It asks only once, because a second
  /// request would depose the successor.
  ///
  /// Errors: UNAVAILABLE (NOT_LEADER), UNAVAILABLE (OUTCOME_UNKNOWN) when the answer was lost and
  /// only the next leader tells, FAILED_PRECONDITION (NO_SUCCESSOR).
  absl::Status StepDown(const std::string& address);
  /// These ask the replica at `address`.
  absl::StatusOr<v1::TakeSnapshotResponse> TakeSnapshot(const std::string& address);
  absl::StatusOr<v1::ListLogResponse> ListLog(const std::string& address,
                                              const v1::ListLogRequest& request);
  /// Hands the bytes of a backup file to `sink`. An error of the sink ends the call and is
  /// returned. The caller checks the bytes: a stream that broke off may have brought only some of
  /// them.
  absl::Status Backup(const std::string& address, const v1::BackupRequest& request,
                      const ChunkSink& sink);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// "jobs/{uid}"
std::string JobName(std::string_view uid);
/// Returns true when a job in this state has ended. Its state then changes only to EXPIRED.
bool IsTerminal(v1::Job::State state);
/// Returns true when no move of the plan is under way. The plan has ended, or waits to be confirmed
/// (UNCONFIRMED).
bool HasSettled(const v1::Plan& plan);

}  // namespace onepiece::client
