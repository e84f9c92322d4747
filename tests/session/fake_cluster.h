// A whole cluster in one gRPC server of this process. A test sets its state and its faults. All of
// its nodes have the server's address. For tests of the session and the console.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cluster/base/clock.h"
#include "grpcpp/support/status.h"
#include "onepiece/v1/consensus.pb.h"
#include "onepiece/v1/database.pb.h"
#include "onepiece/v1/elasticity.pb.h"
#include "onepiece/v1/generation.pb.h"
#include "onepiece/v1/identity.pb.h"
#include "onepiece/v1/node_manager.pb.h"
#include "onepiece/v1/ring.pb.h"
#include "onepiece/v1/telemetry.pb.h"
#include "tests/session/fake_plans.h"

namespace onepiece::testing {

/// Ownership: the server ends with it.
/// Threading: may be used from any thread.
class FakeCluster {
 public:
  FakeCluster();
  ~FakeCluster();
  FakeCluster(const FakeCluster&) = delete;
  FakeCluster& operator=(const FakeCluster&) = delete;
  /// Returns host:port, which stays the same after a restart.
  [[nodiscard]] std::string address() const;

  // The state. Watchers are told of every call immediately.
  /// Makes a working cluster: one NodeManager, one proxy and one database of the set "default", and
  /// `instances` instances, "instance-1" and so on.
  void SetUp(int instances);
  /// Adds or changes a node. An empty address becomes the server's.
  void SetNode(v1::Node node);
  void SetWorkflow(const v1::Workflow& workflow);
  /// Changes what only telemetry tells.
  void SetLoad(const std::string& node_id, const v1::NodeLoad& load, v1::Activity activity);
  void SetClusterId(const std::string& id);
  void SetJob(const v1::Job& job);
  void EraseJob(const std::string& uid);
  /// Sets the result of a job. It becomes the job's only artifact, "video", and can be fetched.
  void SetResult(const std::string& uid, const std::string& media_type, const std::string& bytes);
  void SetTrace(const std::string& uid, const v1::GetJobTraceResponse& trace);
  /// Returns the requests of SubmitJob, without the inputs' bytes. The same request_id gives the
  /// same job.
  [[nodiscard]] std::vector<v1::SubmitJobRequest> submitted() const;
  /// Adds `count` jobs that have ended, "job-000000" and so on, each a second younger than the one
  /// before.
  void FillJobs(int count);
  [[nodiscard]] v1::Job job(const std::string& uid) const;
  void SetElasticity(const v1::Elasticity& elasticity);
  /// Sets the prediction of every plan that is proposed or begun from now on.
  void SetPrediction(const v1::Prediction& prediction);
  /// Sets what the policy would do.
  void SetPolicyPlan(const v1::Plan& plan);
  /// Begins a plan as somebody else would. The plan revision grows.
  void StartPlan(const v1::Plan& plan);
  /// Ends all moves of a plan under way, and sets the nodes' placements.
  void FinishPlan(const std::string& plan_id);
  /// Returns the plans, and what was asked for so far, including repeated requests.
  [[nodiscard]] FakePlans plans() const;
  void AddAudit(const v1::AuditEntry& entry);
  void SetRing(const v1::RingHealth& health);
  void SetDatabase(const v1::Database& database);
  void SetReplica(const v1::ReplicaStatus& status);
  /// Adds a line to every process's log.
  void Log(v1::LogLevel level, const std::string& text);

  // The faults.
  /// While true, the server takes calls and never answers. Streams fall silent and stay open.
  void Hang(bool hang);
  /// Breaks all connections.
  void Stop();
  /// Serves again at the same address.
  void Start();
  /// Sets the cluster's revision. It may be older than what was told.
  void SetRevision(std::uint64_t revision);
  void SetApiVersion(int version);
  void SetClockSkew(base::Duration skew);
  /// Makes every call fail with `refusal`, unless that is OK.
  void Refuse(const grpc::Status& refusal);
  /// Makes calls of one method fail with `refusal`, unless that is OK.
  void Refuse(const std::string& method, const grpc::Status& refusal);
  /// Lets the next `count` calls of SubmitJob take effect and answer UNAVAILABLE.
  void LoseSubmitAnswers(int count);
  void SetReadOnly(bool read_only);
  /// Sets what WhoAmI answers. Until then the server is an older one, which does not know the
  /// method. Calls are let in whoever that is: Refuse() says which are not.
  void SetMe(const v1::WhoAmIResponse& me);
  /// While true, plans are begun and decided on, but the caller gets UNKNOWN (LOST).
  void LoseAnswers(bool lose);
  /// False makes it an older server, which sends no telemetry.
  void SetTelemetry(bool telemetry);

  /// Returns the number of calls of a method ("ListJobs") so far.
  [[nodiscard]] int calls(const std::string& method) const;
  /// Returns the user agent of the last of them. Empty when there was none.
  [[nodiscard]] std::string user_agent(const std::string& method) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace onepiece::testing
