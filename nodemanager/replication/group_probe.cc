#include "nodemanager/replication/group_probe.h"

#include <chrono>
#include <future>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/rpc/channel.h"
#include "onepiece/v1/consensus.grpc.pb.h"

namespace onepiece::nodemanager {
namespace {

constexpr auto kProbeTimeout = std::chrono::seconds(1);

}  // namespace

std::vector<SeatAnswer> AskSeats(const std::vector<paxos::Seat>& seats) {
  std::vector<std::future<absl::StatusOr<v1::ReplicaStatus>>> asked;
  for (const paxos::Seat& seat : seats) {
    asked.push_back(std::async(std::launch::async, [&seat] {
      const auto stub = v1::ConsensusService::NewStub(rpc::MakeChannel(seat.address));
      return rpc::Call(*stub, &v1::ConsensusService::Stub::GetReplica, {}, kProbeTimeout);
    }));
  }
  std::vector<SeatAnswer> answers;
  for (std::size_t i = 0; i < seats.size(); ++i) answers.push_back({seats[i], asked[i].get()});
  return answers;
}

GroupProbe ProbeGroup(const ReplicatedLogOptions& options) {
  std::vector<paxos::Seat> others = options.seats;
  std::erase_if(others, [&](const paxos::Seat& seat) { return seat.name == options.name; });
  GroupProbe probe;
  const auto wait_for = [&](const paxos::Seat& seat, const std::string& why) {
    absl::StrAppend(&probe.waits_for, probe.waits_for.empty() ? "" : ", ", seat.name, " at ",
                    seat.address, " ", why);
  };
  for (const auto& [seat, status] : AskSeats(others)) {
    if (!status.ok()) {
      wait_for(seat, "does not answer");
    } else if (status->name() != seat.name) {
      wait_for(seat, absl::StrCat("is ", status->name(), ": correct `replicas`"));
    } else if (!options.cluster_id.empty() && !status->cluster_id().empty() &&
               status->cluster_id() != options.cluster_id) {
      wait_for(seat, absl::StrCat("belongs to cluster '", status->cluster_id(), "', not '",
                                  options.cluster_id, "'"));
    } else if (status->group() != 0) {
      probe.have_group = true;
    } else if (status->bootstraps() && status->name() < options.name) {
      // Only the first by name may begin. Otherwise two seats that find each other empty would
      // begin a group each.
      wait_for(seat, "was told to begin it, too, and comes first");
    }
  }
  return probe;
}

}  // namespace onepiece::nodemanager
