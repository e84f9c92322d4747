// Offers jobs to one proxy at a given rate and says what became of them.
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
  std::string uid;     ///< Empty: refused,
  std::string reason;  ///< and why,
  bool retry = false;  ///< and whether it was told when to try again.
  v1::Job job;         ///< As Await() found it.
};

/// Every offer is one SubmitJob without retries. Thread-confined.
class JobLoad {
 public:
  /// `proxy`: host:port.
  explicit JobLoad(const std::string& proxy);

  /// Offers a job. `numbers`: its parameters.
  const OfferedJob& Offer(const std::string& app, const std::map<std::string, double>& numbers,
                          std::chrono::seconds deadline = std::chrono::seconds(120),
                          const std::string& tenant = "");
  /// Offers one every `interval` for `duration`.
  void OfferFor(std::chrono::milliseconds duration, std::chrono::microseconds interval,
                const std::string& app, const std::map<std::string, double>& numbers);
  /// Waits until all accepted jobs have ended; false when `limit` passes first.
  bool Await(std::chrono::seconds limit);

  [[nodiscard]] const std::vector<OfferedJob>& jobs() const { return jobs_; }
  /// Accepted jobs by final state; "LOST"-like reasons of failed ones as "FAILED(reason)".
  [[nodiscard]] std::map<std::string, int> Counts() const;

 private:
  std::unique_ptr<v1::GenerationService::Stub> stub_;
  std::vector<OfferedJob> jobs_;
};

/// All accepted jobs succeed within two minutes, and there are some.
bool AllSucceeded(JobLoad& load);
/// Counts() as text.
std::string Told(const JobLoad& load);

/// Creation to end, s.
double LatencyOf(const v1::Job& job);
/// Waiting in front of all its stages, computing in one of them, and on the way between them, s.
double QueuedOf(const v1::Job& job);
double ComputedOf(const v1::Job& job, const std::string& stage);
double TransferOf(const v1::Job& job);

}  // namespace onepiece::e2e
