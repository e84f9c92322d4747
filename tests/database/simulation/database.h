// A database of a simulated cluster: the real store, settlements and queues, with the simulation's
// network in place of gRPC, rings and threads.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/database/job_store.h"
#include "cluster/database/send_queue.h"
#include "cluster/database/settlements.h"
#include "cluster/database/work_inquiry.h"
#include "tests/database/simulation/node.h"

namespace onepiece::simulation {

class Database final : public Node {
 public:
  Database(std::string node_id, Cluster& cluster) : Node(std::move(node_id), "", cluster) {}

  /// A new life: an empty memory, and the records that the journal of the last one holds.
  void Start();
  /// A result comes into the ring, whether the process runs or not. `number` tells copies apart.
  void Deposit(const message::Message& message, std::uint64_t number);
  [[nodiscard]] database::JobStore& store() { return *store_; }

 private:
  struct Peer {
    database::SendQueue records, results;
    std::set<base::Uid> sending;  ///< Results on their way.
    bool sending_records = false;
    base::MonotonicTime retry_at{};
    base::MonotonicTime distrusted_until{};
    bool silent = false;
    int slow = 0;  ///< Calls in a row that had no answer in time.
  };

  [[nodiscard]] std::optional<v1::Endpoint> Find(const std::string& id) const;
  std::vector<std::string> Others() const;
  [[nodiscard]] bool Answers(const std::string& id) const;
  [[nodiscard]] bool TakesResults(const std::string& id) const;
  std::vector<std::string> OtherKeepers(const base::Uid& uid) const;
  void Changed(const base::Uid& uid, database::Change change);
  bool Settle(const base::Uid& uid);
  void Hold(const base::Uid& uid);
  void Ended(const v1::JobRecord& record);
  void CheckCopies(const base::Uid& uid);
  void Note(const v1::JobRecord& record);
  void Pump(const std::string& id);
  void PumpRecords(const std::string& id, Peer& peer);
  void PumpResults(const std::string& id, Peer& peer);
  std::vector<v1::JobRecord> Receive(const std::string& from,
                                     const std::vector<v1::JobRecord>& records);
  void Failed(const std::string& id, const base::Uid& uid);
  bool AskNewKeepers(const base::Uid& uid);
  void Upkeep();
  database::WorkInquiry::Ways InquiryWays();
  void Compare();
  void TakeResult(const database::ResultBundle& bundle);
  void TakeReplica(const database::ResultBundle& bundle);

  std::map<base::Uid, v1::JobRecord> journal_;  ///< Outlives the process.
  std::set<std::uint64_t> taken_;  ///< Numbers of the messages that came into the ring.
  std::unique_ptr<database::WorkInquiry> inquiry_;
  std::unique_ptr<database::JobStore> store_;
  std::unique_ptr<database::Settlements> settlements_;
  std::map<std::string, Peer> peers_;
  bool asking_ = false;
};

}  // namespace onepiece::simulation
