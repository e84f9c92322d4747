// The verbs cluster status, members, add, remove, replace, step-down, snapshot, upgrade and log.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "cluster/base/status.h"
#include "cluster/cli/choose_replica.h"
#include "cluster/cli/plan_verbs.h"
#include "cluster/cli/verbs.h"
#include "cluster/client/replicas.h"
#include "google/protobuf/util/time_util.h"

namespace onepiece::cli {
namespace {

struct ConsensusArguments : PlanArguments {
  std::string name, with, address, replica;
  int limit = 20;
  std::uint32_t level = 0;
};

// How long and how often to look for the next leader after a step-down whose answer was lost.
constexpr std::chrono::seconds kSuccessorLimit(10);
constexpr std::chrono::milliseconds kSuccessorPause(200);

using Replicas = std::vector<client::ReplicaAnswer>;

Json ReplicaDocument(const client::ReplicaAnswer& replica, std::uint64_t chosen) {
  Json document = {{"name", replica.name}, {"address", replica.address}};
  if (!replica.status.ok()) {
    document["role"] = "unreachable";
    document["error"] = base::Message(replica.status.status());
    return document;
  }
  const v1::ReplicaStatus& status = *replica.status;
  document["role"] = client::ReplicaRoleName(status);
  document["health"] = v1::ReplicaStatus::Health_Name(status.health());
  document["health_detail"] = status.health_detail();
  document["cluster_id"] = status.cluster_id();
  document["replica"] = absl::StrFormat("%016x", status.replica());
  document["leader"] = status.leader();
  document["round"] = status.round();
  document["first_slot"] = status.first_slot();
  document["last_slot"] = status.last_slot();
  document["chosen"] = status.chosen();
  document["applied"] = status.applied();
  document["lag"] = chosen - std::min(chosen, status.applied());
  document["snapshot"] = status.snapshot();
  document["lease"] = status.lease();
  document["state_hash"] = absl::StrFormat("%08x", status.state_hash());
  document["version"] = status.version();
  document["common_version"] = status.common_version();
  document["feature_level"] = status.feature_level();
  return document;
}

std::string ReplicaText(const client::ReplicaAnswer& replica, std::uint64_t chosen) {
  const std::string name = replica.name.empty() ? "?" : replica.name;
  if (!replica.status.ok()) {
    return absl::StrFormat("%-18s %-11s %-13s %s\n", name, "unreachable", "",
                           replica.address + ": " + base::Message(replica.status.status()));
  }
  const v1::ReplicaStatus& status = *replica.status;
  return absl::StrFormat("%-18s %-11s %-13s %6d %9d %9d %6d %-5s %08x %3d  %s\n", name,
                         client::ReplicaRoleName(status),
                         v1::ReplicaStatus::Health_Name(status.health()), status.round(),
                         status.chosen(), status.applied(),
                         chosen - std::min(chosen, status.applied()), status.lease() ? "yes" : "",
                         status.state_hash(), status.version(), replica.address);
}

Json MembersDocument(const v1::ConsensusMembers& members) {
  Json document = {
      {"seats", Json::array()},
      {"warnings", std::vector<std::string>(members.warnings().begin(), members.warnings().end())}};
  for (const v1::Seat& seat : members.seats()) {
    document["seats"].push_back({{"name", seat.name()},
                                 {"address", seat.address()},
                                 {"vacant", seat.replica() == 0},
                                 {"replica", absl::StrFormat("%016x", seat.replica())}});
  }
  return document;
}

std::string MembersText(const v1::ConsensusMembers& members) {
  std::string text = absl::StrFormat("%-18s %-22s %s\n", "SEAT", "ADDRESS", "REPLICA");
  for (const v1::Seat& seat : members.seats()) {
    text +=
        absl::StrFormat("%-18s %-22s %s\n", seat.name(), seat.address(),
                        seat.replica() == 0 ? "vacant" : absl::StrFormat("%016x", seat.replica()));
  }
  for (const std::string& warning : members.warnings()) text += "! " + warning + "\n";
  return text;
}

absl::Status NoLeader(const Replicas& replicas) {
  const auto advice = client::AdviceFor(replicas);
  return base::MakeError(absl::StatusCode::kUnavailable, "NO_LEADER",
                         advice.empty() ? "no replica leads" : advice.front());
}

int ShowReplicas(const Context& context, client::Client& client) {
  const Replicas replicas = client.AskReplicas();
  std::uint64_t chosen = 0;
  std::string cluster_id;
  for (const auto& replica : replicas) {
    if (!replica.status.ok()) continue;
    chosen = std::max(chosen, replica.status->chosen());
    if (cluster_id.empty()) cluster_id = replica.status->cluster_id();
  }
  const v1::ReplicaStatus* leader = client::FindLeader(replicas);
  const std::vector<std::string> advice = client::AdviceFor(replicas);
  Json document = {{"cluster_id", cluster_id},
                   {"healthy", advice.empty()},
                   {"leader", leader == nullptr ? "" : leader->name()},
                   {"replicas", Json::array()},
                   {"advice", advice}};
  std::string text = absl::StrFormat("%-18s %-11s %-13s %6s %9s %9s %6s %-5s %-8s %3s  %s\n",
                                     "NAME", "ROLE", "HEALTH", "ROUND", "CHOSEN", "APPLIED", "LAG",
                                     "LEASE", "STATE", "VER", "ADDRESS");
  for (const auto& replica : replicas) {
    document["replicas"].push_back(ReplicaDocument(replica, chosen));
    text += ReplicaText(replica, chosen);
  }
  for (const std::string& line : advice) text += "! " + line + "\n";
  if (advice.empty()) text += "healthy\n";
  context.Print(document, text);
  return leader == nullptr ? terminal::kUnavailable : terminal::kOk;
}

int RunMembers(const Context& context, client::Client& client) {
  const Replicas replicas = client.AskReplicas();
  const v1::ReplicaStatus* leader = client::FindLeader(replicas);
  if (leader == nullptr) return context.Fail(NoLeader(replicas));
  context.Print(MembersDocument(leader->members()), MembersText(leader->members()));
  return terminal::kOk;
}

int Changed(const Context& context, const absl::StatusOr<v1::ConsensusMembers>& members) {
  if (!members.ok()) return context.Fail(members.status());
  context.Print(MembersDocument(*members), MembersText(*members));
  return terminal::kOk;
}

int RunAdd(const Context& context, client::Client& client, const ConsensusArguments& arguments) {
  v1::AddSeatRequest request;
  request.set_name(arguments.name);
  request.set_address(arguments.address);
  const int code = Changed(context, client.AddSeat(request));
  if (code == terminal::kOk)
    context.Say("Start a NodeManager of this name: it takes the seat by itself.");
  return code;
}

int RunRemove(const Context& context, client::Client& client, const ConsensusArguments& arguments) {
  v1::RemoveSeatRequest request;
  request.set_name(arguments.name);
  return Changed(context, client.RemoveSeat(request));
}

int RunReplace(const Context& context, client::Client& client,
               const ConsensusArguments& arguments) {
  v1::ReplaceSeatRequest request;
  request.set_name(arguments.name);
  request.set_new_name(arguments.with);
  request.set_new_address(arguments.address);
  return Changed(context, client.ReplaceSeat(request));
}

/// Waits after a lost answer until another replica leads. Returns `lost` when the same replica
/// still leads, or nobody leads in time.
absl::Status AwaitSuccessor(client::Client& client, const v1::ReplicaStatus& old,
                            const absl::Status& lost, base::Clock& clock) {
  const base::MonotonicTime deadline = clock.Now() + base::Scaled(kSuccessorLimit);
  for (;;) {
    const Replicas replicas = client.AskReplicas();
    const v1::ReplicaStatus* leader = client::FindLeader(replicas);
    if (leader != nullptr && leader->replica() != old.replica()) return absl::OkStatus();
    if (leader != nullptr) return base::Annotate(lost, old.name() + " still leads");
    if (clock.Now() >= deadline) return base::Annotate(lost, "nobody leads now");
    clock.Pause({}, kSuccessorPause);
  }
}

int RunStepDown(const Context& context, client::Client& client) {
  const Replicas replicas = client.AskReplicas();
  const v1::ReplicaStatus* leader = client::FindLeader(replicas);
  if (leader == nullptr) return context.Fail(NoLeader(replicas));
  const auto asked = std::ranges::find_if(
      replicas, [&](const auto& r) { return r.status.ok() && &*r.status == leader; });
  absl::Status status = client.StepDown(asked->address);
  if (base::GetReason(status).reason == "OUTCOME_UNKNOWN")
    status = AwaitSuccessor(client, *leader, status, base::SystemClock());
  if (!status.ok()) return context.Fail(status);
  context.Print({{"stepped_down", leader->name()}},
                leader->name() + " does not lead any more; see `onepiece cluster status`");
  return terminal::kOk;
}

int RunUpgrade(const Context& context, client::Client& client,
               const ConsensusArguments& arguments) {
  v1::RaiseFeatureLevelRequest request;
  request.set_level(arguments.level);
  request.set_actor(arguments.actor);
  const auto raised = client.RaiseFeatureLevel(request);
  if (!raised.ok()) return context.Fail(raised.status());
  context.Print({{"feature_level", raised->level()}},
                absl::StrFormat("The feature level is %d.", raised->level()));
  return terminal::kOk;
}

int RunSnapshot(const Context& context, client::Client& client,
                const ConsensusArguments& arguments) {
  const auto replica = ChooseReplica(client, arguments.name);
  if (!replica.ok()) return context.Fail(replica.status());
  const auto snapshot = client.TakeSnapshot(replica->address);
  if (!snapshot.ok()) return context.Fail(snapshot.status());
  context.Print(
      {{"name", replica->name}, {"index", snapshot->index()}, {"bytes", snapshot->bytes()}},
      absl::StrFormat("%s: snapshot at slot %d, %s", replica->name, snapshot->index(),
                      terminal::HumanBytes(snapshot->bytes())));
  return terminal::kOk;
}

int RunLog(const Context& context, client::Client& client, const ConsensusArguments& arguments) {
  const auto replica = ChooseReplica(client, arguments.replica);
  if (!replica.ok()) return context.Fail(replica.status());
  v1::ListLogRequest request;
  request.set_limit(arguments.limit);
  const auto log = client.ListLog(replica->address, request);
  if (!log.ok()) return context.Fail(log.status());
  Json document = {{"name", replica->name}, {"lines", Json::array()}};
  std::string text = absl::StrFormat("%9s %6s %-7s %-20s %-24s %7s  %s\n", "SLOT", "ROUND",
                                     "CHOSEN", "TIME", "KIND", "BYTES", "SUBJECT");
  for (const auto& line : log->lines()) {
    const std::string time =
        line.time_unix_ms() == 0
            ? ""
            : google::protobuf::util::TimeUtil::ToString(
                  google::protobuf::util::TimeUtil::MillisecondsToTimestamp(line.time_unix_ms()))
                  .substr(0, 19);
    document["lines"].push_back({{"slot", line.slot()},
                                 {"round", line.round()},
                                 {"chosen", line.chosen()},
                                 {"time_unix_ms", line.time_unix_ms()},
                                 {"kind", line.kind()},
                                 {"subject", line.subject()},
                                 {"bytes", line.bytes()}});
    text += absl::StrFormat("%9d %6d %-7s %-20s %-24s %7d  %s\n", line.slot(), line.round(),
                            line.chosen() ? "yes" : "no", time, line.kind(), line.bytes(),
                            line.subject());
  }
  context.Print(document, text);
  return terminal::kOk;
}

}  // namespace

void DefineCluster(CLI::App& verb, Context& context) {
  verb.require_subcommand(1);
  verb.footer(
      "A cluster with 3 replicas goes on when one is lost, with 5 when two are. A replica whose "
      "disk "
      "was lost\ncomes back by itself: start it again with an empty data directory.");
  const auto arguments = std::make_shared<ConsensusArguments>();
  const auto with = [&context, arguments](auto run) {
    return [&context, arguments, run](client::Client& client) {
      return run(context, client, *arguments);
    };
  };
  AddManagerVerb(verb, context, "status", "How every replica is; exit code 69 when none leads",
                 [&context](auto& client) { return ShowReplicas(context, client); });
  AddManagerVerb(verb, context, "members", "The seats of the group and who occupies them",
                 [&context](auto& client) { return RunMembers(context, client); });
  CLI::App* add =
      AddManagerVerb(verb, context, "add", "Add a vacant seat, for a new replica", with(RunAdd));
  add->add_option("name", arguments->name, "Node id of the new replica")->required();
  add->add_option("--address", arguments->address, "host:port where it will listen")->required();
  AddManagerVerb(verb, context, "remove", "Remove a seat; its replica votes no more",
                 with(RunRemove))
      ->add_option("name", arguments->name, "Node id of the replica")
      ->required();
  CLI::App* replace = AddManagerVerb(verb, context, "replace",
                                     "Give a seat to another replica (or to the same, empty one)",
                                     with(RunReplace));
  replace->add_option("name", arguments->name, "Node id of the replica that goes")->required();
  replace->add_option("--with", arguments->with,
                      "Node id of the one that comes (default: the same)");
  replace->add_option("--address", arguments->address, "host:port where it will listen");
  AddManagerVerb(verb, context, "step-down", "Make the leader hand over to another replica",
                 [&context](auto& client) { return RunStepDown(context, client); });
  AddManagerVerb(verb, context, "snapshot", "Make a replica write a snapshot and shorten its log",
                 with(RunSnapshot))
      ->add_option("name", arguments->name, "Node id of the replica (default: the leader)");
  CLI::App* upgrade =
      AddManagerVerb(verb, context, "upgrade",
                     "Raise the feature level, once all replicas are updated; there is no way back",
                     with(RunUpgrade));
  upgrade->add_option("--level", arguments->level, "Feature level (default: the highest)");
  AddActorOption(*upgrade, *arguments);
  CLI::App* log = AddManagerVerb(verb, context, "log", "The end of a replica's log", with(RunLog));
  log->add_option("--replica", arguments->replica, "Node id of the replica (default: the leader)");
  log->add_option("--limit", arguments->limit, "Lines at most")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

}  // namespace onepiece::cli
