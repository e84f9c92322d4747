// A proxy of a simulated cluster: the real claim to start a job and kept work, on the way of
// cluster/proxy/submission.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/proxy/start_claim.h"
#include "tests/database/simulation/node.h"

namespace onepiece::simulation {

/// What a client asks for.
struct Request {
  base::Uid uid;  ///< It stands for the request id.
  std::string app;
  Duration limit{};
};
/// What the client sends with the request: the job's input.
inline std::string InputOf(const base::Uid& uid) { return uid.ToString(); }

class Proxy final : public Node {
 public:
  using Node::Node;

  /// A new life, with an empty memory.
  void Start();
  /// A thread of this process handles these.
  absl::Status Submit(const Request& request);
  absl::Status Cancel(const base::Uid& uid);
  absl::Status Acknowledge(const base::Uid& uid);
  absl::Status Delete(const base::Uid& uid);
  [[nodiscard]] Keeping& keeping() { return *keeping_; }
  [[nodiscard]] std::string Left() const;

 private:
  absl::StatusOr<v1::JobRecord> AwaitTurn(proxy::StartClaim& claim, const base::Uid& uid,
                                          v1::JobRecord record);
  absl::Status StartJob(const Request& request, const v1::Endpoint& claimant,
                        proxy::StartClaim& claim, const v1::JobRecord& record);
  absl::Status KeepClaim(proxy::StartClaim& claim, const std::string& uid);
  absl::StatusOr<v1::WorkHolder> SendTo(message::Message& message, const v1::Endpoint& claimant,
                                        base::MonotonicTime deadline);

  std::unique_ptr<Records> records_;
  std::unique_ptr<Keeping> keeping_;
};

}  // namespace onepiece::simulation
