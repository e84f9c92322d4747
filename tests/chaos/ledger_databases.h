// What the databases of a ledger run say of a job, past the proxies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/rpc/channel.h"
#include "onepiece/v1/database.grpc.pb.h"
#include "tests/chaos/ledger_cluster.h"

namespace onepiece::ledger {

using Databases = std::vector<std::unique_ptr<v1::DatabaseService::Stub>>;

/// Those that run just now.
inline Databases DatabasesOf(const Cluster& cluster) {
  Databases databases;
  for (const local::ProcessRecord& record : cluster.Ready(Role::kDatabase))
    databases.push_back(v1::DatabaseService::NewStub(rpc::MakeChannel(record.address)));
  return databases;
}

/// Blocking: at most 2 s, scaled.
/// Errors: NOT_FOUND, or that there was no answer.
inline absl::StatusOr<v1::JobRecord> ReadRecord(v1::DatabaseService::Stub& database,
                                                const std::string& uid) {
  v1::GetJobRecordRequest request;
  request.set_uid(uid);
  return rpc::Call(database, &v1::DatabaseService::Stub::GetJob, request, std::chrono::seconds(2));
}

}  // namespace onepiece::ledger
