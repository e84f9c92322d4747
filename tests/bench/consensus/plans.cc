// Starts the two kinds of servers and speaks to them.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"
#include "cluster/local/resources.h"
#include "cluster/rpc/channel.h"
#include "etcd.grpc.pb.h"
#include "onepiece/v1/consensus.grpc.pb.h"
#include "onepiece/v1/node_manager.pb.h"
#include "tests/bench/consensus/group.h"

namespace onepiece::bench {
namespace {

constexpr std::size_t kMembers = 3, kWriteBytes = 256;
constexpr auto kViewLimit = std::chrono::seconds(1);

// Returns ports that were free a moment ago.
absl::StatusOr<std::vector<std::string>> FreeAddresses(std::size_t count) {
  std::vector<std::string> addresses;
  std::vector<int> sockets;
  for (std::size_t i = 0; i < count; ++i) {
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0) return absl::ResourceExhaustedError("no socket");
    sockets.push_back(listener);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener, generic, size) == 0 && getsockname(listener, generic, &size) == 0)
      addresses.push_back(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)));
  }
  for (const int listener : sockets) close(listener);
  if (addresses.size() != count) return absl::ResourceExhaustedError("no free port");
  return addresses;
}

absl::StatusOr<MemberView> ViewNodeManager(const std::string& address) {
  const auto stub = v1::ConsensusService::NewStub(rpc::MakeChannel(address));
  ONEPIECE_ASSIGN_OR_RETURN(
      const v1::ReplicaStatus status,
      rpc::Call(*stub, &v1::ConsensusService::Stub::GetReplica, {}, kViewLimit));
  for (const v1::Seat& seat : status.members().seats()) {
    if (seat.replica() == 0) return absl::UnavailableError("a seat is vacant");
  }
  return MemberView{status.role() == v1::ReplicaStatus::LEADER, status.chosen()};
}

// A workflow of one stage. The number of the write makes each one different.
std::string ApplyWorkflow(int client, std::uint64_t sequence) {
  v1::ApplyWorkflowRequest request;
  v1::Workflow& workflow = *request.mutable_workflow();
  workflow.set_app_id("bench");
  v1::StageSpec& stage = *workflow.add_stages();
  stage.set_stage("bench");
  stage.set_plugin("bench");
  stage.set_model(absl::StrCat("model-", client, "-", sequence));
  const std::size_t bytes =
      workflow.ByteSizeLong() + 3;  // The tag and the length of the name take 3 bytes.
  workflow.set_display_name(std::string(kWriteBytes - std::min(bytes, kWriteBytes), 'x'));
  static const std::string run = std::to_string(getpid());
  static std::uint64_t count = 0;
  request.set_request_id(absl::StrCat(run, "-", ++count));
  return request.SerializeAsString();
}

std::string WatchRouting() {
  v1::WatchRoutingRequest request;
  request.set_workflow_set("default");
  request.set_takes_deltas(true);
  return request.SerializeAsString();
}

std::string Put(int client, std::uint64_t sequence) {
  std::string value = absl::StrCat(sequence, ":");
  value.resize(kWriteBytes, 'x');
  etcdserverpb::PutRequest request;
  request.set_key(absl::StrCat("bench-", client));
  request.set_value(std::move(value));
  return request.SerializeAsString();
}

std::string WatchAllKeys() {
  etcdserverpb::WatchRequest request;
  request.mutable_create_request()->set_key("bench-");
  request.mutable_create_request()->set_range_end("bench.");
  return request.SerializeAsString();
}

absl::StatusOr<MemberView> ViewEtcd(const std::string& address) {
  const auto stub = etcdserverpb::Maintenance::NewStub(rpc::MakeChannel(address));
  ONEPIECE_ASSIGN_OR_RETURN(
      const etcdserverpb::StatusResponse status,
      rpc::Call(*stub, &etcdserverpb::Maintenance::Stub::Status, {}, kViewLimit));
  if (status.leader() == 0) return absl::UnavailableError("no leader");
  return MemberView{status.leader() == status.header().member_id(), status.raft_index()};
}

}  // namespace

absl::StatusOr<GroupPlan> PlanNodeManagers(const std::string& dir) {
  ONEPIECE_ASSIGN_OR_RETURN(const std::string program, local::ProgramPath("onepiece-nodemanager"));
  GroupPlan plan{.view = ViewNodeManager,
                 .write = {"/onepiece.v1.NodeManagerService/ApplyWorkflow", ApplyWorkflow},
                 .watch = {"/onepiece.v1.NodeManagerService/WatchRouting", WatchRouting(),
                           /*only_server_streams=*/true}};
  ONEPIECE_ASSIGN_OR_RETURN(plan.addresses, FreeAddresses(kMembers));
  std::string replicas;
  for (std::size_t i = 0; i < kMembers; ++i)
    absl::StrAppend(&replicas, i > 0 ? "," : "", "nodemanager-", i + 1, "=", plan.addresses[i]);
  for (std::size_t i = 0; i < kMembers; ++i) {
    const std::string name = absl::StrCat("nodemanager-", i + 1);
    plan.arguments.push_back({program, "--insecure", "--node-id", name, "--cluster-id", "bench",
                              "--listen", plan.addresses[i], "--data-dir", dir + "/" + name,
                              "--replicas", replicas});
    if (i == 0) plan.arguments.back().emplace_back("--bootstrap=true");
  }
  return plan;
}

absl::StatusOr<GroupPlan> PlanEtcd(const std::string& dir) {
  const std::string program = "/usr/bin/etcd";
  if (!std::filesystem::exists(program))
    return absl::NotFoundError(program + " is missing: install the package etcd-server");
  GroupPlan plan{.view = ViewEtcd,
                 .write = {"/etcdserverpb.KV/Put", Put},
                 .watch = {"/etcdserverpb.Watch/Watch", WatchAllKeys()}};
  ONEPIECE_ASSIGN_OR_RETURN(std::vector<std::string> addresses, FreeAddresses(2 * kMembers));
  std::string members;
  for (std::size_t i = 0; i < kMembers; ++i)
    absl::StrAppend(&members, i > 0 ? "," : "", "etcd-", i, "=http://", addresses[kMembers + i]);
  for (std::size_t i = 0; i < kMembers; ++i) {
    const std::string name = absl::StrCat("etcd-", i);
    const std::string client = "http://" + addresses[i], peer = "http://" + addresses[kMembers + i];
    plan.arguments.push_back({program, "--name", name, "--data-dir", dir + "/" + name,
                              "--listen-client-urls", client, "--advertise-client-urls", client,
                              "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                              "--initial-cluster", members});
  }
  addresses.resize(kMembers);
  plan.addresses = std::move(addresses);
  return plan;
}

}  // namespace onepiece::bench
