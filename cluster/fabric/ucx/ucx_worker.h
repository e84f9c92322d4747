// UCX objects with C++ lifetimes. Internal to the backend.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/base/clock.h"
#include "cluster/fabric/ucx/listening_sockets.h"

namespace onepiece::fabric {

/// The error of a UCX call that failed. REQUIRES: status is an error.
absl::Status UcxError(const char* what, ucs_status_t status);

/// UCX's context. Each fabric has one.
///
/// Threading: thread-safe.
class UcxContext {
 public:
  /// `devices` are UCX's names of network interfaces, or "all".
  ///
  /// Errors: INVALID_ARGUMENT (BAD_FABRIC_URI) when none of them can be used, INTERNAL.
  static absl::StatusOr<std::shared_ptr<UcxContext>> Open(const std::string& devices);
  ~UcxContext() { ucp_cleanup(context_); }
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;
  [[nodiscard]] ucp_context_h get() const { return context_; }

 private:
  explicit UcxContext(ucp_context_h context) : context_(context) {}
  const ucp_context_h context_;
};

/// The sockets, endpoints and requests of one connection, and the only code that moves their bytes.
/// A worker executes nothing unless somebody calls Progress, and nothing at all once it is
/// destroyed.
///
/// Threading: one thread at a time.
class UcxWorker {
 public:
  /// Errors: RESOURCE_EXHAUSTED (no descriptors or memory left), INTERNAL.
  static absl::StatusOr<std::unique_ptr<UcxWorker>> Create(std::shared_ptr<UcxContext> context);
  /// Closes the sockets without reading the rest, and lets go of every buffer. Takes a bounded
  /// time.
  ~UcxWorker() { ucp_worker_destroy(worker_); }
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  [[nodiscard]] ucp_worker_h get() const { return worker_; }
  /// Peers reach the worker with this.
  [[nodiscard]] absl::StatusOr<std::string> Address() const;
  void Handle(unsigned message, ucp_am_recv_callback_t handler, void* argument);
  /// Returns true when it did something.
  bool Progress() { return ucp_worker_progress(worker_) != 0; }
  /// Returns true when the next event makes fd() readable, and false when Progress must run first.
  bool Arm() { return ucp_worker_arm(worker_) == UCS_OK; }
  [[nodiscard]] int fd() const { return fd_; }
  /// Whoever is not at one of `sources` (AddressesOfThisHost of the peer) reaches nothing.
  void AdmitOnly(const std::vector<std::string>& sources);
  /// From now on no connection that others ask for reaches this worker: the kernel drops what comes
  /// to its ports. Connections that exist stay. Idempotent.
  void StopAccepting();
  /// Sleeps until there is something to progress or `limit` of real time passes.
  void Wait(base::Duration limit);

 private:
  UcxWorker(std::shared_ptr<UcxContext> context, ucp_worker_h worker, int fd,
            std::vector<ListeningSocket> ports)
      : context_(std::move(context)), worker_(worker), fd_(fd), ports_(std::move(ports)) {}
  const std::shared_ptr<UcxContext> context_;
  const ucp_worker_h worker_;
  const int fd_;
  std::vector<ListeningSocket> ports_;  // One for each network interface.
};

}  // namespace onepiece::fabric
