// The owner's side of a verbs region: its memory, and one access for each peer. "Window" means an
// RDMA memory window of type 2B (docs/fabric.md).
#pragma once

#include <memory>
#include <span>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/fabric/fabric.h"
#include "cluster/fabric/process.h"
#include "cluster/fabric/verbs/doorbell.h"
#include "cluster/fabric/verbs/memory.h"
#include "cluster/fabric/verbs/queue_pair.h"

namespace onepiece::fabric::verbs {

/// Offer::backend and RemoteRegion::backend.
constexpr char kBackend[] = "verbs";

/// The content of Offer::details. A value type.
struct OfferDetails {
  Endpoint endpoint;
  /// A random number that the dialer chooses. The owner returns it in RegionDetails. The dialer
  /// refuses a region that carries another number.
  std::uint64_t incarnation = 0;

  [[nodiscard]] std::string Serialize() const;
  /// Returns nullopt if the bytes are malformed or of another version.
  static std::optional<OfferDetails> Parse(std::string_view bytes);
};

/// The content of RemoteRegion::details. A value type.
struct RegionDetails {
  Endpoint endpoint;
  std::uint64_t incarnation = 0;  ///< Copied from the offer.
  std::uint64_t address = 0;      ///< Where the region begins, in the owner's address space.
  std::uint64_t length_bytes = 0;
  bool has_doorbell = false;

  [[nodiscard]] std::string Serialize() const;
  /// Returns nullopt if the bytes are malformed or of another version.
  static std::optional<RegionDetails> Parse(std::string_view bytes);
  /// Returns the text that RemoteRegion::address must hold: "GID/QUEUE-PAIR".
  [[nodiscard]] std::string AddressText() const;
};

/// The memory of a region. All accesses of the region share it.
struct RegionMemory {
  std::unique_ptr<Pages> pages;
  /// Each peer's window is bound to this registration. It grants no remote access by itself. Null
  /// on a device without windows; each access then registers the pages for its peer.
  Handle<ibv_mr> registration;
};

/// The owner's end of one peer's connection. Its key is valid on this connection only.
///
/// Ownership: shares the device, the memory and the doorbell.
///
/// Blocking: Create() waits up to 1 s for the device. Revoke() and the destructor wait up to some
/// tens of milliseconds.
class VerbsAccess final : public Access {
 public:
  /// Errors: those of Region::Accept. `doorbell` may be null. A peer that may only read has a key
  /// and a queue pair without any right to write, and no way to the doorbell.
  static absl::StatusOr<std::unique_ptr<Access>> Create(std::shared_ptr<Device> device,
                                                        std::shared_ptr<RegionMemory> memory,
                                                        std::shared_ptr<VerbsDoorbell> doorbell,
                                                        const Offer& offer, Rights rights);
  ~VerbsAccess() override;
  VerbsAccess(const VerbsAccess&) = delete;
  VerbsAccess& operator=(const VerbsAccess&) = delete;
  const RemoteRegion& remote() const override { return remote_; }
  const PeerIdentity& peer() const override { return peer_; }
  bool PeerIsDead() const override { return watch_->IsDead(); }
  /// Returns false if the device refuses to destroy the queue pair. A later call tries again.
  bool Revoke() override;

 private:
  VerbsAccess(std::shared_ptr<Device> device, std::shared_ptr<RegionMemory> memory,
              std::shared_ptr<VerbsDoorbell> doorbell, const PeerIdentity& peer,
              std::unique_ptr<ProcessWatch> watch, Rights rights)
      : device_(std::move(device)),
        memory_(std::move(memory)),
        doorbell_(rights == Rights::kReadOnly ? nullptr : std::move(doorbell)),
        peer_(peer),
        watch_(std::move(watch)),
        rights_(rights) {}
  /// The IBV_ACCESS_ flags of the peer.
  [[nodiscard]] int peer_flags() const;
  absl::Status Connect(const OfferDetails& offer);
  /// Binds a window for this peer and returns the peer's key.
  absl::StatusOr<std::uint32_t> BindWindow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Registers the pages for this peer and returns the peer's key.
  absl::StatusOr<std::uint32_t> RegisterForPeer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  /// Posts `request` to the owner's device and waits for its completion. `what` begins the error.
  absl::Status Do(ibv_send_wr& request, const char* what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<RegionMemory> memory_;
  const std::shared_ptr<VerbsDoorbell> doorbell_;
  const PeerIdentity peer_;
  const std::unique_ptr<ProcessWatch> watch_;
  const Rights rights_;
  RemoteRegion remote_;  // Constant after Create.
  base::Mutex mutex_;
  // The peer's own domain and registration. Null if windows are used, and once revoked.
  Handle<ibv_pd> domain_ ABSL_GUARDED_BY(mutex_);
  Handle<ibv_mr> registration_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<QueuePair> pair_ ABSL_GUARDED_BY(mutex_);  // Null once revoked.
  // Null on a device without windows, and once revoked.
  Handle<ibv_mw> window_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::fabric::verbs
