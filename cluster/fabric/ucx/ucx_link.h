// The dialling end of a connection. Internal to the backend.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cluster/fabric/fabric.h"
#include "cluster/fabric/ucx/ucx_seal.h"
#include "cluster/fabric/ucx/ucx_session.h"
#include "cluster/fabric/ucx/ucx_wire.h"
#include "cluster/fabric/ucx/ucx_worker.h"

namespace onepiece::fabric {

/// An endpoint on a worker of its own. The thread that waits for it moves it. Destroying the link
/// destroys the worker; from then on UCX neither reads nor writes the memory of any operation,
/// completed or not.
///
/// Threading: one thread at a time.
class UcxLink {
 public:
  /// Introduces itself and waits for the owner's verdict, at most until `deadline` of real time.
  /// `offer` is what the owner has accepted.
  ///
  /// Errors: INVALID_ARGUMENT (WRONG_REGION, PROTECTION_DIFFERS), UNAVAILABLE (PEER_GONE),
  /// DEADLINE_EXCEEDED.
  static absl::StatusOr<std::unique_ptr<UcxLink>> Connect(std::shared_ptr<UcxContext> context,
                                                          const UcxOffer& offer,
                                                          const RemoteRegion& remote,
                                                          base::MonotonicTime deadline);
  ~UcxLink();
  UcxLink(const UcxLink&) = delete;
  UcxLink& operator=(const UcxLink&) = delete;

  /// As Channel::Run, with a deadline of real time. After an error the caller must destroy the link
  /// before it frees the memory of the chain.
  absl::Status Execute(std::span<const Op> chain, base::MonotonicTime deadline);
  /// How many requests the last Execute posted, and how often it waited for the owner.
  [[nodiscard]] std::uint64_t work_requests() const { return work_requests_; }
  [[nodiscard]] std::uint64_t round_trips() const { return round_trips_; }

 private:
  explicit UcxLink(std::unique_ptr<UcxWorker> worker);
  absl::Status Dial(const UcxDetails& details, const UcxAgreement& agreement);
  /// Judges the owner's answer to the hello.
  absl::Status Meet(const UcxAgreement& agreement, const std::string& nonce);
  static void OnFailure(void* self, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t OnVerdict(void* self, const void* header, std::size_t header_length,
                                void* data, std::size_t length, const ucp_am_recv_param_t* param);
  static ucs_status_t OnAnswer(void* self, const void* header, std::size_t header_length,
                               void* data, std::size_t length, const ucp_am_recv_param_t* param);

  absl::Status Post(const Op& op, std::size_t index);
  absl::Status Read(const Op& op, std::size_t index);
  absl::Status Write(UcxKind kind, std::uint64_t offset, std::span<const std::byte> bytes);
  absl::Status Send(UcxKind kind, std::uint64_t offset, std::uint64_t length_bytes,
                    std::span<const std::byte> payload = {});
  absl::Status Await(ucs_status_ptr_t request);
  absl::Status Step(int& idle);

  const std::unique_ptr<UcxWorker> worker_;
  ucp_ep_h endpoint_ = nullptr;
  ucs_status_t failure_ = UCS_OK;
  std::optional<std::string> answer_;  // To the hello.
  base::MonotonicTime deadline_{};
  void* sending_ = nullptr;  // The request under way, if one is.
  std::string hello_;        // UCX may look at it until it is sent.
  UcxOp op_;                 // Being sent.
  // The operation as it travels; UCX may look at it until it is sent.
  UcxSealedHeader header_;
  std::vector<std::byte> encrypted_;
  std::optional<UcxSealer> sealer_;  // Empty until the owner has welcomed us, as opener_.
  std::optional<UcxOpener> opener_;
  UcxChain chain_;  // Being executed.
  std::uint64_t sequence_ = 0;
  bool refused_ = false;  // The owner does not want to execute the chain.
  std::uint64_t work_requests_ = 0;
  std::uint64_t round_trips_ = 0;
};

}  // namespace onepiece::fabric
