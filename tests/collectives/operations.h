// Each operation once, with arguments drawn from a seed, and its result compared with the plain
// one.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "stages/collectives/checked_group.h"
#include "tests/collectives/values.h"

namespace onepiece::collectives {

inline constexpr Operation kOperations[] = {
    Operation::kBroadcast, Operation::kAllGather, Operation::kReduceScatter, Operation::kAllReduce,
    Operation::kAllToAll,  Operation::kExchange,  Operation::kBarrier};

/// Draws the arguments of one call. All members draw the same.
class Draw {
 public:
  /// A part has at most `max_bytes`.
  Draw(std::uint64_t seed, std::size_t max_bytes) : random_(seed), max_bytes_(max_bytes) {}
  std::uint64_t Seed() { return random_.Next(); }
  int Below(int end) { return static_cast<int>(random_.Below(static_cast<std::uint64_t>(end))); }
  std::size_t Size(std::size_t unit = 1) {
    if (random_.Below(6) == 0) return 0;
    // Small ones are as frequent as large ones.
    const std::size_t limit = std::size_t{1} << random_.Below(24);
    return random_.Below(std::min(limit, max_bytes_) / unit + 1) * unit;
  }
  std::vector<std::size_t> Sizes(int count, std::size_t unit = 1) {
    std::vector<std::size_t> sizes;
    for (int i = 0; i < count; ++i) sizes.push_back(Size(unit));
    return sizes;
  }
  sdk::ElementType Type() { return kTypes[Below(6)]; }
  sdk::Reduction Reduction() { return Below(2) == 0 ? sdk::Reduction::kSum : sdk::Reduction::kMax; }

 private:
  base::SplitMix64 random_;
  const std::size_t max_bytes_;
};

inline absl::Status Wrong(Operation operation, int rank) {
  return absl::DataLossError(std::string(NameOf(operation)) + ": rank " + std::to_string(rank) +
                             " has a wrong result");
}

inline absl::Status TryBroadcast(sdk::Group& group, Draw& draw, sdk::Group::Deadline deadline) {
  const int root = draw.Below(group.size());
  const Memory wanted = BytesOf(draw.Seed(), root, draw.Size());
  Memory data = group.rank() == root ? wanted : Memory(wanted.size());
  if (const auto status = group.Broadcast(data, root, deadline); !status.ok()) return status;
  return data == wanted ? absl::OkStatus() : Wrong(Operation::kBroadcast, group.rank());
}

inline absl::Status TryAllGather(sdk::Group& group, Draw& draw, sdk::Group::Deadline deadline) {
  const auto sizes = draw.Sizes(group.size());
  const std::uint64_t seed = draw.Seed();
  const bool in_place = draw.Below(2) == 0;
  Memory wanted;
  Memory all(SumOf(sizes), std::byte{0xEE});
  Memory mine;
  std::span<const std::byte> part;
  for (int i = 0; i < group.size(); ++i) {
    const Memory bytes = BytesOf(seed, i, sizes[static_cast<std::size_t>(i)]);
    if (i == group.rank()) {
      mine = bytes;
      part = mine;
      if (in_place) {
        std::ranges::copy(mine, all.begin() + static_cast<std::ptrdiff_t>(wanted.size()));
        part = std::span(all).subspan(wanted.size(), mine.size());
      }
    }
    wanted.insert(wanted.end(), bytes.begin(), bytes.end());
  }
  if (const auto status = group.AllGather(part, sizes, all, deadline); !status.ok()) return status;
  return all == wanted ? absl::OkStatus() : Wrong(Operation::kAllGather, group.rank());
}

inline absl::Status TryReduceScatter(sdk::Group& group, Draw& draw, sdk::Group::Deadline deadline) {
  const sdk::ElementType type = draw.Type();
  const sdk::Reduction reduction = draw.Reduction();
  const auto sizes = draw.Sizes(group.size(), TestBytes(type));
  const std::uint64_t seed = draw.Seed();
  const std::size_t count = SumOf(sizes) / TestBytes(type);
  const Memory all = Numbers(type, seed, group.rank(), count);
  const Memory reduced = Reduced(type, reduction, seed, group.size(), count);
  const auto rank = static_cast<std::size_t>(group.rank());
  const std::size_t before = SumOf(std::span(sizes).first(rank));
  Memory part(sizes[rank]);
  const auto status = group.ReduceScatter(all, sizes, part, type, reduction, deadline);
  if (!status.ok()) return status;
  return std::ranges::equal(part, std::span(reduced).subspan(before, part.size()))
             ? absl::OkStatus()
             : Wrong(Operation::kReduceScatter, group.rank());
}

inline absl::Status TryAllReduce(sdk::Group& group, Draw& draw, sdk::Group::Deadline deadline) {
  const sdk::ElementType type = draw.Type();
  const sdk::Reduction reduction = draw.Reduction();
  const std::size_t count = draw.Size() / TestBytes(type);
  const std::uint64_t seed = draw.Seed();
  Memory data = Numbers(type, seed, group.rank(), count);
  const auto status = group.AllReduce(data, type, reduction, deadline);
  if (!status.ok()) return status;
  return data == Reduced(type, reduction, seed, group.size(), count)
             ? absl::OkStatus()
             : Wrong(Operation::kAllReduce, group.rank());
}

inline absl::Status TryAllToAll(sdk::Group& group, Draw& draw, sdk::Group::Deadline deadline) {
  const int ranks = group.size();
  const std::uint64_t seed = draw.Seed();
  std::vector<std::vector<std::size_t>> sizes;  // From, to.
  for (int i = 0; i < ranks; ++i) sizes.push_back(draw.Sizes(ranks));
  const auto rank = static_cast<std::size_t>(group.rank());
  const auto bytes = [&](std::size_t from, std::size_t to) {
    return BytesOf(seed + to, static_cast<int>(from), sizes[from][to]);
  };
  Memory sent;
  Memory wanted;
  std::vector<std::size_t> receive_sizes;
  for (std::size_t i = 0; i < static_cast<std::size_t>(ranks); ++i) {
    const Memory out = bytes(rank, i);
    sent.insert(sent.end(), out.begin(), out.end());
    const Memory in = bytes(i, rank);
    wanted.insert(wanted.end(), in.begin(), in.end());
    receive_sizes.push_back(in.size());
  }
  Memory received(wanted.size());
  const auto status = group.AllToAll(sent, sizes[rank], received, receive_sizes, deadline);
  if (!status.ok()) return status;
  return received == wanted ? absl::OkStatus() : Wrong(Operation::kAllToAll, group.rank());
}

inline absl::Status TryExchange(sdk::Group& group, Draw& draw, sdk::Group::Deadline deadline) {
  const int ranks = group.size();
  const int shift = draw.Below(ranks);
  const std::uint64_t seed = draw.Seed();
  const auto sizes = draw.Sizes(ranks);
  const int from = (group.rank() + ranks - shift) % ranks;
  const auto bytes = [&](int rank) {
    return BytesOf(seed, rank, sizes[static_cast<std::size_t>(rank)]);
  };
  const Memory sent = bytes(group.rank());
  const Memory wanted = bytes(from);
  Memory received(wanted.size());
  auto status = group.StartExchange(sent, (group.rank() + shift) % ranks, received, from, deadline);
  if (status.ok()) status = group.FinishExchange(deadline);
  if (!status.ok()) return status;
  return received == wanted ? absl::OkStatus() : Wrong(Operation::kExchange, group.rank());
}

/// Calls the operation. A wrong result is DATA_LOSS.
inline absl::Status Try(sdk::Group& group, Operation operation, std::uint64_t seed,
                        std::size_t max_bytes, sdk::Group::Deadline deadline) {
  Draw draw(seed, max_bytes);
  switch (operation) {
    case Operation::kBroadcast:
      return TryBroadcast(group, draw, deadline);
    case Operation::kAllGather:
      return TryAllGather(group, draw, deadline);
    case Operation::kReduceScatter:
      return TryReduceScatter(group, draw, deadline);
    case Operation::kAllReduce:
      return TryAllReduce(group, draw, deadline);
    case Operation::kAllToAll:
      return TryAllToAll(group, draw, deadline);
    case Operation::kExchange:
      return TryExchange(group, draw, deadline);
    case Operation::kBarrier:
      return group.Barrier(deadline);
  }
  return absl::InternalError("no such operation");
}

}  // namespace onepiece::collectives
