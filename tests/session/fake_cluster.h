// A whole cluster in one gRPC server of this process, whose state and faults a test sets: all of
// its nodes have the server's address. For tests of the console.
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
#include "onepiece/v1/node_manager.pb.h"
#include "onepiece/v1/ring.pb.h"
#include "onepiece/v1/telemetry.pb.h"
#include "tests/session/fake_plans.h"

namespace onepiece::testing {

/// Thread-safe. Ownership: the server ends with it.
class FakeCluster {
 public:
  FakeCluster();
  ~FakeCluster();
  FakeCluster(const FakeCluster&) = delete;
  FakeCluster& operator=(const FakeCluster&) = delete;
  /// host:port, the same after a restart.
  [[nodiscard]] std::string address() const;

  // What there is. Every call is told to watchers at once.
  /// A cluster that works: one NodeManager, one proxy and one database of the set "default", and
  /// `instances` instances, "instance-1" and so on.
  void SetUp(int instances);
  /// New or changed; an empty address becomes the server's.
  void SetNode(v1::Node node);
  void SetWorkflow(const v1::Workflow& workflow);
  /// Told by telemetry alone.
  void SetLoad(const std::string& node_id, const v1::NodeLoad& load, v1::Activity activity);
  void SetClusterId(const std::string& id);
  void SetJob(const v1::Job& job);
  void EraseJob(const std::string& uid);
  /// What a job made: it becomes its only artifact, "video", and can be fetched.
  void SetResult(const std::string& uid, const std::string& media_type, const std::string& bytes);
  void SetTrace(const std::string& uid, const v1::GetJobTraceResponse& trace);
  /// Of SubmitJob, by request: the same request_id gives the same job. Without inputs' bytes.
  [[nodiscard]] std::vector<v1::SubmitJobRequest> submitted() const;
  /// So many that have ended, "job-000000" and so on, each a second younger than the one before.
  void FillJobs(int count);
  [[nodiscard]] v1::Job job(const std::string& uid) const;
  void SetElasticity(const v1::Elasticity& elasticity);
  /// Newest first.
  void SetPlans(const v1::ListPlansResponse& plans);
  /// Of every plan that is proposed or begun from now on.
  void SetPrediction(const v1::Prediction& prediction);
  /// What the policy would do.
  void SetPolicyPlan(const v1::Plan& plan);
  /// A plan that somebody else begins; the plan revision grows.
  void StartPlan(const v1::Plan& plan);
  /// All moves of a plan under way come to their end, and the nodes' placements with them.
  void FinishPlan(const std::string& plan_id);
  /// Plans, and what was asked for so far, repeated requests too.
  [[nodiscard]] FakePlans plans() const;
  void AddAudit(const v1::AuditEntry& entry);
  void SetRing(const v1::RingHealth& health);
  void SetDatabase(const v1::Database& database);
  void SetReplica(const v1::ReplicaStatus& status);
  /// A line of every process's log.
  void Log(v1::LogLevel level, const std::string& text);

  // Faults.
  /// True: takes calls and never answers; streams fall silent and stay open.
  void Hang(bool hang);
  /// Connections break.
  void Stop();
  /// Again at the same address.
  void Start();
  /// Of every answer.
  void SetDelay(base::Duration delay);
  /// Of the cluster; may be older than what was told.
  void SetRevision(std::uint64_t revision);
  void SetApiVersion(int version);
  void SetClockSkew(base::Duration skew);
  /// What every call gets, unless it is OK.
  void Refuse(const grpc::Status& refusal);
  /// What calls of one method get, unless it is OK.
  void Refuse(const std::string& method, const grpc::Status& refusal);
  /// The next `count` calls of SubmitJob do what they shall and answer UNAVAILABLE.
  void LoseSubmitAnswers(int count);
  void SetReadOnly(bool read_only);
  /// True: plans are begun and decided on, but who asked hears UNKNOWN (LOST).
  void LoseAnswers(bool lose);
  /// False: an older server, which sends none.
  void SetTelemetry(bool telemetry);

  /// Calls of a method ("ListJobs") so far.
  [[nodiscard]] int calls(const std::string& method) const;
  /// Who made the last of them, as gRPC tells it; empty: nobody yet.
  [[nodiscard]] std::string user_agent(const std::string& method) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace onepiece::testing
