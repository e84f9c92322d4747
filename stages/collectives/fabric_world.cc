#include "stages/collectives/fabric_world.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/base/status.h"
#include "cluster/fabric/wire.h"
#include "stages/collectives/fabric_group.h"
#include "stages/collectives/mesh.h"

namespace onepiece::collectives {
namespace {

// Grows with every change of what is in the regions.
constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kMaxSlotBytes = std::uint64_t{16} << 20;
constexpr std::uint64_t kMaxSlots = 64;

absl::Status CheckOptions(const FabricWorldOptions& options) {
  const auto bad = [](const std::string& what) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_WORLD", what);
  };
  if (options.workers == 0 || options.workers > kMaxWorkers) {
    return bad("a world has 1 to " + std::to_string(kMaxWorkers) + " workers, not " +
               std::to_string(options.workers));
  }
  if (options.index >= options.workers) {
    return bad("no worker " + std::to_string(options.index) + " among " +
               std::to_string(options.workers));
  }
  if (options.slots < 2 || options.slots > kMaxSlots) {
    return bad("2 to " + std::to_string(kMaxSlots) + " slots, not " +
               std::to_string(options.slots));
  }
  if (options.slot_bytes == 0 || options.slot_bytes % kLineBytes != 0 ||
      options.slot_bytes > kMaxSlotBytes) {
    return bad("slots have a multiple of 64 bytes up to 16 MiB, not " +
               std::to_string(options.slot_bytes));
  }
  return absl::OkStatus();
}

absl::Status Differs(std::uint32_t worker, const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "WORLD_DIFFERS",
                         "worker " + std::to_string(worker) + " " + what);
}

// An offer, and behind it what both ends must have alike.
std::string OfferText(const Mesh& mesh, const fabric::Offer& offer) {
  std::string text;
  for (const std::uint64_t number :
       {kVersion, std::uint64_t{mesh.layout.workers}, mesh.layout.slots, mesh.layout.slot_bytes}) {
    fabric::AppendU64(text, number);
  }
  fabric::AppendText(text, offer.Serialize());
  return text;
}

absl::StatusOr<fabric::Offer> ReadOffer(const Mesh& mesh, std::uint32_t peer,
                                        const std::string& text) {
  fabric::WireReader reader(text);
  const std::uint64_t version = reader.U64();
  if (version != kVersion) {
    return Differs(
        peer, "speaks version " + std::to_string(version) + ", not " + std::to_string(kVersion));
  }
  const std::uint64_t workers = reader.U64();
  const std::uint64_t slots = reader.U64();
  const std::uint64_t slot_bytes = reader.U64();
  const std::string offer = reader.Text(kMaxTextBytes);
  if (!reader.Finished()) return Differs(peer, "sent no offer");
  if (workers != mesh.layout.workers || slots != mesh.layout.slots ||
      slot_bytes != mesh.layout.slot_bytes) {
    return Differs(peer, "has a world of " + std::to_string(workers) + " workers with " +
                             std::to_string(slots) + " slots of " + std::to_string(slot_bytes) +
                             " bytes");
  }
  return fabric::Offer::Parse(offer);
}

}  // namespace

FabricWorld::FabricWorld(std::unique_ptr<Mesh> mesh) : mesh_(std::move(mesh)) {}
FabricWorld::~FabricWorld() = default;
std::uint32_t FabricWorld::index() const { return mesh_->index; }
std::uint32_t FabricWorld::workers() const { return mesh_->layout.workers; }

absl::StatusOr<std::unique_ptr<FabricWorld>> FabricWorld::Open(fabric::Fabric& fabric,
                                                               Rendezvous& rendezvous,
                                                               const FabricWorldOptions& options,
                                                               base::MonotonicTime deadline) {
  ONEPIECE_RETURN_IF_ERROR(CheckOptions(options));
  auto mesh =
      std::make_unique<Mesh>(Mesh{.fabric = fabric,
                                  .layout = {.workers = options.workers,
                                             .slots = options.slots,
                                             .slot_bytes = options.slot_bytes},
                                  .index = options.index,
                                  .processors = std::max(1U, std::thread::hardware_concurrency())});
  ONEPIECE_ASSIGN_OR_RETURN(mesh->doorbell, fabric.MakeDoorbell("world-bell"));
  ONEPIECE_ASSIGN_OR_RETURN(mesh->region,
                            fabric.Register(mesh->layout.RegionBytes(), "world", mesh->doorbell));
  mesh->links.resize(options.workers);
  std::vector<std::uint32_t> peers;
  for (std::uint32_t i = 0; i < options.workers; ++i) {
    if (i != options.index) peers.push_back(i);
  }
  std::unique_ptr<FabricWorld> world(new FabricWorld(std::move(mesh)));
  ONEPIECE_RETURN_IF_ERROR(world->Meet(peers, rendezvous, deadline));
  return world;
}

absl::Status FabricWorld::Meet(std::span<const std::uint32_t> peers, Rendezvous& rendezvous,
                               base::MonotonicTime deadline) {
  std::map<std::uint32_t, std::unique_ptr<fabric::Dialer>> dialers;
  std::vector<std::string> offers(workers());
  for (const std::uint32_t peer : peers) {
    ONEPIECE_ASSIGN_OR_RETURN(dialers[peer], mesh_->fabric.Dial());
    offers[peer] = OfferText(*mesh_, dialers[peer]->offer());
  }
  ONEPIECE_ASSIGN_OR_RETURN(offers, rendezvous.Exchange(std::move(offers), deadline));
  std::map<std::uint32_t, std::unique_ptr<fabric::Access>> accesses;
  std::vector<std::string> answers(workers());
  for (const std::uint32_t peer : peers) {
    ONEPIECE_ASSIGN_OR_RETURN(const fabric::Offer offer, ReadOffer(*mesh_, peer, offers[peer]));
    ONEPIECE_ASSIGN_OR_RETURN(accesses[peer], mesh_->region->Accept(offer));
    answers[peer] = accesses[peer]->remote().Serialize();
  }
  ONEPIECE_ASSIGN_OR_RETURN(answers, rendezvous.Exchange(std::move(answers), deadline));
  for (const std::uint32_t peer : peers) {
    ONEPIECE_ASSIGN_OR_RETURN(const auto remote, fabric::RemoteRegion::Parse(answers[peer]));
    if (remote.length_bytes != mesh_->layout.RegionBytes()) {
      return Differs(peer, "has a region of another size");
    }
    ONEPIECE_ASSIGN_OR_RETURN(auto channel, dialers[peer]->Connect(remote));
    mesh_->links[peer] =
        std::make_unique<Link>(mesh_->layout, index(), peer, mesh_->region->bytes().data(),
                               std::move(accesses[peer]), std::move(channel));
  }
  return absl::OkStatus();
}

absl::Status FabricWorld::Reconnect(std::span<const std::uint32_t> workers, Rendezvous& rendezvous,
                                    base::MonotonicTime deadline) {
  ++mesh_->generation;
  for (const std::uint32_t peer : workers) {
    if (peer >= this->workers() || peer == index()) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_WORLD",
                             "no other worker " + std::to_string(peer));
    }
    std::unique_ptr<Link>& link = mesh_->links[peer];
    if (link != nullptr && !link->Revoke()) {
      return base::MakeError(absl::StatusCode::kFailedPrecondition, "STILL_ALIVE",
                             "the former process of worker " + std::to_string(peer) + " lives");
    }
    link.reset();
    const std::span<std::byte> area =
        mesh_->region->bytes().subspan(mesh_->layout.ReadLine(peer), mesh_->layout.AreaBytes());
    std::ranges::fill(area, std::byte{0});
  }
  return Meet(workers, rendezvous, deadline);
}

absl::StatusOr<std::unique_ptr<sdk::Group>> FabricWorld::MakeGroup(
    const sdk::GroupDescriptor& descriptor) {
  ONEPIECE_ASSIGN_OR_RETURN(const int rank, RankIn(descriptor, index(), workers()));
  if (descriptor.epoch < mesh_->epoch) return EpochTooSmall(descriptor, mesh_->epoch);
  for (std::size_t i = 0; i < descriptor.members.size(); ++i) {
    if (static_cast<int>(i) == rank) continue;
    const Link* link = mesh_->links[descriptor.members[i]].get();
    if (link != nullptr && !link->broken() && !link->PeerIsDead()) continue;
    return sdk::RankError(absl::StatusCode::kUnavailable, "RANK_LOST", static_cast<int>(i),
                          "worker " + std::to_string(descriptor.members[i]) + " is lost");
  }
  mesh_->epoch = descriptor.epoch;
  return std::make_unique<FabricGroup>(*mesh_, descriptor, rank);
}

}  // namespace onepiece::collectives
