#include "cluster/base/status.h"
#include "cluster/fabric/fabric.h"

namespace onepiece::fabric {

Op Op::Write(const char* name, std::uint64_t offset, Pieces pieces) {
  return {.kind = Kind::kWrite, .name = name, .offset = offset, .pieces = pieces};
}

Op Op::WriteWords(const char* name, std::uint64_t offset, std::span<const std::uint64_t> words) {
  return {.kind = Kind::kWriteWords, .name = name, .offset = offset, .words = words};
}

Op Op::Read(const char* name, std::uint64_t offset, std::span<std::byte> into) {
  return {.kind = Kind::kRead, .name = name, .offset = offset, .into = into};
}

Op Op::ReadWords(const char* name, std::uint64_t offset, std::span<std::uint64_t> into) {
  return {.kind = Kind::kReadWords, .name = name, .offset = offset, .words_into = into};
}

Op Op::CompareAndSwap(const char* name, std::uint64_t offset, std::uint64_t compare,
                      std::uint64_t value, std::uint64_t* old_value) {
  return {.kind = Kind::kCompareAndSwap,
          .name = name,
          .offset = offset,
          .compare = compare,
          .value = value,
          .old_value = old_value};
}

Op Op::FetchAdd(const char* name, std::uint64_t offset, std::uint64_t value,
                std::uint64_t* old_value) {
  return {.kind = Kind::kFetchAdd,
          .name = name,
          .offset = offset,
          .value = value,
          .old_value = old_value};
}

Op Op::Notify(const char* name) { return {.kind = Kind::kNotify, .name = name}; }

std::uint64_t Op::size_bytes() const {
  switch (kind) {
    case Kind::kWrite: {
      std::uint64_t sum = 0;
      for (const auto& piece : pieces) sum += piece.size();
      return sum;
    }
    case Kind::kWriteWords:
      return words.size_bytes();
    case Kind::kRead:
      return into.size();
    case Kind::kReadWords:
      return words_into.size_bytes();
    case Kind::kCompareAndSwap:
    case Kind::kFetchAdd:
      return sizeof(std::uint64_t);
    case Kind::kNotify:
      return 0;
  }
  return 0;
}

absl::Status Channel::CheckChain(std::span<const Op> chain, Traffic& traffic) const {
  for (const Op& op : chain) {
    const std::uint64_t size = op.size_bytes();
    const bool bytes =
        op.kind == Op::Kind::kWrite || op.kind == Op::Kind::kRead || op.kind == Op::Kind::kNotify;
    const bool aligned = bytes || op.offset % sizeof(std::uint64_t) == 0;
    const bool atomic = op.kind == Op::Kind::kCompareAndSwap || op.kind == Op::Kind::kFetchAdd;
    if (op.offset > length_bytes_ || size > length_bytes_ - op.offset || !aligned ||
        (atomic && op.old_value == nullptr)) {
      return base::MakeError(absl::StatusCode::kInvalidArgument, "OUT_OF_BOUNDS",
                             std::string("operation ") + op.name + " at " +
                                 std::to_string(op.offset) + " of " + std::to_string(size) +
                                 " bytes does not fit a region of " +
                                 std::to_string(length_bytes_));
    }
    const bool reads = op.kind == Op::Kind::kRead || op.kind == Op::Kind::kReadWords;
    if (rights_ == Rights::kReadOnly && !reads) {
      return base::MakeError(
          absl::StatusCode::kInvalidArgument, "READ_ONLY",
          std::string("operation ") + op.name + " changes a region that is for reading only");
    }
    (reads ? traffic.bytes_read : traffic.bytes_written) += size;
  }
  return absl::OkStatus();
}

namespace {

// One thread counts, others only look: no read-modify-write is needed.
void Count(std::atomic<std::uint64_t>& counter, std::uint64_t more) {
  counter.store(counter.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
}

}  // namespace

absl::Status Channel::Execute(std::span<const Op> chain, base::MonotonicTime deadline) {
  Traffic traffic;
  ONEPIECE_RETURN_IF_ERROR(CheckChain(chain, traffic));
  // Break() of another thread stops the next chain. It does not interrupt the one under way.
  if (broken()) {
    return base::MakeError(absl::StatusCode::kUnavailable, "CHANNEL_BROKEN",
                           "the channel broke earlier");
  }
  absl::Status status = Run(chain, deadline);
  Count(chains_, 1);
  if (!status.ok()) {
    Break();
    Count(failures_, 1);
    return status;
  }
  // A failed chain counts no bytes, because nobody knows how much of it took effect.
  Count(operations_, chain.size());
  Count(bytes_written_, traffic.bytes_written);
  Count(bytes_read_, traffic.bytes_read);
  return status;
}

void Channel::CountPosted(std::uint64_t work_requests, std::uint64_t round_trips) {
  work_requests_.fetch_add(work_requests, std::memory_order_relaxed);
  round_trips_.fetch_add(round_trips, std::memory_order_relaxed);
}

ChannelCounters Channel::counters() const {
  return {.operations = operations_.load(std::memory_order_relaxed),
          .chains = chains_.load(std::memory_order_relaxed),
          .work_requests = work_requests_.load(std::memory_order_relaxed),
          .round_trips = round_trips_.load(std::memory_order_relaxed),
          .bytes_written = bytes_written_.load(std::memory_order_relaxed),
          .bytes_read = bytes_read_.load(std::memory_order_relaxed),
          .failures = failures_.load(std::memory_order_relaxed)};
}

}  // namespace onepiece::fabric
