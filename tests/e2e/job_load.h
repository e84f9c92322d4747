// Offers jobs to one proxy at a given rate and reports their outcomes.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "onepiece/v1/generation.grpc.pb.h"

namespace onepiece::e2e {

struct OfferedJob {
  std::chrono::steady_clock::time_point at;
  std::string app;
  std::string uid;     ///< Empty if the job was refused.
  std::string reason;  ///< Why it was refused.
  bool retry = false;  ///< Whether the refusal said when to retry.
  v1::Job job;         ///< As Await() found it.
};

/// Every offer is one SubmitJob without retries. Thread-confined.
class JobLoad {
 public:
  /// `proxy`: host:port.
  explicit JobLoad(const std::string& proxy);

  /// Offers a job with the parameters `numbers`.
  const OfferedJob& Offer(const std::string& app, const std::map<std::string, double>& numbers,
                          std::chrono::seconds deadline = std::chrono::seconds(120),
                          const std::string& tenant = "");
  /// Offers a job every `interval` for `duration`.
  void OfferFor(std::chrono::milliseconds duration, std::chrono::microseconds interval,
                const std::string& app, const std::map<std::string, double>& numbers);
  /// Waits until all accepted jobs have ended. Returns false if `limit` passes first.
  bool Await(std::chrono::seconds limit);

  [[nodiscard]] const std::vector<OfferedJob>& jobs() const { return jobs_; }
  /// Returns the number of accepted jobs by final state. Failed ones count as "FAILED(reason)".
  [[nodiscard]] std::map<std::string, int> Counts() const;

 private:
  std::unique_ptr<v1::GenerationService::Stub> stub_;
  std::vector<OfferedJob> jobs_;
};

/// Returns whether all accepted jobs succeed within two minutes, and there are some.
bool AllSucceeded(JobLoad& load);
/// Returns Counts() as text.
std::string Told(const JobLoad& load);

/// Returns the time from creation to end, in seconds.
double LatencyOf(const v1::Job& job);
/// Returns seconds: the wait in front of all its stages, the computation in one of them, and the
/// transfers between them.
double QueuedOf(const v1::Job& job);
double ComputedOf(const v1::Job& job, const std::string& stage);
double TransferOf(const v1::Job& job);

}  // namespace onepiece::e2e
