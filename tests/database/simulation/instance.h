// An instance of a simulated cluster: the real queue, joins and kept work, with simulated time in
// place of a computation, and the simulation's network in place of rings and gRPC.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cluster/message/message.h"
#include "stages/runtime/request_scheduler.h"
#include "tests/database/simulation/node.h"

namespace onepiece::simulation {

class Instance final : public Node {
 public:
  using Node::Node;

  /// A new life, with an empty memory.
  void Start();
  /// A message comes into the ring, whether the process runs or not. `number` tells copies apart.
  void Deposit(const message::Message& message, std::uint64_t number);
  [[nodiscard]] Keeping& keeping() { return *keeping_; }
  /// Everything that waits for something here, in words; empty when nothing does.
  [[nodiscard]] std::string Left() const;

 private:
  enum class End : std::uint8_t { kComputed, kCancelled, kFenced, kBroken };
  struct Update {
    v1::UpdateJobRequest request;
    std::vector<message::Header> completed;  ///< Whose keepers are told when it is answered.
  };

  void Pump();
  void TakeIn(message::Message message);
  void Work();
  End Compute(const runtime::WorkItem& item);
  void MaybeDie(const runtime::WorkItem& item);
  void Deliver(const runtime::WorkItem& item);
  /// Returns whether all next stages, or a database, have the outputs.
  bool HandOn(const runtime::WorkItem& item, message::Message& message,
              std::set<std::string>& delivered);
  bool HandOnTo(const std::string& stage, message::Message& message, v1::UpdateJobRequest& update);
  void Completed(const runtime::WorkItem& item);
  void TellKeepers(const std::vector<message::Header>& completed);
  void Upkeep();
  void SendElsewhere(runtime::WorkItem part);
  // --- What the records are told (stages/instance/job_updates.h, job_reporter.h).
  void Placed(const message::Header& header);
  void Begun(const runtime::WorkItem& item);
  void Fail(const message::Header& header, const absl::Status& status);
  void Report(const base::Uid& uid, v1::UpdateJobRequest update);
  void Tell(const base::Uid& uid);
  void Answered(const base::Uid& uid, const v1::JobRecord& record);

  std::set<std::uint64_t> taken_;  ///< Numbers of the messages that came into the ring.
  std::deque<message::Message> ring_;
  std::unique_ptr<runtime::RequestScheduler> scheduler_;
  std::unique_ptr<Records> records_;
  std::unique_ptr<Keeping> keeping_;
  bool working_ = false;
  std::size_t delivering_ = 0;
  std::map<base::Uid, std::deque<Update>> updates_;
};

}  // namespace onepiece::simulation
