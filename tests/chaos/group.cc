#include "tests/chaos/group.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "cluster/base/check.h"
#include "cluster/local/data_dir.h"
#include "cluster/local/identities.h"
#include "cluster/rpc/channel.h"
#include "tests/chaos/hosts.h"

namespace onepiece::chaos {
namespace {

constexpr int kPort = 7400;
constexpr auto kAnswer = std::chrono::milliseconds(500);

std::string NameOf(int replica) { return absl::StrCat("nodemanager-", replica + 1); }

}  // namespace

Group::Group(std::string folder) : folder_(std::move(folder)), authority_("chaos") {
  authority_.SavePrincipal(folder_ + "/admin", identity::kAdminName, {identity::Scope::kAdmin});
  ONEPIECE_CHECK(local::ShowIdentity(folder_ + "/admin").ok());
  for (int i = 0; i < kReplicas; ++i) {
    members_[i].stub = v1::ConsensusService::NewStub(rpc::MakeChannel(Addresses()[i]));
  }
}

Group::~Group() {
  for (int i = 0; i < kReplicas; ++i) Kill(i);
}

std::vector<std::string> Group::Addresses() {
  std::vector<std::string> addresses;
  for (int i = 0; i < kReplicas; ++i) {
    addresses.push_back(absl::StrCat(Hosts::Address(i), ":", kPort));
  }
  return addresses;
}

std::string Group::Path(int replica) const { return folder_ + "/" + NameOf(replica); }

absl::Status Group::Start(int replica) {
  std::string config = "cluster_id: chaos\nreplicas:\n";
  for (int i = 0; i < kReplicas; ++i) {
    absl::StrAppend(&config, "  - ", NameOf(i), "=", Addresses()[i], "\n");
  }
  if (replica == 0) config += "bootstrap: true\n";
  const std::string path = Path(replica);
  authority_.SaveNode(path + "/identity", NameOf(replica), {identity::Role::kNodeManager});
  std::ofstream(path + ".yaml") << config;
  local::SpawnOptions spawn;
  spawn.arguments = {testing::FindProgram("ip").toStdString(),
                     "netns",
                     "exec",
                     Hosts::Name(replica).toStdString(),
                     ONEPIECE_BINARY_DIR "/bin/onepiece-nodemanager",
                     "--config",
                     path + ".yaml",
                     "--node-id",
                     NameOf(replica),
                     "--listen",
                     Addresses()[replica],
                     "--metrics-address",
                     Hosts::Address(replica) + ":0",
                     "--data-dir",
                     path};
  spawn.output_path = path + ".log";
  spawn.clean_environment = true;
  absl::StatusOr<local::ProcessId> process = local::Spawn(spawn);
  if (!process.ok()) return process.status();
  members_[replica].process = *process;
  return absl::OkStatus();
}

void Group::Kill(int replica) {
  std::optional<local::ProcessId>& process = members_[replica].process;
  if (!process) return;
  kill(process->pid, SIGKILL);
  waitpid(process->pid, nullptr, 0);
  process.reset();
}

void Group::Signal(int replica, int signal) {
  if (members_[replica].process) kill(members_[replica].process->pid, signal);
}

Group::Statuses Group::Look() {
  Statuses statuses;
  for (int i = 0; i < kReplicas; ++i) {
    Member& member = members_[i];
    if (!member.process) continue;
    int how = 0;
    if (waitpid(member.process->pid, &how, WNOHANG) == member.process->pid) {
      complaints_.push_back(
          absl::StrCat(NameOf(i), " ended by itself: ", WIFSIGNALED(how) ? "signal " : "exit code ",
                       WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how)));
      member.process.reset();
      continue;
    }
    const auto status =
        rpc::Call(*member.stub, &v1::ConsensusService::Stub::GetReplica, {}, kAnswer);
    // A replica that starts has not read its disk yet.
    if (!status.ok() || status->role() == v1::ReplicaStatus::ROLE_UNSPECIFIED) continue;
    Check(i, *status);
    statuses[i] = *status;
  }
  return statuses;
}

void Group::Check(int replica, const v1::ReplicaStatus& status) {
  Member& member = members_[replica];
  if (status.round() < member.round) {
    complaints_.push_back(absl::StrCat(NameOf(replica), " promised round ", member.round,
                                       ", and says ", status.round(), " now"));
  }
  member.round = std::max(member.round, status.round());
  const auto [known, added] = hashes_.emplace(status.applied(), status.state_hash());
  if (added || known->second == status.state_hash()) return;
  complaints_.push_back(absl::StrCat("two states at index ", status.applied(), ": ", known->second,
                                     " and, at ", NameOf(replica), ", ", status.state_hash()));
}

std::optional<int> Group::Leader() {
  const Statuses statuses = Look();
  std::optional<int> leader;
  for (int i = 0; i < kReplicas; ++i) {
    if (!statuses[i] || statuses[i]->role() != v1::ReplicaStatus::LEADER) continue;
    if (!leader || statuses[i]->round() > statuses[*leader]->round()) leader = i;
  }
  return leader;
}

std::uint64_t Group::round() const {
  return std::max_element(members_.begin(), members_.end(),
                          [](const Member& a, const Member& b) { return a.round < b.round; })
      ->round;
}

bool Group::IsWhole() {
  const std::optional<int> leader = Leader();
  if (!leader) return false;
  const Statuses statuses = Look();
  return std::all_of(statuses.begin(), statuses.end(), [](const auto& status) {
    return status && status->members().seats_size() == kReplicas &&
           std::all_of(status->members().seats().begin(), status->members().seats().end(),
                       [](const v1::Seat& seat) { return seat.replica() != 0; });
  });
}

bool Group::IsEven() {
  const Statuses statuses = Look();
  return std::all_of(statuses.begin(), statuses.end(), [&](const auto& status) {
    return status && status->applied() != 0 && status->applied() == statuses[0]->applied() &&
           status->last_slot() == status->applied();
  });
}

std::string Group::Logs() const {
  std::string text;
  for (int i = 0; i < kReplicas; ++i) {
    std::string log = local::ReadFile(Path(i) + ".log");
    constexpr std::size_t kTailBytes = 6000;
    if (log.size() > kTailBytes) log.erase(0, log.size() - kTailBytes);
    text += "--- " + NameOf(i) + "\n" + log;
  }
  return text;
}

}  // namespace onepiece::chaos
