#include "stages/collectives/fabric_group.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "cluster/base/spin.h"
#include "cluster/base/status.h"
#include "stages/collectives/element.h"

namespace onepiece::collectives {
namespace {

// So long a call polls before it sleeps: longer than it takes a peer that is at the same call.
constexpr base::Duration kPollTime = std::chrono::microseconds(20);
// Looks at the slots, some 50 ns each, before it lets others have the processor between two looks.
constexpr unsigned kSpins = 32;
// How often a call that waits shows that it lives, and looks for the dead.
constexpr base::Duration kBeat = std::chrono::milliseconds(10);
constexpr base::Duration kChainGrace = std::chrono::milliseconds(100);
const char* ReasonOf(Notice::Why why) {
  switch (why) {
    case Notice::Why::kLost:
      return "RANK_LOST";
    case Notice::Why::kSilent:
      return "RANK_SILENT";
    case Notice::Why::kDiffers:
      return "RANK_DIFFERS";
    case Notice::Why::kEnded:
      return "GROUP_ENDED";
  }
  return "GROUP_ENDED";
}

absl::StatusCode CodeOf(Notice::Why why) {
  switch (why) {
    case Notice::Why::kLost:
      return absl::StatusCode::kUnavailable;
    case Notice::Why::kSilent:
      return absl::StatusCode::kDeadlineExceeded;
    case Notice::Why::kDiffers:
    case Notice::Why::kEnded:
      return absl::StatusCode::kAborted;
  }
  return absl::StatusCode::kInternal;
}

absl::Status ErrorOf(Notice::Why why, int rank, const std::string& message) {
  return sdk::RankError(CodeOf(why), ReasonOf(why), rank, message);
}

std::string Text(const Call& call) {
  return std::string(NameOf(call.operation)) + " (call " + std::to_string(call.number) + ")";
}

}  // namespace

FabricGroup::FabricGroup(Mesh& mesh, sdk::GroupDescriptor descriptor, int rank)
    : CheckedGroup(std::move(descriptor), rank),
      mesh_(mesh),
      key_(KeyOf(this->descriptor())),
      generation_(mesh.generation) {}

Link& FabricGroup::LinkTo(int rank) {
  return *mesh_.links[descriptor().members[static_cast<std::size_t>(rank)]];
}

base::MonotonicTime FabricGroup::ChainDeadline(Deadline deadline) const {
  // From now, when a chain to a stopped peer has used up the call's time: the channels to the
  // others must not break for that.
  return std::max<base::MonotonicTime>(deadline, Now()) + base::Scaled(kChainGrace);
}

// The operations.

void FabricGroup::Begin(const Call& call, std::uint8_t phase) {
  transfers_.call = call;
  transfers_.phase = phase;
  transfers_.outgoing.clear();
  transfers_.incoming.clear();
  transfers_.arithmetic.reset();
}

absl::Status FabricGroup::DoBroadcast(const Call& call, Bytes data, int root, Deadline deadline) {
  Begin(call, 0);
  if (rank() != root) {
    transfers_.incoming.push_back({.rank = root, .into = data});
    return Run(deadline);
  }
  for (int to = 0; to < size(); ++to) {
    if (to != root) transfers_.outgoing.push_back({.rank = to, .data = data});
  }
  return Run(deadline);
}

void FabricGroup::AddGather(Sizes sizes, Bytes all) {
  std::size_t at = 0;
  for (int i = 0; i < size(); ++i) {
    const Bytes part = all.subspan(at, sizes[static_cast<std::size_t>(i)]);
    at += part.size();
    if (i != rank()) {
      transfers_.incoming.push_back({.rank = i, .into = part});
      continue;
    }
    for (int to = 0; to < size(); ++to) {
      if (to != i) transfers_.outgoing.push_back({.rank = to, .data = part});
    }
  }
}

absl::Status FabricGroup::DoAllGather(const Call& call, Sizes sizes, Bytes all, Deadline deadline) {
  Begin(call, 0);
  AddGather(sizes, all);
  return Run(deadline);
}

void FabricGroup::AddReduction(ConstBytes all, Sizes sizes, Bytes part, Arithmetic arithmetic) {
  transfers_.arithmetic = arithmetic;
  std::size_t at = 0;
  for (int i = 0; i < size(); ++i) {
    const ConstBytes theirs = all.subspan(at, sizes[static_cast<std::size_t>(i)]);
    at += theirs.size();
    const bool own = i == rank();
    transfers_.incoming.push_back({.rank = i, .into = part, .own = own ? theirs : ConstBytes()});
    if (!own) transfers_.outgoing.push_back({.rank = i, .data = theirs});
  }
}

absl::Status FabricGroup::DoReduceScatter(const Call& call, ConstBytes all, Sizes sizes, Bytes part,
                                          Arithmetic arithmetic, Deadline deadline) {
  Begin(call, 0);
  AddReduction(all, sizes, part, arithmetic);
  return Run(deadline);
}

absl::Status FabricGroup::ReduceAllDirectly(Bytes data, Arithmetic arithmetic, Deadline deadline) {
  scratch_.resize(std::max(scratch_.size(), data.size()));
  const Bytes sum = Bytes(scratch_).first(data.size());
  transfers_.arithmetic = arithmetic;
  for (int i = 0; i < size(); ++i) {
    const bool own = i == rank();
    transfers_.incoming.push_back(
        {.rank = i, .into = sum, .own = own ? ConstBytes(data) : ConstBytes()});
    if (!own) transfers_.outgoing.push_back({.rank = i, .data = data});
  }
  ONEPIECE_RETURN_IF_ERROR(Run(deadline));
  std::ranges::copy(sum, data.begin());
  return absl::OkStatus();
}

absl::Status FabricGroup::DoAllReduce(const Call& call, Bytes data, Arithmetic arithmetic,
                                      Deadline deadline) {
  Begin(call, 0);
  const auto ranks = static_cast<std::size_t>(size());
  // What half a slot holds takes one step that way instead of two.
  if (data.size() * (ranks - 1) <= mesh_.layout.slot_bytes / 2) {
    return ReduceAllDirectly(data, arithmetic, deadline);
  }
  const auto [sizes, begin] = EvenParts(data.size(), arithmetic.type);
  const Bytes own = data.subspan(begin, sizes[static_cast<std::size_t>(rank())]);
  // Nobody else needs this rank's contribution to its own part. For the first two ranks it can be
  // where the sum begins: x0 + x1 has the same bits as x1 + x0.
  const bool in_place = rank() <= 1;
  if (!in_place) scratch_.resize(std::max(scratch_.size(), own.size()));
  const Bytes part = in_place ? own : Bytes(scratch_).first(own.size());
  AddReduction(data, sizes, part, arithmetic);
  if (in_place) {
    const auto first = transfers_.incoming.begin();
    std::rotate(first, first + rank(), first + rank() + 1);
    first->received = own.size();
    first->done = true;
  }
  ONEPIECE_RETURN_IF_ERROR(Run(deadline));
  if (!in_place) std::ranges::copy(part, own.begin());
  Begin(call, 1);
  AddGather(sizes, data);
  return Run(deadline);
}

absl::Status FabricGroup::DoAllToAll(const Call& call, ConstBytes sent, Sizes send_sizes,
                                     Bytes received, Sizes receive_sizes, Deadline deadline) {
  Begin(call, 0);
  std::size_t send_at = 0;
  std::size_t receive_at = 0;
  for (int i = 0; i < size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (i != rank()) {
      transfers_.outgoing.push_back({.rank = i, .data = sent.subspan(send_at, send_sizes[at])});
      transfers_.incoming.push_back(
          {.rank = i, .into = received.subspan(receive_at, receive_sizes[at])});
    }
    send_at += send_sizes[at];
    receive_at += receive_sizes[at];
  }
  return Run(deadline);
}

absl::Status FabricGroup::DoStartExchange(const Call& call, ConstBytes sent, int to, Bytes received,
                                          int from, Deadline deadline) {
  ONEPIECE_RETURN_IF_ERROR(CheckStanding());
  Begin(call, 0);
  transfers_.outgoing.push_back({.rank = to, .data = sent});
  transfers_.incoming.push_back({.rank = from, .into = received});
  return Advance(deadline).status();
}

absl::Status FabricGroup::DoFinishExchange(Deadline deadline) { return Run(deadline); }

absl::Status FabricGroup::DoBarrier(const Call& call, Deadline deadline) {
  // Every rank hears from every other one, not through third ones. Up to 8 ranks that is as fast,
  // and who waits in vain knows for whom.
  Begin(call, 0);
  for (int i = 0; i < size(); ++i) {
    if (i == rank()) continue;
    transfers_.outgoing.push_back({.rank = i});
    transfers_.incoming.push_back({.rank = i});
  }
  return Run(deadline);
}

// Moving the messages.

absl::Status FabricGroup::Run(Deadline deadline) {
  ONEPIECE_RETURN_IF_ERROR(CheckStanding());
  const bool crowded = static_cast<unsigned>(size()) > mesh_.processors;
  unsigned idle = 0;
  base::MonotonicTime poll_until{};
  while (true) {
    ONEPIECE_ASSIGN_OR_RETURN(const bool moved, Advance(deadline));
    if (AllDone()) return absl::OkStatus();
    if (moved) {
      idle = 0;
      continue;
    }
    if (idle++ == 0) poll_until = Now() + kPollTime;
    if (idle % 16 == 0 && Now() >= poll_until) {
      ONEPIECE_RETURN_IF_ERROR(Rest(deadline));
      idle = 0;
    } else if (crowded || idle > kSpins) {
      // The rank that this one waits for may need this processor: the one that a sleeper is woken
      // on is often the one of its waker.
      std::this_thread::yield();
    } else {
      base::RelaxProcessor();
    }
  }
}

absl::Status FabricGroup::CheckStanding() {
  if (mesh_.epoch > key_.epoch) {
    return ErrorOf(Notice::Why::kEnded, rank(),
                   "this worker is in epoch " + std::to_string(mesh_.epoch) + ", after " +
                       std::to_string(key_.epoch));
  }
  if (mesh_.generation != generation_) {
    return ErrorOf(Notice::Why::kEnded, rank(), "workers were taken in after it was made");
  }
  for (int i = 0; i < size(); ++i) {
    if (i == rank()) continue;
    const Link& link = LinkTo(i);
    const auto notice = link.notice();
    if (notice.has_value() && notice->group == key_) return Heard(i, *notice);
    if (link.peer_epoch() > key_.epoch) return GoneOn(i, link.peer_epoch());
  }
  return absl::OkStatus();
}

absl::Status FabricGroup::GoneOn(int rank, std::uint64_t epoch) {
  // A member that ended the group said why before it went on, perhaps after the last look.
  const auto notice = LinkTo(rank).notice();
  if (notice.has_value() && notice->group == key_) return Heard(rank, *notice);
  return End(
      Notice::Why::kEnded, rank,
      "it has gone on to epoch " + std::to_string(epoch) + ", after " + std::to_string(key_.epoch));
}

bool FabricGroup::AllDone() const {
  return std::ranges::all_of(transfers_.outgoing, &Outgoing::done) &&
         std::ranges::all_of(transfers_.incoming, &Incoming::done);
}

absl::StatusOr<bool> FabricGroup::Advance(Deadline deadline) {
  bool moved = false;
  for (Outgoing& message : transfers_.outgoing) {
    if (message.done) continue;
    ONEPIECE_ASSIGN_OR_RETURN(const bool sent, Push(message, deadline));
    moved |= sent;
  }
  for (std::size_t i = 0; i < transfers_.incoming.size(); ++i) {
    if (transfers_.incoming[i].done) continue;
    ONEPIECE_ASSIGN_OR_RETURN(const bool received, transfers_.incoming[i].rank == rank()
                                                       ? PullOwn(i)
                                                       : Pull(i, deadline));
    moved |= received;
  }
  return moved;
}

absl::StatusOr<bool> FabricGroup::Push(Outgoing& message, Deadline deadline) {
  Link& link = LinkTo(message.rank);
  if (!link.CanSend()) return false;
  const ConstBytes chunk = message.data.subspan(
      message.sent, std::min(message.data.size() - message.sent, mesh_.layout.slot_bytes));
  const ChunkHeader header{.group = key_,
                           .call = transfers_.call,
                           .phase = transfers_.phase,
                           .message_bytes = message.data.size()};
  if (!link.Send(header, chunk, ChainDeadline(deadline)).ok()) return LinkFailed(message.rank);
  message.sent += chunk.size();
  message.done = message.sent == message.data.size();
  return true;
}

std::size_t FabricGroup::LimitOf(std::size_t which) const {
  const bool first = which == 0 || !transfers_.arithmetic.has_value();
  return first ? transfers_.incoming[which].into.size() : transfers_.incoming[which - 1].received;
}

void FabricGroup::TakeIn(std::size_t which, ConstBytes chunk) {
  Incoming& message = transfers_.incoming[which];
  const Bytes place = message.into.subspan(message.received, chunk.size());
  if (which > 0 && transfers_.arithmetic.has_value()) {
    Reduce(transfers_.arithmetic->type, transfers_.arithmetic->reduction, chunk, place);
  } else if (!chunk.empty()) {
    std::memcpy(place.data(), chunk.data(), chunk.size());
  }
  message.received += chunk.size();
  message.done = message.received == message.into.size();
}

absl::StatusOr<bool> FabricGroup::PullOwn(std::size_t which) {
  const Incoming& message = transfers_.incoming[which];
  const std::size_t rest = LimitOf(which) - message.received;
  if (rest == 0 && !message.into.empty()) return false;
  TakeIn(which, message.own.subspan(message.received, std::min(rest, mesh_.layout.slot_bytes)));
  return true;
}

absl::StatusOr<bool> FabricGroup::Pull(std::size_t which, Deadline deadline) {
  const Incoming& message = transfers_.incoming[which];
  Link& link = LinkTo(message.rank);
  const ChunkHeader* header = link.Peek();
  if (header == nullptr) return false;
  if (header->group.epoch >= key_.epoch) {
    ONEPIECE_RETURN_IF_ERROR(CheckHeader(message, *header));
    const ConstBytes chunk = link.payload();
    if (message.received + chunk.size() > LimitOf(which)) return false;
    TakeIn(which, chunk);
  }  // Else it is left over from an earlier group: nobody wants it.
  // The peer may have left since it sent all this. Whether that matters, FindLost says.
  (void)link.Read(key_.epoch, ChainDeadline(deadline));
  return true;
}

absl::Status FabricGroup::CheckHeader(const Incoming& message, const ChunkHeader& header) {
  if (header.group.epoch > key_.epoch) return GoneOn(message.rank, header.group.epoch);
  const Call& call = transfers_.call;
  if (header.group.hash != key_.hash) {
    return End(Notice::Why::kDiffers, message.rank,
               "in epoch " + std::to_string(key_.epoch) + " it is in another group, or in this " +
                   "one with other members or offsets");
  }
  if (header.call.operation != call.operation || header.call.number != call.number) {
    return End(Notice::Why::kDiffers, message.rank,
               "it called " + Text(header.call) + ", this rank " + Text(call));
  }
  const std::size_t rest = message.into.size() - message.received;
  if (header.call.detail != call.detail || header.call.sizes != call.sizes ||
      header.phase != transfers_.phase || header.message_bytes != message.into.size() ||
      header.chunk_bytes != std::min(rest, mesh_.layout.slot_bytes)) {
    return End(Notice::Why::kDiffers, message.rank,
               "it called " + Text(call) + " with another root, type, reduction or size: " +
                   std::to_string(header.message_bytes) + " bytes, not " +
                   std::to_string(message.into.size()));
  }
  return absl::OkStatus();
}

// Waiting, and who is to blame.

absl::Status FabricGroup::Rest(Deadline deadline) {
  ONEPIECE_RETURN_IF_ERROR(CheckStanding());
  base::MonotonicTime now = Now();
  if (now >= deadline) return BlameTheSilent(now);
  const std::uint32_t seen = mesh_.doorbell->count();
  for (int i = 0; i < size(); ++i) {
    // A link that breaks here matters only when this call needs it: FindLost.
    if (i != rank() && !LinkTo(i).broken()) {
      (void)LinkTo(i).AnnounceSleep(ChainDeadline(deadline));
    }
  }
  ONEPIECE_ASSIGN_OR_RETURN(const bool moved, Advance(deadline));
  if (moved) return absl::OkStatus();
  mesh_.doorbell->Wait(seen, std::min<base::Duration>(kBeat, deadline - now));
  now = Now();
  for (int i = 0; i < size(); ++i) {
    if (i != rank()) (void)LinkTo(i).LastSign(now);
  }
  if (now < next_death_check_) return absl::OkStatus();
  next_death_check_ = now + kBeat;
  return FindLost(deadline);
}

std::vector<int> FabricGroup::Awaited() {
  std::vector<int> ranks;
  for (const Outgoing& message : transfers_.outgoing) {
    if (!message.done) ranks.push_back(message.rank);
  }
  for (const Incoming& message : transfers_.incoming) {
    // What is there and waits for a lower rank's part is not late.
    const bool missing = !message.done && message.rank != rank();
    if (missing && LinkTo(message.rank).Peek() == nullptr) ranks.push_back(message.rank);
  }
  return ranks;
}

absl::Status FabricGroup::FindLost(Deadline deadline) {
  const std::vector<int> awaited = Awaited();
  const auto lost = std::ranges::find_if(
      awaited, [this](int i) { return LinkTo(i).broken() || LinkTo(i).PeerIsDead(); });
  if (lost == awaited.end()) return absl::OkStatus();
  // What it sent before it died counts.
  ONEPIECE_ASSIGN_OR_RETURN(const bool moved, Advance(deadline));
  if (moved) return absl::OkStatus();
  // A member that ended the group and then its process has said why.
  ONEPIECE_RETURN_IF_ERROR(CheckStanding());
  return LinkFailed(*lost);
}

absl::Status FabricGroup::BlameTheSilent(base::MonotonicTime now) {
  // Those who wait in vain themselves give signs of life, so the one who is to blame is the one
  // whose last sign is the oldest.
  int silent = -1;
  base::MonotonicTime oldest = base::MonotonicTime::max();
  for (const int i : Awaited()) {
    const base::MonotonicTime sign = LinkTo(i).LastSign(now);
    if (sign < oldest) silent = i;
    oldest = std::min(oldest, sign);
  }
  if (silent < 0) {  // All has just come.
    return sdk::RankError(absl::StatusCode::kDeadlineExceeded, "RANK_SILENT", rank(),
                          "the deadline of " + Text(transfers_.call) + " has passed");
  }
  return End(Notice::Why::kSilent, silent,
             "it did not come to " + Text(transfers_.call) + " in time");
}

absl::Status FabricGroup::LinkFailed(int rank) {
  const Link& link = LinkTo(rank);
  const absl::Status& failure = link.failure();
  if (!link.PeerIsDead() && failure.code() == absl::StatusCode::kDeadlineExceeded) {
    return End(Notice::Why::kSilent, rank, base::Message(failure));
  }
  return End(Notice::Why::kLost, rank,
             link.PeerIsDead() || failure.ok() ? "its process is dead" : base::Message(failure));
}

absl::Status FabricGroup::Heard(int from, const Notice& notice) {
  const auto failed = static_cast<int>(notice.rank);
  if (failed >= size()) return ErrorOf(Notice::Why::kEnded, from, "it ended the group");
  if (failed != rank()) {
    return ErrorOf(notice.why, failed, "so rank " + std::to_string(from) + " says");
  }
  if (notice.why == Notice::Why::kDiffers) {
    return ErrorOf(notice.why, from, "it called something else than this rank");
  }
  return ErrorOf(Notice::Why::kEnded, from, "it ended the group, because it waited for this rank");
}

absl::Status FabricGroup::End(Notice::Why why, int rank, const std::string& message) {
  const Notice notice{.group = key_, .why = why, .rank = static_cast<std::uint32_t>(rank)};
  const auto tell = [&](int i) {
    // Who does not hear it finds out by its deadline.
    if (!LinkTo(i).broken()) (void)LinkTo(i).Tell(notice, Now() + base::Scaled(kChainGrace));
  };
  for (int i = 0; i < size(); ++i) {
    if (i != this->rank() && i != rank) tell(i);
  }
  // The silent one last: it may be slow, or be stopped, and then on some fabrics this takes time.
  if (rank != this->rank() && why != Notice::Why::kLost) tell(rank);
  return ErrorOf(why, rank, message);
}

}  // namespace onepiece::collectives
