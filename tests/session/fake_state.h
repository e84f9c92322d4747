// What the services of a FakeCluster share: what they answer, and the faults that come before.
// Private to this folder.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/clock.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/status.h"
#include "grpcpp/server_context.h"
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

inline grpc::Status Error(absl::StatusCode code, std::string_view reason,
                          std::string_view message) {
  return rpc::ToGrpc(base::MakeError(code, reason, message));
}

/// Sorts the newest job first.
using JobKey = std::pair<std::int64_t, std::string>;
inline JobKey KeyOf(const v1::Job& job) {
  return {-(job.create_time().seconds() * 1'000'000'000 + job.create_time().nanos()), job.uid()};
}

/// What the services answer.
struct State {
  v1::Cluster cluster;
  std::vector<v1::ClusterEvent> changes;  // Changes of `cluster`, by revision.
  std::uint64_t telling = 0;              // Grows when every watcher must begin anew.
  std::map<JobKey, v1::Job> jobs;
  std::map<std::string, JobKey> job_keys;
  FakePlans plans;
  std::deque<v1::AuditEntry> audit;  // Newest first.
  v1::RingHealth ring;
  v1::Database database;
  v1::ReplicaStatus replica;
  std::deque<v1::LogLine> lines;
  std::map<std::string, int> calls;
  std::map<std::string, grpc::Status> refusals;  // By method.
  std::map<std::string, std::string> results;
  std::map<std::string, v1::GetJobTraceResponse> traces;
  std::vector<v1::SubmitJobRequest> submitted;
  int submit_answers_lost = 0;
  std::map<std::string, std::string> user_agents;
  bool hang = false, read_only = false, telemetry = true, stopping = false;
  base::Duration skew{};
  grpc::Status refusal;
  std::optional<v1::WhoAmIResponse> me;

  [[nodiscard]] std::int64_t NowMs() const {
    return base::ToUnixMs(base::SystemClock().WallNow() + skew);
  }
};

/// The state that all services share.
struct SharedState {
  base::Mutex mutex;
  base::CondVar changed;
  State state ABSL_GUARDED_BY(mutex);

  /// A handler notices within this time that its caller has left.
  static constexpr std::chrono::milliseconds kLook{20};

  void Changed() { changed.NotifyAll(); }
  /// Waits until `ready` or the end of the call. Returns false when the call is over.
  /// REQUIRES: `lock` holds mutex.
  bool Wait(base::MutexLock& lock, grpc::ServerContext& context, base::MonotonicTime until,
            const std::function<bool()>& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    base::Clock& clock = base::SystemClock();
    while (!state.stopping && !context.IsCancelled()) {
      if (!state.hang && (ready() || clock.Now() >= until)) return true;
      clock.WaitUntil(changed, lock, {}, clock.Now() + kLook, [] { return false; });
    }
    return false;
  }
  /// Begins a call: it counts the call and applies the faults, which come before any answer.
  grpc::Status BeginCall(base::MutexLock& lock, grpc::ServerContext& context,
                         const std::string& method, bool changes_something = false)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    ++state.calls[method];
    const auto agent = context.client_metadata().find("user-agent");
    if (agent != context.client_metadata().end()) {
      state.user_agents[method].assign(agent->second.data(), agent->second.size());
    }
    if (!Wait(lock, context, base::SystemClock().Now(), [] { return true; }))
      return {grpc::StatusCode::UNAVAILABLE, "the server goes away"};
    if (!state.refusal.ok()) return state.refusal;
    if (const auto at = state.refusals.find(method); at != state.refusals.end()) return at->second;
    if (changes_something && state.read_only)
      return Error(absl::StatusCode::kPermissionDenied, "READ_ONLY", "this server is read-only");
    return grpc::Status::OK;
  }
};

}  // namespace onepiece::testing

// Begins the handler of a call, which goes on with `lock` and `state`.
#define BEGIN_CALL(method, ...)                                                \
  ::onepiece::base::MutexLock lock(shared.mutex);                              \
  [[maybe_unused]] ::onepiece::testing::State& state = shared.state;           \
  if (const grpc::Status begun =                                               \
          shared.BeginCall(lock, *context, method __VA_OPT__(, ) __VA_ARGS__); \
      !begun.ok())                                                             \
  return begun
