#include "cluster/values/remote_values.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/escaping.h"
#include "cluster/base/crc32c.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "google/protobuf/util/time_util.h"
#include "onepiece/v1/database.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace onepiece::values {
namespace {

constexpr std::uint32_t kIndex = 0;
/// How often a get retries for a value that moves. After that the caller asks for it by message.
constexpr int kTries = 4;
/// A value that is larger than one of these parts of a segment has the segment to itself (slabs.h).
constexpr std::uint64_t kSharedSegmentParts = 4;
constexpr base::Duration kIdle = std::chrono::seconds(10);
constexpr base::Duration kSweep = std::chrono::seconds(2);
/// Reservations that the database does not know to be given up yet. Beyond these the oldest are
/// left to expire there.
constexpr std::size_t kMaxAbandoned = 1024;
constexpr std::array<std::byte, message::kArtifactAlignBytes> kZeros{};

using Stub = v1::DatabaseService::Stub;

absl::Status TooLate() {
  return base::MakeError(absl::StatusCode::kDeadlineExceeded, "VALUE_TIMEOUT",
                         "the deadline passed before the database's memory was reached");
}

absl::Status NotIndexed() {
  return base::MakeError(absl::StatusCode::kNotFound, "NOT_INDEXED",
                         "the database does not have the value in registered memory");
}

// Errors that a caller need not tell apart become UNAVAILABLE.
absl::Status AsUnavailable(const absl::Status& status) {
  if (status.ok() || absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)) return status;
  const base::ErrorReason reason = base::GetReason(status);
  return base::MakeError(absl::StatusCode::kUnavailable, reason.reason, base::Message(status),
                         reason.metadata);
}

// The artifacts' bytes as they lie in a reservation, with their checksum.
struct Gathered {
  std::vector<std::span<const std::byte>> pieces;
  std::uint64_t length = 0;
  std::uint32_t crc32c = 0;

  explicit Gathered(const message::Message& message) {
    for (const message::Artifact& artifact : message.artifacts) {
      const std::uint64_t gap = (kZeros.size() - length % kZeros.size()) % kZeros.size();
      Add(std::span(kZeros).first(gap));
      Add(artifact.data.bytes());
    }
  }
  void Add(std::span<const std::byte> bytes) {
    crc32c = base::ExtendCrc32c(crc32c, bytes);
    length += bytes.size();
    pieces.push_back(bytes);
  }
};

v1::ReserveResultRequest RequestFor(const message::Message& message, const std::string& node_id,
                                    base::MonotonicTime now) {
  v1::ReserveResultRequest request;
  request.set_uid(message.header.uid.ToString());
  request.set_app_id(message.header.app);
  request.set_run(message.header.run);
  using google::protobuf::util::TimeUtil;
  *request.mutable_create_time() =
      TimeUtil::NanosecondsToTimestamp(message.header.ingress_time.time_since_epoch().count());
  *request.mutable_time_left() =
      TimeUtil::NanosecondsToDuration((message.header.deadline - now).count());
  request.set_sender(node_id);
  request.set_replica(message.header.kind == message::Kind::kReplica);
  for (const message::Artifact& artifact : message.artifacts) {
    v1::ResultArtifact& info = *request.add_artifacts();
    info.set_artifact(artifact.name);
    info.set_media_type(artifact.media_type);
    info.set_size_bytes(static_cast<std::int64_t>(artifact.data.size()));
    info.set_sha256(absl::BytesToHexString(base::AbslView(artifact.sha256)));
  }
  return request;
}

std::uint64_t TotalBytes(const message::Message& message) {
  std::uint64_t total = 0;
  for (const message::Artifact& artifact : message.artifacts) total += artifact.data.size();
  return total;
}

bool IsWhole(const message::Message& message) {
  return message.header.kind != message::Kind::kWork &&
         std::ranges::all_of(message.artifacts, [](const message::Artifact& artifact) {
           return artifact.dtype == message::DType::kBytes && !artifact.sha256.empty();
         });
}

class RemoteValuesImpl final : public RemoteValues {
 public:
  RemoteValuesImpl(fabric::Fabric& fabric, RemoteValuesOptions options, base::Clock& clock)
      : fabric_(fabric),
        options_(std::move(options)),
        clock_(clock),
        stub_(rpc::MakeChannel(options_.address)),
        sweeper_([this](const std::stop_token& stop) { Sweep(stop); }) {}

  ~RemoteValuesImpl() override {
    sweeper_.request_stop();
    sweeper_.join();
    TellAbandoned();
  }

  absl::StatusOr<message::Buffer> Get(const ValueKey& key, base::MonotonicTime deadline) override;
  absl::StatusOr<bool> Put(const message::Message& message, base::MonotonicTime deadline) override;

 private:
  struct Connection {
    base::TimedMutex mutex;  // Held while the channel is made and used.
    std::unique_ptr<fabric::Channel> channel ABSL_GUARDED_BY(mutex);
  };
  struct Kept {
    std::shared_ptr<Connection> connection;
    base::MonotonicTime used{};
  };
  using Use = std::function<absl::Status(fabric::Channel&)>;

  absl::Status With(std::uint32_t segment, std::uint64_t bytes, fabric::Rights rights,
                    base::MonotonicTime deadline, const Use& use);
  absl::Status Connect(std::uint32_t segment, base::MonotonicTime deadline, Connection& connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(connection.mutex);
  std::shared_ptr<Connection> Find(std::uint32_t segment);
  void Drop(std::uint32_t segment, const std::shared_ptr<Connection>& connection);
  absl::StatusOr<std::optional<ValueEntry>> LookUp(const ValueKey& key,
                                                   base::MonotonicTime deadline);
  absl::StatusOr<message::Buffer> Read(const ValueEntry& entry, base::MonotonicTime deadline);
  void Abandon(std::uint64_t reservation);
  void Sweep(const std::stop_token& stop);
  void CloseIdle();
  void TellAbandoned();

  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request, base::MonotonicTime deadline) {
    const base::Duration left = deadline - clock_.Now();
    if (left <= base::Duration::zero()) return TooLate();
    const auto unscaled =
        std::chrono::duration_cast<base::Duration>(std::chrono::duration<double, std::nano>(
            static_cast<double>(left.count()) / base::TimeScale()));
    auto response = rpc::Call(stub_, method, request, std::min(options_.call_timeout, unscaled));
    // A database that is silent for call_timeout is away, however long the caller would wait.
    if (absl::IsDeadlineExceeded(response.status()) && clock_.Now() < deadline) {
      return base::MakeError(absl::StatusCode::kUnavailable, "NO_ANSWER",
                             "the database does not answer");
    }
    return response;
  }

  fabric::Fabric& fabric_;
  const RemoteValuesOptions options_;
  base::Clock& clock_;
  Stub stub_;
  base::Mutex mutex_;
  std::map<std::uint32_t, Kept> connections_ ABSL_GUARDED_BY(mutex_);
  base::CondVar abandoned_changed_;
  bool abandoned_more_ ABSL_GUARDED_BY(mutex_) = false;  // Since the sweeper last looked.
  std::deque<std::uint64_t> abandoned_ ABSL_GUARDED_BY(mutex_);
  std::jthread sweeper_;  // The last member, so that it stops before the others are destroyed.
};

std::shared_ptr<RemoteValuesImpl::Connection> RemoteValuesImpl::Find(std::uint32_t segment) {
  const base::MutexLock lock(mutex_);
  Kept& kept = connections_[segment];
  if (kept.connection == nullptr) kept.connection = std::make_shared<Connection>();
  kept.used = clock_.Now();
  return kept.connection;
}

void RemoteValuesImpl::Drop(std::uint32_t segment, const std::shared_ptr<Connection>& connection) {
  const base::MutexLock lock(mutex_);
  const auto found = connections_.find(segment);
  if (found != connections_.end() && found->second.connection == connection)
    connections_.erase(found);
}

// Takes a turn at the segment, for a value of `bytes` bytes. Who may write reads through the same
// connection. It does not retry after the connection
// breaks, because the value may have gone with the segment.
absl::Status RemoteValuesImpl::With(std::uint32_t segment, std::uint64_t bytes,
                                    fabric::Rights rights, base::MonotonicTime deadline,
                                    const Use& use) {
  const std::shared_ptr<Connection> connection = Find(segment);
  // `deadline` is a time of clock_, but the mutex waits by the system's clock.
  const base::Duration left = std::max(deadline - clock_.Now(), base::Duration::zero());
  if (!connection->mutex.TryLockUntil(base::SystemClock().Now() + left)) return TooLate();
  const base::TimedMutexRelease release(connection->mutex);
  absl::Status status;
  if (connection->channel == nullptr || connection->channel->broken() ||
      (rights == fabric::Rights::kReadWrite &&
       connection->channel->rights() == fabric::Rights::kReadOnly)) {
    status = Connect(segment, deadline, *connection);
  }
  if (status.ok()) status = use(*connection->channel);
  const fabric::Channel* channel = connection->channel.get();
  // A value with a segment of its own is rarely read twice.
  if (channel == nullptr || channel->broken() ||
      bytes > channel->length_bytes() / kSharedSegmentParts) {
    Drop(segment, connection);
  }
  return status;
}

absl::Status RemoteValuesImpl::Connect(std::uint32_t segment, base::MonotonicTime deadline,
                                       Connection& connection) {
  connection.channel.reset();
  ONEPIECE_ASSIGN_OR_RETURN(const auto dialer, fabric_.Dial());
  v1::OpenSegmentRequest request;
  request.set_node_id(options_.node_id);
  request.set_segment(segment);
  request.set_offer(dialer->offer().Serialize());
  ONEPIECE_ASSIGN_OR_RETURN(const v1::OpenSegmentResponse response,
                            Call(&Stub::OpenSegment, request, deadline));
  ONEPIECE_ASSIGN_OR_RETURN(const auto remote, fabric::RemoteRegion::Parse(response.region()));
  ONEPIECE_ASSIGN_OR_RETURN(connection.channel, dialer->Connect(remote));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ValueEntry>> RemoteValuesImpl::LookUp(const ValueKey& key,
                                                                   base::MonotonicTime deadline) {
  std::array<std::uint64_t, kBucketBytes / 8> bucket{};
  std::optional<ValueEntry> entry;
  const Use read = [&](fabric::Channel& channel) {
    const std::array chain = {fabric::Op::ReadWords(
        "read the bucket", BucketOffset(key, channel.length_bytes()), bucket)};
    // A line that is being written looks absent, and is whole a moment later.
    absl::Status status;
    for (int i = 0; i < 2 && status.ok() && !entry.has_value(); ++i) {
      status = channel.Execute(chain, deadline);
      if (status.ok()) entry = FindInBucket(key, bucket);
    }
    return status;
  };
  ONEPIECE_RETURN_IF_ERROR(With(kIndex, 0, fabric::Rights::kReadOnly, deadline, read));
  return entry;
}

// Returns NOT_FOUND when other bytes are there by now.
absl::StatusOr<message::Buffer> RemoteValuesImpl::Read(const ValueEntry& entry,
                                                       base::MonotonicTime deadline) {
  const Place& place = entry.place;
  message::Buffer value;
  const Use read = [&](fabric::Channel& channel) {
    const std::uint64_t size = channel.length_bytes();
    if (place.offset > size || place.length > size - place.offset) return NotIndexed();
    const auto memory = message::AllocateAligned(place.length);
    value = {memory, {memory.get(), place.length}};
    const std::array chain = {
        fabric::Op::Read("read the value", place.offset, {memory.get(), place.length})};
    return channel.Execute(chain, deadline);
  };
  ONEPIECE_RETURN_IF_ERROR(
      With(place.segment, place.length, fabric::Rights::kReadOnly, deadline, read));
  if (base::Crc32c(value.bytes()) != entry.crc32c) return NotIndexed();
  return value;
}

absl::StatusOr<message::Buffer> RemoteValuesImpl::Get(const ValueKey& key,
                                                      base::MonotonicTime deadline) {
  absl::Status last = NotIndexed();
  for (int i = 0; i < kTries; ++i) {
    if (clock_.Now() >= deadline) return TooLate();
    const auto entry = LookUp(key, deadline);
    if (!entry.ok()) {
      last = AsUnavailable(entry.status());
      continue;
    }
    if (!entry->has_value()) return NotIndexed();
    auto value = Read(**entry, deadline);
    if (value.ok()) return value;
    last = absl::IsNotFound(value.status()) ? NotIndexed() : AsUnavailable(value.status());
  }
  return last;
}

absl::StatusOr<bool> RemoteValuesImpl::Put(const message::Message& message,
                                           base::MonotonicTime deadline) {
  if (!CanPut(message)) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_RESULT",
                           "only a result of bytes with SHA-256 is written so");
  }
  const auto reserved =
      Call(&Stub::ReserveResult, RequestFor(message, options_.node_id, clock_.Now()), deadline);
  if (absl::IsResourceExhausted(reserved.status()) || absl::IsInvalidArgument(reserved.status())) {
    return reserved.status();
  }
  if (!reserved.ok()) return AsUnavailable(reserved.status());
  if (reserved->reservation() == 0) return false;
  const Gathered gathered(message);
  absl::Status written = absl::OkStatus();
  if (gathered.length != reserved->length()) {
    written = base::MakeError(absl::StatusCode::kUnavailable, "BAD_RESERVATION",
                              "the database reserved another size");
  } else {
    written = With(reserved->segment(), gathered.length, fabric::Rights::kReadWrite, deadline,
                   [&](fabric::Channel& channel) {
                     const std::array chain = {
                         fabric::Op::Write("write the value", reserved->offset(), gathered.pieces)};
                     return channel.Execute(chain, deadline);
                   });
  }
  if (!written.ok()) {
    Abandon(reserved->reservation());
    return AsUnavailable(written);
  }
  v1::CommitResultRequest commit;
  commit.set_reservation(reserved->reservation());
  commit.set_crc32c(gathered.crc32c);
  const auto committed = Call(&Stub::CommitResult, commit, deadline);
  if (committed.ok()) return committed->stored();
  // The reservation is gone: the database read the bytes, and found no room for them.
  if (absl::IsResourceExhausted(committed.status())) return committed.status();
  // The database may still have the reservation: the commit was lost, or came so late that the
  // room only waits for the writer to give it up.
  Abandon(reserved->reservation());
  return AsUnavailable(committed.status());
}

// Frees the room at once, instead of when the reservation expires. The sweeper tells the database,
// so that the caller does not wait for a database that is away.
void RemoteValuesImpl::Abandon(std::uint64_t reservation) {
  const base::MutexLock lock(mutex_);
  if (abandoned_.size() >= kMaxAbandoned) {
    spdlog::warn("op=abandon database={} reservation={} is left to expire", options_.address,
                 abandoned_.front());
    abandoned_.pop_front();
  }
  abandoned_.push_back(reservation);
  abandoned_more_ = true;
  abandoned_changed_.NotifyAll();
}

void RemoteValuesImpl::Sweep(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      base::MutexLock lock(mutex_);
      clock_.WaitUntil(abandoned_changed_, lock, stop, clock_.Now() + base::Scaled(kSweep),
                       [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return abandoned_more_; });
      abandoned_more_ = false;
    }
    CloseIdle();
    TellAbandoned();
  }
}

void RemoteValuesImpl::CloseIdle() {
  std::vector<std::shared_ptr<Connection>> idle;  // Closed without the lock.
  const base::MutexLock lock(mutex_);
  for (auto it = connections_.begin(); it != connections_.end();) {
    const bool unused = it->first != kIndex && clock_.Now() - it->second.used > kIdle;
    if (unused) idle.push_back(std::move(it->second.connection));
    it = unused ? connections_.erase(it) : std::next(it);
  }
}

// Ends at the first call that fails: the database is away, and the rest waits for the next time. A
// slow database must not hold up the destructor, so there is a limit in time too.
void RemoteValuesImpl::TellAbandoned() {
  const base::MonotonicTime limit = clock_.Now() + base::Scaled(options_.call_timeout);
  v1::CommitResultRequest request;
  request.set_abandon(true);
  while (clock_.Now() < limit) {
    {
      const base::MutexLock lock(mutex_);
      if (abandoned_.empty()) return;
      request.set_reservation(abandoned_.front());
      abandoned_.pop_front();
    }
    const auto told = rpc::Call(stub_, &Stub::CommitResult, request, options_.call_timeout);
    if (told.ok() || absl::IsNotFound(told.status())) continue;
    const base::MutexLock lock(mutex_);
    abandoned_.push_back(request.reservation());
    return;
  }
}

}  // namespace

std::unique_ptr<RemoteValues> RemoteValues::Create(fabric::Fabric& fabric,
                                                   RemoteValuesOptions options,
                                                   base::Clock& clock) {
  return std::make_unique<RemoteValuesImpl>(fabric, std::move(options), clock);
}

bool CanPut(const message::Message& message) { return IsWhole(message) && TotalBytes(message) > 0; }

bool IsForPut(const message::Message& message) {
  return CanPut(message) && TotalBytes(message) >= kDirectBytes;
}

ValuePeers::ValuePeers(fabric::Fabric& fabric, std::string node_id, base::Clock& clock)
    : fabric_(fabric), node_id_(std::move(node_id)), clock_(clock) {}

std::shared_ptr<RemoteValues> ValuePeers::At(const std::string& address) {
  std::map<std::string, std::shared_ptr<RemoteValues>> gone;  // Destroyed without the lock.
  const base::MutexLock lock(mutex_);
  const auto found = peers_.find(address);
  if (found != peers_.end()) return found->second;
  if (peers_.size() >= kMaxPeers) gone.swap(peers_);
  return peers_[address] =
             RemoteValues::Create(fabric_, {.node_id = node_id_, .address = address}, clock_);
}

}  // namespace onepiece::values
