#include "stages/worker/packet_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "cluster/base/status.h"

namespace onepiece::worker {
namespace {

absl::Status Gone() {
  return base::MakeError(absl::StatusCode::kUnavailable, "PEER_GONE",
                         "the other process has closed its socket");
}

absl::Status Failed(const char* what) {
  if (errno == EPIPE || errno == ECONNRESET) return Gone();
  return base::MakeError(absl::StatusCode::kInternal, "SOCKET_FAILED",
                         std::string(what) + ": " + std::strerror(errno));
}

absl::Status Await(int fd, short events, base::MonotonicTime deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - base::SystemClock().Now());
    pollfd waited{.fd = fd, .events = events, .revents = 0};
    // Longer waits come in turns of a day.
    const int ready =
        ::poll(&waited, 1, static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 86'400'000)));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Failed("poll");
    if (ready == 0 && base::SystemClock().Now() >= deadline) {
      return base::MakeError(absl::StatusCode::kDeadlineExceeded, "SOCKET_SILENT",
                             "the other process did not answer in time");
    }
  }
}

/// Room for the control message that carries one descriptor.
struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> bytes{};
};

}  // namespace

absl::StatusOr<std::pair<PacketSocket, PacketSocket>> PacketSocket::Pair() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds.data()) != 0) {
    return base::MakeError(absl::StatusCode::kResourceExhausted, "NO_SOCKET",
                           std::string("no socket for a worker: ") + std::strerror(errno));
  }
  return std::pair(PacketSocket(FileDescriptor(fds[0])), PacketSocket(FileDescriptor(fds[1])));
}

absl::Status PacketSocket::Send(const google::protobuf::MessageLite& message, int fd,
                                base::MonotonicTime deadline) {
  std::string bytes = message.SerializeAsString();
  if (bytes.size() > kMaxBytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "TOO_LARGE",
                           "a message of " + std::to_string(bytes.size()) +
                               " bytes is too large for a worker's socket");
  }
  // An empty packet would read as the end.
  if (bytes.empty()) return absl::InternalError("an empty message for a worker");
  iovec piece{.iov_base = bytes.data(), .iov_len = bytes.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  Control control;
  if (fd >= 0) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  }
  for (;;) {
    ONEPIECE_RETURN_IF_ERROR(Await(fd_.get(), POLLOUT, deadline));
    if (::sendmsg(fd_.get(), &header, MSG_NOSIGNAL) >= 0) return absl::OkStatus();
    if (errno != EAGAIN && errno != EINTR) return Failed("sendmsg");
  }
}

absl::StatusOr<FileDescriptor> PacketSocket::Receive(google::protobuf::MessageLite& message,
                                                     base::MonotonicTime deadline) {
  for (;;) {
    ONEPIECE_RETURN_IF_ERROR(Await(fd_.get(), POLLIN, deadline));
    const auto bytes = std::make_unique_for_overwrite<char[]>(kMaxBytes);
    iovec piece{.iov_base = bytes.get(), .iov_len = kMaxBytes};
    Control control;
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    const ssize_t got = ::recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got < 0) return Failed("recvmsg");
    if (got == 0) return Gone();
    FileDescriptor brought;
    const cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(rights), sizeof fd);
      brought = FileDescriptor(fd);
    }
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
        !message.ParseFromArray(bytes.get(), static_cast<int>(got))) {
      return base::MakeError(absl::StatusCode::kInternal, "BAD_PACKET",
                             "a packet from the other process cannot be read");
    }
    return brought;
  }
}

}  // namespace onepiece::worker
