// One-sided memory: a process registers a Region; a peer that wants to use it sends an Offer over
// the control plane, the region's owner accepts it and answers with a RemoteRegion, and from then
// on the peer's Channel writes, reads, compares-and-swaps and fetch-adds in it without any help of
// the owner.
//
// Promised by every backend: the operations of a chain take effect in order; one completion for the
// chain; a deadline; an error breaks the channel for good (the owner connects a new one with a new
// incarnation). Not promised: atomicity of plain reads and writes, not even of 8 bytes. Readers of
// memory that a peer may be writing check what they read (cluster/ring/layout.h does).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/base/clock.h"

namespace onepiece::fabric {

/// Names a process for the whole life of its host: a process id alone may be reused. A value type.
struct PeerIdentity {
  std::uint64_t host = 0;  ///< One boot of one host, and the process-id namespace in it.
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  ///< Clock ticks since boot, /proc/PID/stat field 22.
  friend bool operator==(const PeerIdentity&, const PeerIdentity&) = default;
};

/// Memory of another process, as one peer may use it. Travels as bytes on the control plane. A
/// value type.
struct RemoteRegion {
  std::string backend;             ///< "shm".
  std::string address;             ///< What the backend finds it by: the segment's name.
  std::uint64_t length_bytes = 0;  ///< Size of the memory that the peer may use.
  std::uint64_t key = 0;           ///< Without the right one the region is refused.
  std::string details;             ///< The backend's own, at most 4096 bytes.

  [[nodiscard]] std::string Serialize() const;
  /// Errors: INVALID_ARGUMENT with reason MALFORMED_REGION. Checks form and bounds, not existence.
  static absl::StatusOr<RemoteRegion> Parse(std::string_view bytes);
  friend bool operator==(const RemoteRegion&, const RemoteRegion&) = default;
};

/// What a process that wants to use a region tells the region's owner. Travels as bytes on the
/// control plane. A value type.
struct Offer {
  std::string backend;
  PeerIdentity peer;
  std::string details;  ///< The backend's own, at most 4096 bytes.

  [[nodiscard]] std::string Serialize() const;
  /// Errors: INVALID_ARGUMENT with reason MALFORMED_OFFER or, from a peer of another version,
  /// PROTOCOL_VERSION.
  static absl::StatusOr<Offer> Parse(std::string_view bytes);
  friend bool operator==(const Offer&, const Offer&) = default;
};

/// What a sleeping consumer is woken by; peers ring it with Op::Notify. One may serve many regions.
/// Thread-safe.
class Doorbell {
 public:
  virtual ~Doorbell() = default;
  /// How often it has been rung (wraps around). Read it *before* the last look at the memory.
  [[nodiscard]] virtual std::uint32_t count() const = 0;
  /// Sleeps until the count differs from `seen` or `limit` of real time passes; may wake early.
  virtual void Wait(std::uint32_t seen, base::Duration limit) = 0;
  /// Rings it from this process.
  virtual void Ring() = 0;
};

/// One peer's way into one region, held by the region's owner. Thread-safe.
///
/// Ownership: Destroying it ends the way as Revoke does, as far as the backend can. Does not
/// outlive its region.
class Access {
 public:
  virtual ~Access() = default;
  /// What the peer needs to connect.
  [[nodiscard]] virtual const RemoteRegion& remote() const = 0;
  [[nodiscard]] virtual const PeerIdentity& peer() const = 0;
  /// True once the peer's process is known to be dead (a process of another host never is). Never
  /// waits.
  [[nodiscard]] virtual bool PeerIsDead() const = 0;
  /// The fence. True: from now on nothing of this peer takes effect in the region. False: the
  /// backend cannot promise that (shm, while the peer lives). Idempotent; bounded, milliseconds.
  [[nodiscard]] virtual bool Revoke() = 0;
};

/// Registered memory of this process. Zeroed at first. Its pages are present: touching them never
/// fails or faults in from disk.
///
/// Ownership: Destruction retires it: peers' channels break, the name disappears. Peers' late
/// writes land in memory that nobody reads.
/// Threading: Thread-safe; the bytes are the caller's business (LoadWord, StoreWord for shared
/// words).
class Region {
 public:
  virtual ~Region() = default;
  [[nodiscard]] virtual std::span<std::byte> bytes() = 0;
  /// Lets a peer in.
  /// Errors: INVALID_ARGUMENT (WRONG_FABRIC, of another backend, cluster or host; MALFORMED_OFFER),
  /// RESOURCE_EXHAUSTED, UNAVAILABLE (PEER_GONE, PEER_UNREACHABLE), INTERNAL.
  virtual absl::StatusOr<std::unique_ptr<Access>> Accept(const Offer& offer) = 0;
};

/// One operation of a chain. Offsets are bytes from the region's start. What the spans and pointers
/// refer to must live until Execute returns.
struct Op {
  enum class Kind : std::uint8_t {
    kWrite,           ///< Payload: the pieces, one after the other.
    kWriteWords,      ///< Control words that the peer may be reading; in address order, the last
                      ///< one visible last.
    kRead,            ///< Payload that nobody is writing.
    kReadWords,       ///< Control words that somebody may be writing.
    kCompareAndSwap,  ///< On an aligned word: `value` if it was `compare`; `*old_value` is what was
                      ///< there.
    kFetchAdd,        ///< On an aligned word: adds `value`; `*old_value` is what was there.
    kNotify,          ///< Rings the region's doorbell, if it has one.
  };
  using Pieces = std::span<const std::span<const std::byte>>;

  Kind kind = Kind::kNotify;
  const char* name = "";  ///< Static text, what the fault decorator and logs call this step.
  std::uint64_t offset = 0;
  Pieces pieces;
  std::span<const std::uint64_t> words;
  std::span<std::byte> into;
  std::span<std::uint64_t> words_into;
  std::uint64_t compare = 0;
  std::uint64_t value = 0;
  std::uint64_t* old_value = nullptr;

  static Op Write(const char* name, std::uint64_t offset, Pieces pieces);
  static Op WriteWords(const char* name, std::uint64_t offset,
                       std::span<const std::uint64_t> words);
  static Op Read(const char* name, std::uint64_t offset, std::span<std::byte> into);
  static Op ReadWords(const char* name, std::uint64_t offset, std::span<std::uint64_t> into);
  static Op CompareAndSwap(const char* name, std::uint64_t offset, std::uint64_t compare,
                           std::uint64_t value, std::uint64_t* old_value);
  static Op FetchAdd(const char* name, std::uint64_t offset, std::uint64_t value,
                     std::uint64_t* old_value);
  static Op Notify(const char* name);

  /// Bytes that the operation moves (8 for an atomic one).
  [[nodiscard]] std::uint64_t size_bytes() const;
};

/// What a channel has done; every number only grows.
struct ChannelCounters {
  std::uint64_t operations = 0;
  std::uint64_t chains = 0;
  std::uint64_t work_requests = 0;  ///< What the backend posted for the operations.
  std::uint64_t round_trips = 0;    ///< How often it waited for the peer's device or memory.
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t failures = 0;
};

/// A connection to one remote region.
///
/// Threading: Execute: one thread at a time. broken(), Break() and counters(): any thread.
/// Blocking: Execute returns by its deadline (measured between operations on shm; elsewhere also
/// once as much time as was left has really passed, whatever the clock says).
class Channel {
 public:
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Executes `chain` in order, with one completion. On an error a prefix of it has taken effect,
  /// the last operation of which perhaps in part.
  /// Errors: INVALID_ARGUMENT (OUT_OF_BOUNDS, nothing was done, the channel stays usable);
  /// everything else breaks the channel: DEADLINE_EXCEEDED, UNAVAILABLE (CHANNEL_BROKEN, PEER_GONE,
  /// REGION_RETIRED).
  absl::Status Execute(std::span<const Op> chain, base::MonotonicTime deadline);
  [[nodiscard]] bool broken() const { return broken_.load(); }
  void Break() { broken_.store(true); }
  [[nodiscard]] ChannelCounters counters() const;
  [[nodiscard]] std::uint64_t length_bytes() const { return length_bytes_; }

 protected:
  explicit Channel(std::uint64_t length_bytes) : length_bytes_(length_bytes) {}
  /// Run tells what it has posted, and how often it waited, also when it fails.
  void CountPosted(std::uint64_t work_requests, std::uint64_t round_trips);
  /// Does the work. `chain` has been checked against the region's bounds.
  virtual absl::Status Run(std::span<const Op> chain, base::MonotonicTime deadline) = 0;

 private:
  struct Traffic {
    std::uint64_t bytes_written = 0;
    std::uint64_t bytes_read = 0;
  };
  absl::Status CheckBounds(std::span<const Op> chain, Traffic& traffic) const;

  const std::uint64_t length_bytes_;
  std::atomic<bool> broken_{false};
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<std::uint64_t> chains_{0};
  std::atomic<std::uint64_t> work_requests_{0};
  std::atomic<std::uint64_t> round_trips_{0};
  std::atomic<std::uint64_t> bytes_written_{0};
  std::atomic<std::uint64_t> bytes_read_{0};
  std::atomic<std::uint64_t> failures_{0};
};

/// This process's end of a connection that is being made.
class Dialer {
 public:
  virtual ~Dialer() = default;
  /// For the region's owner.
  [[nodiscard]] virtual const Offer& offer() const = 0;
  /// Completes the connection with the owner's answer to the offer. At most once. The channel may
  /// outlive the dialer.
  /// Errors: UNAVAILABLE (PEER_GONE, REGION_RETIRED), INVALID_ARGUMENT (of another cluster or
  /// backend, wrong length or key), DEADLINE_EXCEEDED.
  virtual absl::StatusOr<std::unique_ptr<Channel>> Connect(const RemoteRegion& remote) = 0;
};

/// A backend, opened once by each process. Thread-safe. Outlives what it made.
class Fabric {
 public:
  virtual ~Fabric() = default;
  /// "shm://CLUSTER-ID" (letters, digits, '-', '_', at most 64), "verbs://DEVICE[:PORT][/gid=N]"
  /// (where "verbs://" takes the first active device), "ucx://INTERFACE[,INTERFACE…]" (where
  /// "ucx://" takes all network interfaces). Deadlines are times of `clock`.
  /// Errors: INVALID_ARGUMENT (BAD_FABRIC_URI), UNIMPLEMENTED (FABRIC_NOT_BUILT), and the backend's
  /// own.
  static absl::StatusOr<std::unique_ptr<Fabric>> Open(std::string_view uri,
                                                      base::Clock& clock = base::SystemClock());

  /// The deadlines of this fabric's channels are times of this clock.
  [[nodiscard]] virtual base::Clock& clock() const = 0;
  /// Errors: as Register.
  virtual absl::StatusOr<std::shared_ptr<Doorbell>> MakeDoorbell(std::string_view label) = 0;
  /// Registers `length_bytes` of fresh memory. `label` (letters, digits, '-', '_') becomes part of
  /// its name. Peers' Notify rings `doorbell`, which may be null.
  /// Errors: RESOURCE_EXHAUSTED (SHARED_MEMORY_FULL, NO_MEMORY, MEMLOCK_LIMIT), INVALID_ARGUMENT,
  /// INTERNAL.
  virtual absl::StatusOr<std::unique_ptr<Region>> Register(
      std::uint64_t length_bytes, std::string_view label,
      std::shared_ptr<Doorbell> doorbell = nullptr) = 0;
  /// Starts a connection to a region of a peer or of our own.
  /// Errors: RESOURCE_EXHAUSTED, INTERNAL.
  virtual absl::StatusOr<std::unique_ptr<Dialer>> Dial() = 0;
};

/// A connection to a region of this process, with its own access.
struct Loopback {
  std::unique_ptr<Access> access;
  std::unique_ptr<Channel> channel;
};
/// Errors: those of Dial, Accept and Connect.
absl::StatusOr<Loopback> ConnectLoopback(Fabric& fabric, Region& region);

/// Removes the shared memory segments of `cluster_id` whose owners are dead, and returns how many.
absl::StatusOr<int> UnlinkStale(std::string_view cluster_id);

/// Access to words that other processes access too. REQUIRES: 8-byte aligned.
///
/// A line of words is written with its check in the last word: StoreWords stores that one last and
/// sequentially consistent, LoadWords loads it first. So whoever sees the check sees every word
/// that was stored before it, and of two processes that each store a line and then load the
/// other's, at least one sees the other's.
inline std::uint64_t LoadWord(const std::byte* at) {
  auto* word = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(at));
  return std::atomic_ref<std::uint64_t>(*word).load();
}
inline void StoreWord(std::byte* at, std::uint64_t value,
                      std::memory_order order = std::memory_order_seq_cst) {
  std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at)).store(value, order);
}
inline void LoadWords(const std::byte* at, std::span<std::uint64_t> into) {
  for (std::size_t i = into.size(); i-- > 0;) into[i] = LoadWord(at + 8 * i);
}
/// `last` is release where a sequentially consistent operation of this thread follows at once.
inline void StoreWords(std::byte* at, std::span<const std::uint64_t> words,
                       std::memory_order last = std::memory_order_seq_cst) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    StoreWord(at + 8 * i, words[i], std::memory_order_release);
  }
  if (!words.empty()) StoreWord(at + 8 * (words.size() - 1), words.back(), last);
}

}  // namespace onepiece::fabric
