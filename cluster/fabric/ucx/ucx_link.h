// The dialling end of a connection. Internal to the backend.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cluster/fabric/fabric.h"
#include "cluster/fabric/ucx/ucx_wire.h"
#include "cluster/fabric/ucx/ucx_worker.h"

namespace onepiece::fabric {

/// An endpoint on a worker of its own, moved by whoever waits for it. Destroying the link destroys
/// the worker: from then on nothing of UCX reads or writes the memory that operations referred to,
/// completed or not.
///
/// Threading  One thread at a time.
class UcxLink {
 public:
  /// Introduces itself and waits for the owner's verdict, at most until `deadline` of real time.
  /// Errors: INVALID_ARGUMENT (WRONG_REGION), UNAVAILABLE (PEER_GONE), DEADLINE_EXCEEDED.
  static absl::StatusOr<std::unique_ptr<UcxLink>> Connect(std::shared_ptr<UcxContext> context,
                                                          const RemoteRegion& remote,
                                                          base::MonotonicTime deadline);
  ~UcxLink();
  UcxLink(const UcxLink&) = delete;
  UcxLink& operator=(const UcxLink&) = delete;

  /// As Channel::Run, with a deadline of real time. After an error
  /// the link must be destroyed before the caller's memory is.
  absl::Status Execute(std::span<const Op> chain, base::MonotonicTime deadline);
  /// Of the last Execute: what it posted, and how often it waited for the owner.
  [[nodiscard]] std::uint64_t work_requests() const { return work_requests_; }
  [[nodiscard]] std::uint64_t round_trips() const { return round_trips_; }

 private:
  UcxLink(std::unique_ptr<UcxWorker> worker, std::uint64_t memory_address);
  absl::Status Dial(const RemoteRegion& remote, const UcxDetails& details);
  static void OnFailure(void* self, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t OnVerdict(void* self, const void* header, std::size_t header_length,
                                void* data, std::size_t length, const ucp_am_recv_param_t* param);

  static ucs_status_t OnRung(void* self, const void* header, std::size_t header_length, void* data,
                             std::size_t length, const ucp_am_recv_param_t* param);
  absl::Status Post(const Op& op, bool last);
  absl::Status Put(std::uint64_t offset, const void* from, std::size_t size);
  absl::Status Get(std::uint64_t offset, void* into, std::size_t size);
  absl::Status Atomic(const Op& op);
  absl::Status Notify(bool confirmed);
  absl::Status Keep(ucs_status_ptr_t request);
  absl::Status Await(ucs_status_ptr_t request);
  absl::Status AwaitPosted();
  absl::Status Step(int& idle);

  const std::unique_ptr<UcxWorker> worker_;
  const std::uint64_t memory_address_;
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h remote_key_ = nullptr;
  ucs_status_t failure_ = UCS_OK;
  UcxVerdict verdict_{};  // None yet.
  base::MonotonicTime deadline_{};
  std::vector<void*> posted_;  // Requests under way.
  bool reading_ = false;       // One of them is a get.
  bool ringing_ = false;       // The owner has not confirmed a Notify yet.
  std::uint64_t work_requests_ = 0;
  std::uint64_t round_trips_ = 0;
};

}  // namespace onepiece::fabric
