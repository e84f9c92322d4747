// Follows what changes slowly: the databases and the NodeManager's replicas.
#include "cluster/session/fan_out.h"
#include "onepiece/v1/database.grpc.pb.h"

namespace onepiece::session {
namespace {

void PollReplicas(Feeds& feeds, const std::stop_token& stop) {
  auto replicas = std::make_shared<Replicas>();
  absl::Status last;
  bool any = false;
  for (client::ReplicaAnswer& answer : feeds.reads.AskReplicas()) {
    ReplicaEntry entry{.name = std::move(answer.name), .address = std::move(answer.address)};
    if (answer.status.ok()) {
      any = true;
      entry.status = *std::move(answer.status);
    } else {
      last = answer.status.status();
      entry.error = Explain(last);
    }
    replicas->push_back(std::move(entry));
  }
  if (stop.stop_requested()) return;
  if (any) {
    feeds.board.Put<Replicas>(&Snapshot::replicas, std::move(replicas));
  } else {
    feeds.board.Fail(&Snapshot::replicas, "no replica answers (" + Explain(last) + ")");
  }
}

}  // namespace

void FollowDatabases(Feeds& feeds, const std::stop_token& stop) {
  ProcessTable<DatabaseEntry> databases;
  const auto take = [](v1::Database answer, const Asked&, DatabaseEntry& entry) {
    entry.database = std::move(answer);
  };
  std::uint64_t wakes = 0;
  do {
    PollReplicas(feeds, stop);
    databases.Poll(
        feeds, [](v1::Role role) { return role == v1::DATABASE; },
        &v1::DatabaseService::Stub::PrepareAsyncGetDatabase, take, &Snapshot::databases, stop);
  } while (feeds.board.Sleep(feeds.options.poll_interval * 2, stop, wakes));
}

}  // namespace onepiece::session
