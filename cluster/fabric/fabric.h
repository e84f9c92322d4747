// One-sided memory (docs/fabric.md). A process registers a Region. A peer that wants to use it
// sends an Offer over the control plane; the region's owner accepts it and answers with a
// RemoteRegion. From then on the peer's Channel writes, reads, compares-and-swaps and fetch-adds in
// the region, and the owner's processor takes no part.
//
// Every backend promises: the operations of a chain take effect in order; the chain has one
// completion and a deadline; an error breaks the channel for good, and its user connects a new one.
// No backend promises that plain reads and writes are atomic, not even those of 8 bytes. So a
// reader of memory that a peer may be writing checks what it reads (cluster/ring/layout.h does).
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

/// Names a process for the whole life of its host, where a process id alone may be reused. A value
/// type.
struct PeerIdentity {
  std::uint64_t host = 0;  ///< One boot of one host, and the process-id namespace in it.
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  ///< Clock ticks since boot, /proc/PID/stat field 22.
  friend bool operator==(const PeerIdentity&, const PeerIdentity&) = default;
};

/// What a peer may do in a region.
enum class Rights : std::uint8_t {
  kReadWrite = 0,
  kReadOnly = 1,  ///< It reads. It neither writes nor swaps nor adds, and it rings no doorbell.
};

/// How the frames of a fabric that sends frames (ucx) are protected on their way. The numbers are
/// those of onepiece.v1.FrameProtection.
enum class FrameProtection : std::uint8_t {
  kDefault = 0,  ///< kNone where the fabric uses loopback interfaces alone, else kMac.
  kNone = 1,     ///< Connections are authenticated, frames are not.
  kMac = 2,      ///< Each frame carries a message authentication code.
  kAead = 3,     ///< Each frame is encrypted and authenticated.
};

/// Memory of another process, as one peer may use it. Travels on the control plane, and holds
/// secrets: whoever has it can connect in the peer's place. A value type.
struct RemoteRegion {
  std::string backend;             ///< "shm".
  std::string address;             ///< By which the backend finds it: the segment's name.
  std::uint64_t length_bytes = 0;  ///< The size of the memory that the peer may use.
  std::uint64_t key = 0;           ///< The owner refuses a peer with another key.
  std::string details;             ///< For the backend alone, at most 4096 bytes.
  /// What the owner lets the peer do. The owner's end enforces it where it can (docs/fabric.md).
  Rights rights = Rights::kReadWrite;

  [[nodiscard]] std::string Serialize() const;
  /// Checks the form and the bounds, not whether the region exists.
  ///
  /// Errors: INVALID_ARGUMENT (MALFORMED_REGION).
  static absl::StatusOr<RemoteRegion> Parse(std::string_view bytes);
  friend bool operator==(const RemoteRegion&, const RemoteRegion&) = default;
};

/// Sent to a region's owner by a process that wants to use the region. Travels on the control
/// plane, and holds secrets. A value type.
struct Offer {
  std::string backend;
  PeerIdentity peer;
  std::string details;  ///< For the backend alone, at most 4096 bytes.

  [[nodiscard]] std::string Serialize() const;
  /// Errors: INVALID_ARGUMENT (MALFORMED_OFFER; PROTOCOL_VERSION from a peer of another version).
  static absl::StatusOr<Offer> Parse(std::string_view bytes);
  friend bool operator==(const Offer&, const Offer&) = default;
};

/// Wakes a sleeping consumer. Peers ring it with Op::Notify. One doorbell may serve many regions.
///
/// Threading: thread-safe.
class Doorbell {
 public:
  virtual ~Doorbell() = default;
  /// How often it has been rung; wraps around. Read it *before* the last look at the memory.
  [[nodiscard]] virtual std::uint32_t count() const = 0;
  /// Sleeps until the count differs from `seen` or `limit` of real time passes; may wake early.
  virtual void Wait(std::uint32_t seen, base::Duration limit) = 0;
  /// Rings it from this process.
  virtual void Ring() = 0;
};

/// One peer's way into one region, held by the region's owner.
///
/// Ownership: its destructor ends the way as Revoke does, as far as the backend can. It must not
/// outlive its region.
///
/// Threading: thread-safe.
class Access {
 public:
  virtual ~Access() = default;
  /// The peer connects with this.
  [[nodiscard]] virtual const RemoteRegion& remote() const = 0;
  [[nodiscard]] virtual const PeerIdentity& peer() const = 0;
  /// True once the peer's process is known to be dead. A process of another host never is. Never
  /// waits.
  [[nodiscard]] virtual bool PeerIsDead() const = 0;
  /// The fence. Returns true when from now on no operation of this peer takes effect in the region,
  /// and false when the backend cannot promise that (shm, while the peer lives). Idempotent.
  ///
  /// Blocking: bounded, some milliseconds; up to 70 ms on verbs.
  [[nodiscard]] virtual bool Revoke() = 0;
};

/// Registered memory of this process. It starts as zeros. Its pages are present, so touching them
/// never fails and never reads from disk.
///
/// Ownership: its destructor retires it. The peers' channels break and the name disappears; the
/// peers' late writes land in memory that nobody reads.
///
/// Threading: thread-safe. The caller synchronises access to the bytes (LoadWord and StoreWord for
/// words that others use too).
class Region {
 public:
  virtual ~Region() = default;
  [[nodiscard]] virtual std::span<std::byte> bytes() = 0;
  /// Lets a peer in that may do what `rights` say.
  ///
  /// Errors: INVALID_ARGUMENT (WRONG_FABRIC: the offer is of another backend, cluster or host;
  /// PROTECTION_DIFFERS: the peer protects its frames in another way; MALFORMED_OFFER),
  /// RESOURCE_EXHAUSTED, UNAVAILABLE (PEER_GONE, PEER_UNREACHABLE), INTERNAL.
  virtual absl::StatusOr<std::unique_ptr<Access>> Accept(const Offer& offer, Rights rights) = 0;
  absl::StatusOr<std::unique_ptr<Access>> Accept(const Offer& offer) {
    return Accept(offer, Rights::kReadWrite);
  }
};

/// One operation of a chain. Offsets are bytes from the region's start. The memory to which the
/// spans and pointers refer must live until Execute returns.
struct Op {
  enum class Kind : std::uint8_t {
    kWrite,           ///< Payload: the pieces, one after the other.
    kWriteWords,      ///< Control words that the peer may be reading. They become visible in the
                      ///< order of their addresses.
    kRead,            ///< Payload that nobody is writing.
    kReadWords,       ///< Control words that somebody may be writing.
    kCompareAndSwap,  ///< Sets an aligned word to `value` if it is `compare`. `*old_value` becomes
                      ///< the word's former value.
    kFetchAdd,        ///< Adds `value` to an aligned word. `*old_value` becomes its former value.
    kNotify,          ///< Rings the region's doorbell, if it has one.
  };
  using Pieces = std::span<const std::span<const std::byte>>;

  Kind kind = Kind::kNotify;
  const char* name = "";  ///< Static text by which faults and logs name this step.
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

  /// The bytes that the operation moves; 8 for an atomic one.
  [[nodiscard]] std::uint64_t size_bytes() const;
};

/// What a channel has done. The numbers only grow.
struct ChannelCounters {
  std::uint64_t operations = 0;
  std::uint64_t chains = 0;
  std::uint64_t work_requests = 0;  ///< Requests that the backend posted for the operations.
  std::uint64_t round_trips = 0;    ///< Waits for the peer's device or memory.
  std::uint64_t bytes_written = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t failures = 0;
};

/// A connection to one remote region.
///
/// Threading: one thread at a time calls Execute; any thread calls broken(), Break() and
/// counters().
///
/// Blocking: Execute returns by its deadline, which shm checks between operations. The other
/// backends also return once as much real time has passed as was left until then, whatever the
/// clock says.
class Channel {
 public:
  virtual ~Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Executes `chain` in order, with one completion. After an error a prefix of the chain has taken
  /// effect, and the last operation of the prefix perhaps only in part.
  ///
  /// Errors: INVALID_ARGUMENT (OUT_OF_BOUNDS, READ_ONLY): nothing was done and the channel stays
  /// usable. All others break the channel: DEADLINE_EXCEEDED, UNAVAILABLE (CHANNEL_BROKEN,
  /// PEER_GONE, REGION_RETIRED).
  absl::Status Execute(std::span<const Op> chain, base::MonotonicTime deadline);
  [[nodiscard]] bool broken() const { return broken_.load(); }
  void Break() { broken_.store(true); }
  [[nodiscard]] ChannelCounters counters() const;
  [[nodiscard]] std::uint64_t length_bytes() const { return length_bytes_; }
  [[nodiscard]] Rights rights() const { return rights_; }

 protected:
  explicit Channel(std::uint64_t length_bytes, Rights rights = Rights::kReadWrite)
      : length_bytes_(length_bytes), rights_(rights) {}
  /// Run calls it with the number of its requests and of its waits, also when it fails.
  void CountPosted(std::uint64_t work_requests, std::uint64_t round_trips);
  /// Executes `chain`, which is inside the region's bounds.
  virtual absl::Status Run(std::span<const Op> chain, base::MonotonicTime deadline) = 0;

 private:
  struct Traffic {
    std::uint64_t bytes_written = 0;
    std::uint64_t bytes_read = 0;
  };
  absl::Status CheckChain(std::span<const Op> chain, Traffic& traffic) const;

  const std::uint64_t length_bytes_;
  const Rights rights_;
  std::atomic<bool> broken_{false};
  std::atomic<std::uint64_t> operations_{0};
  std::atomic<std::uint64_t> chains_{0};
  std::atomic<std::uint64_t> work_requests_{0};
  std::atomic<std::uint64_t> round_trips_{0};
  std::atomic<std::uint64_t> bytes_written_{0};
  std::atomic<std::uint64_t> bytes_read_{0};
  std::atomic<std::uint64_t> failures_{0};
};

/// This process's end of a connection in the making.
class Dialer {
 public:
  virtual ~Dialer() = default;
  /// For the region's owner.
  [[nodiscard]] virtual const Offer& offer() const = 0;
  /// Completes the connection with the owner's answer to the offer. Call it at most once. The
  /// channel may outlive the dialer.
  ///
  /// Errors: UNAVAILABLE (PEER_GONE, REGION_RETIRED), INVALID_ARGUMENT (another cluster or backend,
  /// a wrong length or key), DEADLINE_EXCEEDED.
  virtual absl::StatusOr<std::unique_ptr<Channel>> Connect(const RemoteRegion& remote) = 0;
};

struct FabricOptions {
  FrameProtection protection = FrameProtection::kDefault;
};

/// A backend. Each process opens one.
///
/// Ownership: it must outlive everything that it made.
///
/// Threading: thread-safe.
class Fabric {
 public:
  virtual ~Fabric() = default;
  /// Opens the backend that `uri` names:
  /// "shm://CLUSTER-ID" (at most 64 letters, digits, '-' and '_');
  /// "verbs://DEVICE[:PORT][/gid=N]" ("verbs://" alone takes the first active device);
  /// "ucx://INTERFACE[,INTERFACE…]" ("ucx://" alone takes all network interfaces).
  /// Deadlines are times of `clock`.
  ///
  /// Errors: INVALID_ARGUMENT (BAD_FABRIC_URI, BAD_PROTECTION), UNIMPLEMENTED (FABRIC_NOT_BUILT),
  /// and the backend's own.
  static absl::StatusOr<std::unique_ptr<Fabric>> Open(std::string_view uri,
                                                      base::Clock& clock = base::SystemClock(),
                                                      const FabricOptions& options = {});

  /// The deadlines of this fabric's channels are times of this clock.
  [[nodiscard]] virtual base::Clock& clock() const = 0;
  /// Errors: as Register.
  virtual absl::StatusOr<std::shared_ptr<Doorbell>> MakeDoorbell(std::string_view label) = 0;
  /// Registers `length_bytes` of fresh memory. `label` (letters, digits, '-', '_') becomes part of
  /// its name. A peer's Notify rings `doorbell`, which may be null.
  ///
  /// Errors: RESOURCE_EXHAUSTED (SHARED_MEMORY_FULL, NO_MEMORY, MEMLOCK_LIMIT), INVALID_ARGUMENT,
  /// INTERNAL.
  virtual absl::StatusOr<std::unique_ptr<Region>> Register(
      std::uint64_t length_bytes, std::string_view label,
      std::shared_ptr<Doorbell> doorbell = nullptr) = 0;
  /// Starts a connection to a region of a peer or of this process.
  ///
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

/// Access to words that other processes access too. REQUIRES: `at` is 8-byte aligned.
///
/// A line of words has its check in the last word. StoreWords stores that word last, with
/// sequential consistency, and LoadWords loads it first. So a reader that sees the check sees every
/// word stored before it. When two processes each store a line and then load the other's, at least
/// one of them sees the other's line.
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
/// `last` may be release where a sequentially consistent operation of this thread follows at once.
inline void StoreWords(std::byte* at, std::span<const std::uint64_t> words,
                       std::memory_order last = std::memory_order_seq_cst) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    StoreWord(at + 8 * i, words[i], std::memory_order_release);
  }
  if (!words.empty()) StoreWord(at + 8 * (words.size() - 1), words.back(), last);
}

}  // namespace onepiece::fabric
