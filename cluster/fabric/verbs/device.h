// An open RDMA device: the port and the address in use, its abilities, and the objects made on it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace onepiece::fabric::verbs {

/// Destroys an object of libibverbs. The library refuses (EBUSY) to destroy one that is in use, so
/// classes declare their members in the order in which they make them.
struct Closer {
  void operator()(ibv_context* context) const { ibv_close_device(context); }
  void operator()(ibv_pd* domain) const { ibv_dealloc_pd(domain); }
  void operator()(ibv_mr* region) const { ibv_dereg_mr(region); }
  void operator()(ibv_mw* window) const { ibv_dealloc_mw(window); }
  void operator()(ibv_cq* queue) const { ibv_destroy_cq(queue); }
  void operator()(ibv_qp* pair) const { ibv_destroy_qp(pair); }
  void operator()(ibv_srq* queue) const { ibv_destroy_srq(queue); }
  void operator()(ibv_comp_channel* channel) const { ibv_destroy_comp_channel(channel); }
};
template <typename T>
using Handle = std::unique_ptr<T, Closer>;

/// The part of a URI behind verbs://, DEVICE[:PORT][/gid=N]. Each part may be missing. A value
/// type.
struct DeviceAddress {
  std::string device;  ///< Empty: the first device with an active port.
  int port = 0;        ///< 0: its first active port.
  int gid_index = -1;  ///< -1: Device::Open chooses.

  /// Errors: INVALID_ARGUMENT (BAD_FABRIC_URI).
  static absl::StatusOr<DeviceAddress> Parse(std::string_view text);
};

/// An open device. Everything made on it shares it.
///
/// Threading: thread-safe. It is constant after Open, except for state that libibverbs guards
/// itself.
class Device {
 public:
  /// Errors: NOT_FOUND (NO_RDMA_DEVICE, NO_GID), FAILED_PRECONDITION (PORT_NOT_ACTIVE,
  /// DEVICE_TOO_WEAK), INTERNAL (VERBS_FAILED).
  static absl::StatusOr<std::shared_ptr<Device>> Open(const DeviceAddress& address);

  [[nodiscard]] ibv_context* context() const { return context_.get(); }
  [[nodiscard]] ibv_pd* domain() const { return domain_.get(); }
  [[nodiscard]] const ibv_device_attr& limits() const { return limits_; }
  [[nodiscard]] const ibv_port_attr& port() const { return port_; }
  [[nodiscard]] std::uint8_t port_number() const { return port_number_; }
  [[nodiscard]] const ibv_gid& gid() const { return gid_; }
  [[nodiscard]] std::uint8_t gid_index() const { return gid_index_; }
  [[nodiscard]] std::string name() const { return ibv_get_device_name(context_->device); }
  /// True when the device can bind memory windows of type 2B, whose keys hold for one peer only.
  [[nodiscard]] bool HasWindows() const;

 private:
  explicit Device(Handle<ibv_context> context) : context_(std::move(context)) {}
  absl::Status ChoosePort(int wanted);
  absl::Status ChooseGid(int wanted);
  absl::Status CheckAbilities() const;

  const Handle<ibv_context> context_;
  Handle<ibv_pd> domain_;
  ibv_device_attr limits_{};
  ibv_port_attr port_{};
  ibv_gid gid_{};
  std::uint8_t port_number_ = 0;
  std::uint8_t gid_index_ = 0;
};

/// An error "WHAT: words of `error`", with a hint where the error has a usual cause.
absl::Status VerbsError(const std::string& what, int error);
/// The text of a GID: "::ffff:10.0.0.1", "fe80::1".
std::string GidText(const ibv_gid& gid);

}  // namespace onepiece::fabric::verbs
