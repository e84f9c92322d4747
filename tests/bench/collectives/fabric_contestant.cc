#include <cstdlib>
#include <utility>

#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"
#include "stages/collectives/fabric_world.h"
#include "stages/collectives/socket_rendezvous.h"
#include "tests/bench/collectives/contestants.h"

namespace onepiece::bench {
namespace {

class FabricContestant final : public Contestant {
 public:
  FabricContestant(std::unique_ptr<fabric::Fabric> fabric,
                   std::unique_ptr<collectives::FabricWorld> world)
      : fabric_(std::move(fabric)), world_(std::move(world)) {
    for (std::uint32_t i = 0; i < world_->workers(); ++i) descriptor_.members.push_back(i);
    descriptor_.job = "bench";
    ChangeGroup();
  }
  [[nodiscard]] int rank() const override { return static_cast<int>(world_->index()); }
  [[nodiscard]] int size() const override { return static_cast<int>(world_->workers()); }

  void Broadcast(Floats data) override {
    Need(group_->Broadcast(std::as_writable_bytes(data), 0, Deadline()));
  }
  void AllGather(Floats all) override {
    const Sizes sizes = Even(all);
    const auto bytes = std::as_writable_bytes(all);
    const auto part = bytes.subspan(sizes[0] * static_cast<std::size_t>(rank()), sizes[0]);
    Need(group_->AllGather(part, sizes, bytes, Deadline()));
  }
  bool ReduceScatter(Floats all, Floats part) override {
    Need(group_->ReduceScatter(std::as_bytes(all), Even(all), std::as_writable_bytes(part),
                               sdk::ElementType::kF32, sdk::Reduction::kSum, Deadline()));
    return true;
  }
  void AllReduce(Floats data) override {
    Need(group_->AllReduce(std::as_writable_bytes(data), sdk::ElementType::kF32,
                           sdk::Reduction::kSum, Deadline()));
  }
  void AllToAll(Floats sent, Floats received) override {
    const Sizes sizes = Even(sent);
    Need(group_->AllToAll(std::as_bytes(sent), sizes, std::as_writable_bytes(received), sizes,
                          Deadline()));
  }
  void Barrier() override { Need(group_->Barrier(Deadline())); }
  void ChangeGroup() override {
    ++descriptor_.epoch;
    auto group = world_->MakeGroup(descriptor_);
    Need(group.status());
    group_ = *std::move(group);
  }

 private:
  using Sizes = std::vector<std::size_t>;
  [[nodiscard]] Sizes Even(Floats all) const {
    const auto ranks = static_cast<std::size_t>(size());
    return Sizes(ranks, all.size_bytes() / ranks);
  }
  static sdk::Group::Deadline Deadline() {
    return base::SystemClock().Now() + base::Scaled(std::chrono::seconds(60));
  }
  static void Need(const absl::Status& status) {
    if (status.ok()) return;
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }

  const std::unique_ptr<fabric::Fabric> fabric_;
  const std::unique_ptr<collectives::FabricWorld> world_;
  sdk::GroupDescriptor descriptor_;
  std::unique_ptr<sdk::Group> group_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contestant>> JoinFabric(const Meeting& meeting) {
  ONEPIECE_ASSIGN_OR_RETURN(auto fabric, fabric::Fabric::Open(meeting.fabric));
  const auto index = static_cast<std::uint32_t>(meeting.rank);
  const auto workers = static_cast<std::uint32_t>(meeting.ranks);
  ONEPIECE_ASSIGN_OR_RETURN(const auto seat,
                            collectives::JoinRendezvous(HubPath(meeting.folder), index, workers));
  const auto deadline = base::SystemClock().Now() + base::Scaled(std::chrono::seconds(30));
  ONEPIECE_ASSIGN_OR_RETURN(
      auto world, collectives::FabricWorld::Open(*fabric, *seat,
                                                 {.index = index, .workers = workers}, deadline));
  return std::make_unique<FabricContestant>(std::move(fabric), std::move(world));
}

}  // namespace onepiece::bench
