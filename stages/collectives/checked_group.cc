#include "stages/collectives/checked_group.h"

#include <cstring>

#include "cluster/base/split_mix64.h"
#include "cluster/base/status.h"
#include "stages/collectives/element.h"

namespace onepiece::collectives {
namespace {

absl::Status BadCall(const char* reason, Operation operation, const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason,
                         std::string(NameOf(operation)) + ": " + what);
}

absl::Status BadShape(Operation operation, const std::string& what) {
  return BadCall("BAD_SHAPE", operation, what);
}

std::uint64_t HashOf(sdk::Group::Sizes sizes) {
  std::uint64_t hash = 0;
  for (const std::size_t size : sizes) hash = base::Mix64(hash + 0x9E3779B97F4A7C15 + size);
  return hash;
}

std::uint16_t DetailOf(sdk::ElementType type, sdk::Reduction reduction) {
  return static_cast<std::uint16_t>((static_cast<unsigned>(type) << 8) |
                                    static_cast<unsigned>(reduction));
}

std::size_t Before(sdk::Group::Sizes sizes, int rank) {
  std::size_t sum = 0;
  for (int i = 0; i < rank; ++i) sum += sizes[static_cast<std::size_t>(i)];
  return sum;
}

void Move(sdk::Group::ConstBytes from, std::byte* into) {
  if (!from.empty() && from.data() != into) std::memmove(into, from.data(), from.size());
}

}  // namespace

const char* NameOf(Operation operation) {
  switch (operation) {
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kAllToAll:
      return "all_to_all";
    case Operation::kExchange:
      return "exchange";
    case Operation::kBarrier:
      return "barrier";
  }
  return "an unknown operation";
}

absl::Status CheckedGroup::CheckMayCall(Operation operation) const {
  if (!end_.ok()) return end_;
  if (exchanging_ == Exchanging::kNo) return absl::OkStatus();
  return BadCall("BAD_CALL", operation, "the exchange before it is not finished");
}

absl::Status CheckedGroup::CheckSizes(Operation operation, Sizes sizes, std::size_t total,
                                      std::size_t unit) const {
  if (sizes.size() != descriptor_.members.size()) {
    return BadShape(operation, std::to_string(sizes.size()) + " sizes for " +
                                   std::to_string(size()) + " ranks");
  }
  std::size_t sum = 0;
  for (const std::size_t part : sizes) {
    if (part > total - sum) {
      return BadShape(operation, "the parts are longer than the " + std::to_string(total) +
                                     " bytes that hold them");
    }
    if (part % unit != 0) {
      return BadShape(operation, "a part of " + std::to_string(part) + " bytes has no whole " +
                                     std::to_string(unit) + "-byte elements");
    }
    sum += part;
  }
  if (sum == total) return absl::OkStatus();
  return BadShape(operation,
                  "the parts have " + std::to_string(sum) + " bytes of " + std::to_string(total));
}

absl::Status CheckedGroup::CheckRank(Operation operation, int rank) const {
  if (rank >= 0 && rank < size()) return absl::OkStatus();
  return BadShape(operation,
                  "no rank " + std::to_string(rank) + " among " + std::to_string(size()));
}

Call CheckedGroup::NextCall(Operation operation, std::uint16_t detail, std::uint64_t sizes) {
  return {.number = ++calls_, .operation = operation, .detail = detail, .sizes = sizes};
}

CheckedGroup::Parts CheckedGroup::EvenParts(std::size_t bytes, sdk::ElementType type) const {
  const std::size_t unit = ElementBytes(type);
  const auto offsets =
      sdk::EvenOffsets(descriptor_.members.size(), static_cast<std::int64_t>(bytes / unit));
  const auto begin = [&](std::size_t rank) {
    return static_cast<std::size_t>(offsets[rank]) * unit;
  };
  Parts parts{.sizes = {}, .own_begin = begin(static_cast<std::size_t>(rank_))};
  for (std::size_t rank = 0; rank < descriptor_.members.size(); ++rank)
    parts.sizes.push_back(begin(rank + 1) - begin(rank));
  return parts;
}

absl::Status CheckedGroup::Keep(absl::Status status) {
  if (end_.ok()) end_ = status;
  return status;
}

absl::Status CheckedGroup::Broadcast(Bytes data, int root, Deadline deadline) {
  ONEPIECE_RETURN_IF_ERROR(CheckMayCall(Operation::kBroadcast));
  ONEPIECE_RETURN_IF_ERROR(CheckRank(Operation::kBroadcast, root));
  if (size() == 1) return absl::OkStatus();
  const std::size_t bytes = data.size();
  const Call call =
      NextCall(Operation::kBroadcast, static_cast<std::uint16_t>(root), HashOf({&bytes, 1}));
  return Keep(DoBroadcast(call, data, root, deadline));
}

absl::Status CheckedGroup::AllGather(ConstBytes part, Sizes sizes, Bytes all, Deadline deadline) {
  ONEPIECE_RETURN_IF_ERROR(CheckMayCall(Operation::kAllGather));
  ONEPIECE_RETURN_IF_ERROR(CheckSizes(Operation::kAllGather, sizes, all.size(), 1));
  if (part.size() != sizes[static_cast<std::size_t>(rank_)]) {
    return BadShape(Operation::kAllGather, "this rank's part has " + std::to_string(part.size()) +
                                               " bytes, not what sizes says");
  }
  Move(part, all.data() + Before(sizes, rank_));
  if (size() == 1) return absl::OkStatus();
  return Keep(DoAllGather(NextCall(Operation::kAllGather, 0, HashOf(sizes)), sizes, all, deadline));
}

absl::Status CheckedGroup::ReduceScatter(ConstBytes all, Sizes sizes, Bytes part,
                                         sdk::ElementType type, sdk::Reduction reduction,
                                         Deadline deadline) {
  constexpr Operation kThis = Operation::kReduceScatter;
  ONEPIECE_RETURN_IF_ERROR(CheckMayCall(kThis));
  ONEPIECE_RETURN_IF_ERROR(CheckSizes(kThis, sizes, all.size(), ElementBytes(type)));
  if (part.size() != sizes[static_cast<std::size_t>(rank_)]) {
    return BadShape(kThis, "this rank's part has " + std::to_string(part.size()) +
                               " bytes, not what sizes says");
  }
  if (size() == 1) {
    Move(all, part.data());
    return absl::OkStatus();
  }
  return Keep(DoReduceScatter(NextCall(kThis, DetailOf(type, reduction), HashOf(sizes)), all, sizes,
                              part, {type, reduction}, deadline));
}

absl::Status CheckedGroup::AllReduce(Bytes data, sdk::ElementType type, sdk::Reduction reduction,
                                     Deadline deadline) {
  ONEPIECE_RETURN_IF_ERROR(CheckMayCall(Operation::kAllReduce));
  if (data.size() % ElementBytes(type) != 0) {
    return BadShape(Operation::kAllReduce,
                    std::to_string(data.size()) + " bytes are no whole elements");
  }
  if (size() == 1) return absl::OkStatus();
  const std::size_t bytes = data.size();
  const Call call = NextCall(Operation::kAllReduce, DetailOf(type, reduction), HashOf({&bytes, 1}));
  return Keep(DoAllReduce(call, data, {type, reduction}, deadline));
}

absl::Status CheckedGroup::AllToAll(ConstBytes sent, Sizes send_sizes, Bytes received,
                                    Sizes receive_sizes, Deadline deadline) {
  constexpr Operation kThis = Operation::kAllToAll;
  ONEPIECE_RETURN_IF_ERROR(CheckMayCall(kThis));
  ONEPIECE_RETURN_IF_ERROR(CheckSizes(kThis, send_sizes, sent.size(), 1));
  ONEPIECE_RETURN_IF_ERROR(CheckSizes(kThis, receive_sizes, received.size(), 1));
  const auto self = static_cast<std::size_t>(rank_);
  if (send_sizes[self] != receive_sizes[self]) {
    return BadShape(kThis, "this rank sends itself another size than it receives");
  }
  Move(sent.subspan(Before(send_sizes, rank_), send_sizes[self]),
       received.data() + Before(receive_sizes, rank_));
  if (size() == 1) return absl::OkStatus();
  // The sizes differ from pair to pair: each receiver checks the size of the message.
  return Keep(
      DoAllToAll(NextCall(kThis, 0, 0), sent, send_sizes, received, receive_sizes, deadline));
}

absl::Status CheckedGroup::StartExchange(ConstBytes sent, int to, Bytes received, int from,
                                         Deadline deadline) {
  constexpr Operation kThis = Operation::kExchange;
  ONEPIECE_RETURN_IF_ERROR(CheckMayCall(kThis));
  ONEPIECE_RETURN_IF_ERROR(CheckRank(kThis, to));
  ONEPIECE_RETURN_IF_ERROR(CheckRank(kThis, from));
  if ((to == rank_) != (from == rank_)) {
    return BadShape(kThis, "a rank that sends to itself also receives from itself");
  }
  if (to == rank_) {
    if (sent.size() != received.size()) {
      return BadShape(kThis, "this rank sends itself another size than it receives");
    }
    Move(sent, received.data());
    (void)NextCall(kThis, 0, 0);
    exchanging_ = Exchanging::kWithItself;
    return absl::OkStatus();
  }
  exchanging_ = Exchanging::kYes;
  return Keep(DoStartExchange(NextCall(kThis, 0, 0), sent, to, received, from, deadline));
}

absl::Status CheckedGroup::FinishExchange(Deadline deadline) {
  if (!end_.ok()) return end_;
  const Exchanging which = std::exchange(exchanging_, Exchanging::kNo);
  if (which == Exchanging::kNo) {
    return BadCall("BAD_CALL", Operation::kExchange, "none was started");
  }
  if (which == Exchanging::kWithItself) return absl::OkStatus();
  return Keep(DoFinishExchange(deadline));
}

absl::Status CheckedGroup::Barrier(Deadline deadline) {
  ONEPIECE_RETURN_IF_ERROR(CheckMayCall(Operation::kBarrier));
  if (size() == 1) return absl::OkStatus();
  return Keep(DoBarrier(NextCall(Operation::kBarrier, 0, 0), deadline));
}

}  // namespace onepiece::collectives
