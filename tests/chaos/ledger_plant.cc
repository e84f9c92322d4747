#include "tests/chaos/ledger_plant.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "cluster/base/status.h"
#include "cluster/rpc/tls.h"
#include "tests/channel_with.h"
#include "tests/chaos/ledger_databases.h"
#include "tests/chaos/ledger_load.h"
#include "tests/eventually.h"

namespace onepiece::ledger {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr auto kPlantLimit = seconds(60), kTaken = seconds(5);

absl::Status NotPlanted(const std::string& why) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "NOT_PLANTED", why);
}

/// While they are stopped, so that neither can give the other its data back, and the supervisor
/// does not start one again too early.
absl::Status WipeDatabases(const Cluster& cluster) {
  const std::vector<local::ProcessRecord> databases = cluster.Ready(Role::kDatabase);
  for (const local::ProcessRecord& record : databases) ::kill(record.process.pid, SIGSTOP);
  std::error_code error;
  for (const local::ProcessRecord& record : databases) {
    for (const auto& entry : fs::directory_iterator(cluster.DataDirOf(record.node_id), error))
      fs::remove_all(entry.path(), error);
  }
  for (const local::ProcessRecord& record : databases) ::kill(record.process.pid, SIGKILL);
  if (error) return NotPlanted("cannot remove the databases' data: " + error.message());
  for (const local::ProcessRecord& record : databases) {
    if (!local::WaitGone(record.process, base::Scaled(kPlantLimit)))
      return NotPlanted(record.node_id + " does not die");
  }
  const bool back = testing::Eventually(base::Scaled(kPlantLimit),
                                        [&] { return cluster.IsWhole(Role::kDatabase); });
  return back ? absl::OkStatus() : NotPlanted("the databases did not come back");
}

/// As a database sees the others: they take records from nobody else.
absl::StatusOr<Databases> PeersOf(const Cluster& cluster) {
  const rpc::TlsOptions options{.folder = cluster.State().identity + "/database-1"};
  ONEPIECE_ASSIGN_OR_RETURN(const auto credentials,
                            rpc::MakeChannelCredentials(options, base::SystemClock()));
  Databases databases;
  for (const local::ProcessRecord& record : cluster.Ready(Role::kDatabase)) {
    databases.push_back(
        v1::DatabaseService::NewStub(testing::ChannelWith(record.address, credentials)));
  }
  return databases;
}

/// Databases believe a peer, and the earlier end of two.
absl::Status PlantEnd(const Cluster& cluster, v1::JobRecord record) {
  record.clear_has_bytes();
  v1::Job& job = *record.mutable_job();
  job.set_state(v1::Job::FAILED);
  job.clear_result();
  job.mutable_error()->set_reason("PLANTED");
  job.mutable_end_time()->set_seconds(job.end_time().seconds() - 1);
  v1::ReplicateJobsRequest request;
  *request.add_records() = record;
  request.set_cluster_id(cluster.State().cluster_id);
  ONEPIECE_ASSIGN_OR_RETURN(const Databases databases, PeersOf(cluster));
  const bool done = !databases.empty() && testing::Eventually(base::Scaled(kPlantLimit), [&] {
    return std::ranges::all_of(databases, [&](const auto& database) {
      return rpc::Call(*database, &v1::DatabaseService::Stub::ReplicateJobs, request, kTaken).ok();
    });
  });
  return done ? absl::OkStatus() : NotPlanted("the databases do not take the record");
}

}  // namespace

absl::StatusOr<Plants> ParsePlants(std::string_view list) {
  Plants plants;
  for (const absl::string_view part :
       absl::StrSplit(base::AbslView(list), ',', absl::SkipEmpty())) {
    if (part == "fetch_all") {
      plants.fetch_all = true;
    } else if (part == "loss") {
      plants.loss = true;
    } else if (part == "second_end") {
      plants.second_end = true;
    } else {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_PLANT",
                             "no plant \"" + std::string(part) + "\"");
    }
  }
  return plants;
}

absl::Status Plant(const Plants& plants, const Cluster& cluster, const Ledger& ledger) {
  v1::JobRecord record;
  if (plants.second_end) {
    const std::vector<std::string> announced = ledger.Unfetched(Now());
    const Databases databases = DatabasesOf(cluster);
    if (announced.empty() || databases.empty()) return NotPlanted("no job was announced");
    ONEPIECE_ASSIGN_OR_RETURN(record, ReadRecord(*databases.front(), announced.front()));
  }
  if (plants.loss) ONEPIECE_RETURN_IF_ERROR(WipeDatabases(cluster));
  return plants.second_end ? PlantEnd(cluster, record) : absl::OkStatus();
}

}  // namespace onepiece::ledger
