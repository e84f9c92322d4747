#include "cluster/fabric/verbs/device.h"

#include <arpa/inet.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "cluster/base/status.h"

namespace onepiece::fabric::verbs {
namespace {

constexpr char kHint[] =
    " (ibv_devinfo lists devices and ports; Soft-RoCE makes one of a network interface: rdma link "
    "add rxe0 type rxe netdev eth0)";
// Reads and atomics in flight at a time: a compare-and-swap and the read behind it.
constexpr int kLeastReadsInFlight = 2;

struct ListCloser {
  void operator()(ibv_device** list) const { ibv_free_device_list(list); }
};
using DeviceList = std::unique_ptr<ibv_device*, ListCloser>;

bool ParseNumber(std::string_view text, int least, int most, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= least &&
         number <= most;
}

bool HasActivePort(ibv_device* device) {
  const Handle<ibv_context> context(ibv_open_device(device));
  ibv_device_attr limits{};
  if (context == nullptr || ibv_query_device(context.get(), &limits) != 0) return false;
  for (int number = 1; number <= limits.phys_port_cnt; ++number) {
    ibv_port_attr port{};
    if (ibv_query_port(context.get(), static_cast<std::uint8_t>(number), &port) == 0 &&
        port.state == IBV_PORT_ACTIVE) {
      return true;
    }
  }
  return false;
}

absl::Status NoDevice(const std::string& message) {
  return base::MakeError(absl::StatusCode::kNotFound, "NO_RDMA_DEVICE", message + kHint);
}

absl::StatusOr<ibv_device*> FindDevice(std::span<ibv_device* const> devices,
                                       const std::string& name) {
  if (devices.empty()) return NoDevice("this host has no RDMA device");
  std::string names;
  for (ibv_device* device : devices) {
    if (name.empty() ? HasActivePort(device) : name == ibv_get_device_name(device)) return device;
    names += std::string(names.empty() ? "" : ", ") + ibv_get_device_name(device);
  }
  if (!name.empty()) return NoDevice("no RDMA device " + name + "; there are: " + names);
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "PORT_NOT_ACTIVE",
                         "no RDMA device has an active port: " + names + kHint);
}

// RoCE v2 over IPv4 is best: it crosses routers, and exists wherever the interface has an address.
// v1 and link-local addresses come last.
int Preference(const ibv_gid_entry& entry) {
  static constexpr std::array<std::uint8_t, 12> kIpv4Mapped{0, 0, 0, 0, 0,    0,
                                                            0, 0, 0, 0, 0xff, 0xff};
  const bool ipv4 = std::memcmp(entry.gid.raw, kIpv4Mapped.data(), kIpv4Mapped.size()) == 0;
  const bool link_local = entry.gid.raw[0] == 0xfe && entry.gid.raw[1] == 0x80;
  const bool routable = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
  return (routable ? 4 : 0) + (ipv4 ? 2 : 0) + (link_local ? 0 : 1);
}

}  // namespace

absl::Status VerbsError(const std::string& what, int error) {
  return base::MakeError(
      error == ENOMEM ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kInternal,
      "VERBS_FAILED", what + ": " + std::strerror(error));
}

std::string GidText(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.raw, text, sizeof text);
  return text;
}

absl::StatusOr<DeviceAddress> DeviceAddress::Parse(std::string_view text) {
  DeviceAddress address;
  const std::string whole = "verbs://" + std::string(text);
  const std::size_t slash = text.find('/');
  std::string_view device = text.substr(0, slash);
  bool good = true;
  if (const std::size_t colon = device.find(':'); colon != std::string_view::npos) {
    good = ParseNumber(device.substr(colon + 1), 1, 255, address.port);
    device = device.substr(0, colon);
  }
  address.device = std::string(device);
  if (slash != std::string_view::npos) {
    constexpr std::string_view kGid = "/gid=";
    const std::string_view rest = text.substr(slash);
    good = good && rest.starts_with(kGid) &&
           ParseNumber(rest.substr(kGid.size()), 0, 255, address.gid_index);
  }
  if (good && (address.port == 0 || !address.device.empty())) return address;
  return base::MakeError(
      absl::StatusCode::kInvalidArgument, "BAD_FABRIC_URI",
      "an RDMA fabric is written as verbs://DEVICE[:PORT][/gid=N] or verbs://, not " + whole);
}

absl::StatusOr<std::shared_ptr<Device>> Device::Open(const DeviceAddress& address) {
  int count = 0;
  const DeviceList list(ibv_get_device_list(&count));
  // Without the kernel's half of the stack the call fails with ENOSYS, which means no device
  // either.
  const std::span<ibv_device* const> devices(list.get(), list != nullptr ? count : 0);
  // The list owns `found` until the device is open.
  ONEPIECE_ASSIGN_OR_RETURN(ibv_device * found, FindDevice(devices, address.device));
  Handle<ibv_context> context(ibv_open_device(found));
  if (context == nullptr) {
    return VerbsError(std::string("cannot open RDMA device ") + ibv_get_device_name(found) +
                          " (/dev/infiniband/uverbs*)",
                      errno);
  }
  std::shared_ptr<Device> device(new Device(std::move(context)));
  if (const int error = ibv_query_device(device->context(), &device->limits_); error != 0) {
    return VerbsError("cannot query " + device->name(), error);
  }
  ONEPIECE_RETURN_IF_ERROR(device->CheckAbilities());
  ONEPIECE_RETURN_IF_ERROR(device->ChoosePort(address.port));
  ONEPIECE_RETURN_IF_ERROR(device->ChooseGid(address.gid_index));
  device->domain_.reset(ibv_alloc_pd(device->context()));
  if (device->domain_ == nullptr) return VerbsError("no protection domain", errno);
  return device;
}

bool Device::HasWindows() const {
  return (limits_.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0 && limits_.max_mw > 0;
}

absl::Status Device::CheckAbilities() const {
  const auto too_weak = [this](const std::string& what) {
    return base::MakeError(absl::StatusCode::kFailedPrecondition, "DEVICE_TOO_WEAK",
                           "RDMA device " + name() + " " + what);
  };
  if (limits_.atomic_cap == IBV_ATOMIC_NONE) {
    return too_weak("has no atomic operations; a ring's lock needs compare-and-swap");
  }
  if (limits_.max_qp_rd_atom < kLeastReadsInFlight ||
      limits_.max_qp_init_rd_atom < kLeastReadsInFlight) {
    return too_weak("allows less than two reads and atomics in flight");
  }
  return absl::OkStatus();
}

absl::Status Device::ChoosePort(int wanted) {
  std::string seen;
  const int first = wanted != 0 ? wanted : 1;
  const int last = wanted != 0 ? wanted : limits_.phys_port_cnt;
  if (last > limits_.phys_port_cnt) {
    return base::MakeError(absl::StatusCode::kNotFound, "NO_RDMA_DEVICE",
                           "RDMA device " + name() + " has " +
                               std::to_string(limits_.phys_port_cnt) + " ports, no port " +
                               std::to_string(wanted));
  }
  for (int number = first; number <= last; ++number) {
    port_number_ = static_cast<std::uint8_t>(number);
    if (const int error = ibv_query_port(context(), port_number_, &port_); error != 0) {
      return VerbsError("cannot query port " + std::to_string(number) + " of " + name(), error);
    }
    if (port_.state == IBV_PORT_ACTIVE) return absl::OkStatus();
    seen += " port " + std::to_string(number) + " is " + ibv_port_state_str(port_.state);
  }
  return base::MakeError(absl::StatusCode::kFailedPrecondition, "PORT_NOT_ACTIVE",
                         "RDMA device " + name() + ":" + seen +
                             "; bring its network interface up and give it an address, or start "
                             "the subnet manager");
}

absl::Status Device::ChooseGid(int wanted) {
  // ibv_query_gid_table returns the addresses of all ports.
  std::vector<ibv_gid_entry> table(static_cast<std::size_t>(port_.gid_tbl_len) *
                                   limits_.phys_port_cnt);
  const ssize_t count = ibv_query_gid_table(context(), table.data(), table.size(), 0);
  if (count < 0)
    return VerbsError("cannot read the addresses (GIDs) of " + name(), static_cast<int>(-count));
  table.resize(static_cast<std::size_t>(count));
  std::string seen;
  int best = -1;
  for (const ibv_gid_entry& entry : table) {
    if (entry.port_num != port_number_ || entry.gid_index > 255) continue;
    seen += " " + std::to_string(entry.gid_index) + "=" + GidText(entry.gid);
    const bool right = wanted < 0 ? Preference(entry) > best
                                  : entry.gid_index == static_cast<std::uint32_t>(wanted);
    if (!right) continue;
    best = Preference(entry);
    gid_ = entry.gid;
    gid_index_ = static_cast<std::uint8_t>(entry.gid_index);
  }
  if (best >= 0) return absl::OkStatus();
  return base::MakeError(
      absl::StatusCode::kNotFound, "NO_GID",
      "port " + std::to_string(port_number_) + " of " + name() + " has no address (GID)" +
          (wanted < 0 ? std::string() : " " + std::to_string(wanted)) +
          (seen.empty() ? "; give its network interface an IP address" : "; there are:" + seen));
}

}  // namespace onepiece::fabric::verbs
