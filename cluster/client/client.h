// The C++ client library: submits jobs to a cluster and brings their results home (DESIGN §4).
//
// What       Finds proxies through the NodeManager (any replica leads to the one that leads), talks
// to one of them, and moves on to another when it does not
//            answer; proxies that it knows are asked without any NodeManager, so jobs flow while
//            there is none; a full workflow set makes it try the other sets, then wait as long as
//            the cluster asks for. Every call may be repeated safely: Submit carries a request id,
//            the rest are idempotent.
// Ownership  A Client owns its channels. Callbacks are borrowed for the call.
// Threading  Thread-safe.
// Blocking   Every call blocks, for at most `Options::timeout` unless it says otherwise.
// Errors     absl::Status with the reason that the cluster gave (base::GetReason). UNAVAILABLE: no
// NodeManager or
//            no proxy answered in time.
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
#include "onepiece/v1/consensus.pb.h"
#include "onepiece/v1/elasticity.pb.h"
#include "onepiece/v1/generation.pb.h"
#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::client {

struct Options {
  std::vector<std::string>
      nodemanagers;  ///< host:port of NodeManager replicas; the rest is learned.
  /// host:port of proxies, asked before any NodeManager. One of both lists is not empty.
  std::vector<std::string> proxies;
  std::string workflow_set;  ///< Asked first; empty: any.
  /// How long a call is repeated before it fails.
  base::Duration timeout = base::Scaled(std::chrono::seconds(30));
  /// How long one proxy or NodeManager may take to answer.
  base::Duration attempt_timeout = base::Scaled(std::chrono::seconds(5));
  /// Requested: calls under way and later ones end with CANCELLED (INTERRUPTED) within moments.
  std::stop_token stop;
  /// First pause between two rounds over all proxies; doubles up to `max_pause`.
  base::Duration first_pause = std::chrono::milliseconds(50);
  base::Duration max_pause = std::chrono::seconds(2);
  std::string user_agent;  ///< What servers see of this program: "onepiece-console".
  base::Clock* clock = &base::SystemClock();
};

/// Takes the next bytes of an artifact; an error ends the fetch.
using ChunkSink = std::function<absl::Status(std::string_view chunk)>;
/// Called with the job now and after every change; false ends the watch.
using JobObserver = std::function<bool(const v1::Job& job)>;
/// Called with every event of the cluster; false ends the watch.
using ClusterObserver = std::function<bool(const v1::ClusterEvent& event)>;
/// Called with a plan every time it was asked for.
using PlanObserver = std::function<void(const v1::Plan& plan)>;

/// What a replica of the NodeManager says of itself, or why it does not.
struct ReplicaAnswer {
  std::string address;
  std::string name;  ///< Of its seat; empty: it does not answer, and no seat has its address.
  absl::StatusOr<v1::ReplicaStatus> status;
};

class Client {
 public:
  explicit Client(Options options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Submits a job, to a workflow set that its request_id chooses where Options name none. An empty
  /// request_id is replaced by a fresh UUIDv4, so that a retry gives the same job. May take a
  /// second longer for each MiB of inputs. Errors: NOT_FOUND (unknown application),
  /// INVALID_ARGUMENT (parameters, inputs, REQUEST_TOO_LARGE), RESOURCE_EXHAUSTED (every set is
  /// full), FAILED_PRECONDITION (DEADLINE_TOO_SHORT: no set can do it in time).
  absl::StatusOr<v1::Job> Submit(v1::SubmitJobRequest request);
  /// Errors: NOT_FOUND.
  absl::StatusOr<v1::Job> Get(std::string_view uid);
  /// One page, newest first.
  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request);
  absl::StatusOr<v1::Job> Cancel(std::string_view uid);
  absl::Status Delete(std::string_view uid);
  absl::StatusOr<v1::GetJobTraceResponse> Trace(std::string_view uid);

  /// Follows a job over broken connections until it ends, `observer` returns false, `deadline`
  /// passes (DEADLINE_EXCEEDED) or `stop` is requested (CANCELLED). Returns the job as last seen.
  /// UNAVAILABLE: nothing answered for Options::timeout.
  absl::StatusOr<v1::Job> Watch(std::string_view uid, const JobObserver& observer,
                                base::MonotonicTime deadline, std::stop_token stop = {});

  /// Streams one artifact (empty name: the main one) into `sink`, resuming where a broken
  /// connection stopped, and checks size and SHA-256 at the end. It stays in the cluster until
  /// Acknowledge. A stream that keeps moving may take longer than Options::timeout. Errors:
  /// NOT_FOUND, FAILED_PRECONDITION (not done, or gone), DATA_LOSS (CHECKSUM_MISMATCH), and those
  /// of `sink`.
  absl::StatusOr<v1::ResultArtifact> Fetch(std::string_view uid, std::string_view artifact,
                                           const ChunkSink& sink);
  /// Fetch into a file, which appears under its name only when complete; tried twice when the bytes
  /// arrive damaged.
  absl::StatusOr<v1::ResultArtifact> FetchToFile(std::string_view uid, std::string_view artifact,
                                                 const std::string& path);
  /// Says that the result has arrived: the cluster gives its bytes up.
  absl::StatusOr<v1::Job> Acknowledge(std::string_view uid);

  /// The cluster as the NodeManager sees it.
  absl::StatusOr<v1::Cluster> GetCluster();
  /// Follows the cluster over broken connections and changes of the leader until `observer` returns
  /// false (OK), `deadline` passes (DEADLINE_EXCEEDED) or `stop` is requested (CANCELLED): changes
  /// after `start_revision` (0: a snapshot first), none missed, none repeated, revisions never
  /// falling; heartbeats (no change) in between, and Telemetry events every `telemetry_interval`
  /// (not scaled; 0: none; at least 200 ms), which say what every node reported last under the
  /// revision seen last. An event with a snapshot takes the place of all that was told before.
  /// UNAVAILABLE: nothing answered for Options::timeout, or (HISTORY_LOST) the NodeManager's
  /// revision is before what was seen. INVALID_ARGUMENT (BAD_TELEMETRY_INTERVAL).
  absl::Status WatchCluster(std::uint64_t start_revision, const ClusterObserver& observer,
                            base::MonotonicTime deadline, std::stop_token stop = {},
                            base::Duration telemetry_interval = base::Duration::zero());
  /// Creates, replaces or (validate_only) checks an application.
  absl::StatusOr<v1::Workflow> ApplyWorkflow(const v1::ApplyWorkflowRequest& request);

  /// Pools, limits, hold and plans under way.
  absl::StatusOr<v1::Elasticity> GetElasticity();
  /// What moves would do, or which moves the policy would make now; changes nothing. Errors: those
  /// of ElasticityService, also below.
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
  /// Asks for a plan until it has settled, `deadline` passes (DEADLINE_EXCEEDED) or `stop` is
  /// requested (CANCELLED, INTERRUPTED); the plan goes on either way.
  absl::StatusOr<v1::Plan> AwaitPlan(std::string_view plan_id, const PlanObserver& observer,
                                     base::MonotonicTime deadline, std::stop_token stop = {});

  /// Asks every replica of the NodeManager that is configured, known, or has a seat; by name. Each
  /// gets Options::attempt_timeout, all at the same time.
  std::vector<ReplicaAnswer> AskReplicas();
  /// The same change asked for twice, because an answer was lost, may be refused the second time.
  /// Errors: those of ConsensusService.
  absl::StatusOr<v1::ConsensusMembers> AddSeat(const v1::AddSeatRequest& request);
  absl::StatusOr<v1::ConsensusMembers> RemoveSeat(const v1::RemoveSeatRequest& request);
  absl::StatusOr<v1::ConsensusMembers> ReplaceSeat(const v1::ReplaceSeatRequest& request);
  /// Asks the replica at `address`, which leads, to hand over: once, because the same request again
  /// would depose its successor. Errors: UNAVAILABLE (NOT_LEADER; OUTCOME_UNKNOWN: who leads
  /// afterwards tells), FAILED_PRECONDITION (NO_SUCCESSOR).
  absl::Status StepDown(const std::string& address);
  /// Of the replica at `address`.
  absl::StatusOr<v1::TakeSnapshotResponse> TakeSnapshot(const std::string& address);
  absl::StatusOr<v1::ListLogResponse> ListLog(const std::string& address,
                                              const v1::ListLogRequest& request);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// "jobs/{uid}"
std::string JobName(std::string_view uid);
/// The job has ended: its state will not change except to EXPIRED.
bool IsTerminal(v1::Job::State state);
/// No move of the plan is under way. It has ended, or (UNCONFIRMED) waits to be confirmed.
bool HasSettled(const v1::Plan& plan);

}  // namespace onepiece::client
