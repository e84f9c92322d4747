#include "cluster/client/replicas.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "absl/strings/str_format.h"
#include "cluster/base/status.h"

namespace onepiece::client {
namespace {

using Replicas = std::vector<ReplicaAnswer>;

std::string NameOf(const ReplicaAnswer& replica) {
  return replica.name.empty() ? replica.address : replica.name;
}

void AdviseOnLeader(const Replicas& replicas, std::vector<std::string>& advice) {
  if (FindLeader(replicas) != nullptr) return;
  std::size_t voters = 0, answering = 0;
  for (const auto& replica : replicas) {
    if (!replica.status.ok()) continue;
    const auto& seats = replica.status->members().seats();
    const auto occupied =
        std::ranges::count_if(seats, [](const auto& s) { return s.replica() != 0; });
    voters = std::max(voters, static_cast<std::size_t>(occupied));
    ++answering;
  }
  if (voters == 0 && answering > 0) {
    advice.push_back("no group was begun: start one replica with --bootstrap, once");
  } else if (answering > voters / 2) {
    advice.push_back("no replica leads: an election takes about a second; look again");
  } else {
    advice.push_back(absl::StrFormat(
        "no replica leads: %d of %d answer, and %d are needed. Start the missing ones; when their "
        "disks are lost, see \"A majority is lost\" in docs/operation.md",
        answering, std::max(voters, replicas.size()), std::max(voters, replicas.size()) / 2 + 1));
  }
}

const v1::Seat* FindSeat(const v1::ReplicaStatus* leader, const std::string& name) {
  if (leader == nullptr) return nullptr;
  const auto& seats = leader->members().seats();
  const auto seat = std::ranges::find(seats, name, [](const auto& s) { return s.name(); });
  return seat == seats.end() ? nullptr : &*seat;
}

void AdviseOnSilent(const std::string& name, const v1::Seat* seat,
                    std::vector<std::string>& advice) {
  if (seat != nullptr && seat->replica() == 0) {
    advice.push_back(
        name + " has a vacant seat and does not answer: start a NodeManager of this name at " +
        seat->address());
    return;
  }
  advice.push_back(absl::StrFormat(
      "%s does not answer: start it; when it is gone for good, `onepiece cluster replace %s "
      "--with NAME --address HOST:PORT`",
      name, name));
}

void AdviseOnReplica(const ReplicaAnswer& replica, const v1::ReplicaStatus* leader,
                     std::vector<std::string>& advice) {
  const std::string name = NameOf(replica);
  const v1::Seat* seat = FindSeat(leader, name);
  if (!replica.status.ok()) {
    AdviseOnSilent(name, seat, advice);
    return;
  }
  const v1::ReplicaStatus& status = *replica.status;
  if (status.health() == v1::ReplicaStatus::DISK_FAILED) {
    advice.push_back(name + ": its disk refuses writes (" + status.health_detail() +
                     "): make room or replace the disk");
  } else if (status.health() == v1::ReplicaStatus::NEWER_VERSION) {
    advice.push_back(name + ": its program is too old for the log: update it");
  } else if (status.health() == v1::ReplicaStatus::CORRUPT) {
    advice.push_back(absl::StrFormat(
        "%s is corrupt and takes no part (%s): keep a copy of its data folder for a report, check "
        "its memory and disk, then empty the folder and start it again",
        name, status.health_detail()));
  } else if (status.health() == v1::ReplicaStatus::WAITING) {
    advice.push_back(name + " waits: " + status.health_detail());
  } else if (leader != nullptr && status.cluster_id() == leader->cluster_id() && seat == nullptr) {
    advice.push_back(absl::StrFormat(
        "%s has no seat: stop it, or give it one with `onepiece cluster add %s --address %s`", name,
        name, replica.address));
  } else if (status.role() == v1::ReplicaStatus::LEARNER) {
    advice.push_back(name + " has no vote yet: it is catching up");
  } else if (status.health() == v1::ReplicaStatus::CATCHING_UP) {
    advice.push_back(name + " is catching up: " + status.health_detail());
  }
}

void AdviseOnLeaderView(const v1::ReplicaStatus& leader, std::vector<std::string>& advice) {
  for (const std::string& warning : leader.members().warnings()) advice.push_back(warning);
  for (const v1::ReplicaProgress& peer : leader.progress()) {
    if (peer.drifts()) {
      advice.push_back(peer.name() +
                       ": its clock runs faster or slower than the leader's; it does not count for "
                       "the lease. Look at its machine");
    }
  }
}

void AdviseOnDisagreement(const Replicas& replicas, std::vector<std::string>& advice) {
  const ReplicaAnswer* first = nullptr;
  std::map<std::uint64_t, const ReplicaAnswer*> by_slot, by_id;
  for (const auto& replica : replicas) {
    if (!replica.status.ok()) continue;
    const v1::ReplicaStatus& status = *replica.status;
    if (status.cluster_id().empty()) continue;  // It has not joined yet.
    if (first == nullptr) first = &replica;
    if (status.cluster_id() != first->status->cluster_id()) {
      advice.push_back(
          absl::StrFormat("%s (%s) is of cluster '%s', %s of '%s': one of them is pointed at the "
                          "wrong peers or has "
                          "another cluster's data directory",
                          NameOf(replica), replica.address, status.cluster_id(), NameOf(*first),
                          first->status->cluster_id()));
      continue;
    }
    // Only replicas that have applied the same slots must have the same state. A replica that lags
    // behind differs rightly.
    const auto [same, fresh] = by_slot.emplace(status.applied(), &replica);
    if (!fresh && same->second->status->state_hash() != status.state_hash()) {
      advice.push_back(
          absl::StrFormat("%s and %s differ at slot %d (%08x, %08x): keep both logs, report it, "
                          "and replace the one "
                          "that does not lead",
                          NameOf(*same->second), NameOf(replica), status.applied(),
                          same->second->status->state_hash(), status.state_hash()));
    }
    const auto [twin, alone] = by_id.emplace(status.replica(), &replica);
    if (!alone && status.replica() != 0) {
      advice.push_back(absl::StrFormat(
          "%s and %s run on copies of one data directory: stop one and empty its directory",
          twin->second->address, replica.address));
    }
  }
}

}  // namespace

std::string ReplicaRoleName(const v1::ReplicaStatus& status) {
  if (status.role() == v1::ReplicaStatus::ROLE_UNSPECIFIED) return "unknown";
  std::string name = v1::ReplicaStatus::Role_Name(status.role());
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

const v1::ReplicaStatus* FindLeader(const Replicas& replicas) {
  const v1::ReplicaStatus* leader = nullptr;
  for (const auto& replica : replicas) {
    if (!replica.status.ok() || replica.status->role() != v1::ReplicaStatus::LEADER) continue;
    if (leader == nullptr || replica.status->round() > leader->round()) leader = &*replica.status;
  }
  return leader;
}

std::vector<std::string> AdviceFor(const Replicas& replicas) {
  std::vector<std::string> advice;
  AdviseOnLeader(replicas, advice);
  const v1::ReplicaStatus* leader = FindLeader(replicas);
  for (const auto& replica : replicas) AdviseOnReplica(replica, leader, advice);
  if (leader != nullptr) AdviseOnLeaderView(*leader, advice);
  AdviseOnDisagreement(replicas, advice);
  return advice;
}

}  // namespace onepiece::client
