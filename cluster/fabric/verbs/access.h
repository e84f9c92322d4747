// A region's memory and its peers' ways into it.
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

constexpr char kBackend[] = "verbs";

/// The content of Offer::details. A value type.
struct OfferDetails {
  Endpoint endpoint;
  std::uint64_t incarnation = 0;  ///< This connection's. The dialer refuses an answer to another.

  [[nodiscard]] std::string Serialize() const;
  static std::optional<OfferDetails> Parse(std::string_view bytes);
};

/// The content of RemoteRegion::details. A value type.
struct RegionDetails {
  Endpoint endpoint;
  std::uint64_t incarnation = 0;  ///< That of the offer that this answers.
  std::uint64_t address = 0;      ///< A virtual address of the owner.
  std::uint64_t length_bytes = 0;
  bool has_doorbell = false;

  [[nodiscard]] std::string Serialize() const;
  static std::optional<RegionDetails> Parse(std::string_view bytes);
  /// RemoteRegion::address: "GID/QUEUE-PAIR".
  [[nodiscard]] std::string AddressText() const;
};

/// The bytes of a region and their registration, from which each peer's key is made.
struct RegionMemory {
  std::unique_ptr<Pages> pages;
  Handle<ibv_mr> registration;  ///< Gives no rights by itself. Null: each peer has its own.
};

/// The owner's end of one peer's connection, and the key that works through it alone.
class VerbsAccess final : public Access {
 public:
  /// Errors: those of Region::Accept. `doorbell` may be null.
  static absl::StatusOr<std::unique_ptr<Access>> Create(std::shared_ptr<Device> device,
                                                        std::shared_ptr<RegionMemory> memory,
                                                        std::shared_ptr<VerbsDoorbell> doorbell,
                                                        const Offer& offer);
  ~VerbsAccess() override;
  VerbsAccess(const VerbsAccess&) = delete;
  VerbsAccess& operator=(const VerbsAccess&) = delete;
  const RemoteRegion& remote() const override { return remote_; }
  const PeerIdentity& peer() const override { return peer_; }
  bool PeerIsDead() const override { return watch_->IsDead(); }
  bool Revoke() override;

 private:
  VerbsAccess(std::shared_ptr<Device> device, std::shared_ptr<RegionMemory> memory,
              std::shared_ptr<VerbsDoorbell> doorbell, const PeerIdentity& peer,
              std::unique_ptr<ProcessWatch> watch)
      : device_(std::move(device)),
        memory_(std::move(memory)),
        doorbell_(std::move(doorbell)),
        peer_(peer),
        watch_(std::move(watch)) {}
  absl::Status Connect(const OfferDetails& offer);
  absl::StatusOr<std::uint32_t> BindWindow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::uint32_t> RegisterForPeer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Do(ibv_send_wr& request, const char* what) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<RegionMemory> memory_;
  const std::shared_ptr<VerbsDoorbell> doorbell_;
  const PeerIdentity peer_;
  const std::unique_ptr<ProcessWatch> watch_;
  RemoteRegion remote_;  // Constant after Create.
  base::Mutex mutex_;
  Handle<ibv_pd> domain_ ABSL_GUARDED_BY(mutex_);            // Null with a window.
  Handle<ibv_mr> registration_ ABSL_GUARDED_BY(mutex_);      // Null with a window.
  std::unique_ptr<QueuePair> pair_ ABSL_GUARDED_BY(mutex_);  // Null once revoked.
  Handle<ibv_mw> window_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace onepiece::fabric::verbs
