#include "stages/collectives/socket_rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include "cluster/base/file_descriptor.h"
#include "cluster/base/status.h"
#include "cluster/fabric/wire.h"

namespace onepiece::collectives {
namespace {

constexpr std::size_t kMaxPathBytes = 100;
// A round of one worker is one packet, which must fit into a socket's buffer (208 KiB on Linux).
constexpr std::size_t kMaxPacketBytes = 192 * 1024;
constexpr std::uint64_t kHello = 0x3144564E5A45504F;  // "OPEZNVD1"

absl::Status SocketFailed(const std::string& what, int error) {
  return base::MakeError(absl::StatusCode::kInternal, "SOCKET_FAILED",
                         what + ": " + std::strerror(error));
}

absl::Status Gone(const std::string& what) {
  return base::MakeError(absl::StatusCode::kUnavailable, "RENDEZVOUS_GONE", what);
}

absl::Status BadArgument(const char* reason, const std::string& what) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, reason, what);
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() > kMaxPathBytes) {
    return BadArgument("BAD_PATH", "a socket's path has 1 to " + std::to_string(kMaxPathBytes) +
                                       " bytes: " + path);
  }
  std::ranges::copy(path, address.sun_path);
  return address;
}

absl::Status CheckFolder(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  struct stat info {};
  if (stat(folder.c_str(), &info) != 0) return SocketFailed(folder, errno);
  if (S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0) {
    return absl::OkStatus();
  }
  return BadArgument("INSECURE_FOLDER", folder + " must be this user's, with mode 0700");
}

bool IsOfThisUser(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         credentials.uid == geteuid();
}

bool SendPacket(int fd, const std::string& bytes) {
  return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

// A round of one worker: who it is, of how many, and its texts. An answer is the same, or one text
// that says what is wrong, of "worker" kMaxWorkers.
struct Packet {
  std::uint64_t index = 0;
  std::vector<std::string> texts;

  [[nodiscard]] std::string Serialize() const {
    std::string bytes;
    fabric::AppendU64(bytes, kHello);
    fabric::AppendU64(bytes, index);
    fabric::AppendU64(bytes, texts.size());
    for (const std::string& text : texts) fabric::AppendText(bytes, text);
    return bytes;
  }
};

std::optional<Packet> ParsePacket(std::string_view bytes) {
  fabric::WireReader reader(bytes);
  if (reader.U64() != kHello) return std::nullopt;
  Packet packet{.index = reader.U64(), .texts = {}};
  const std::uint64_t count = reader.U64();
  if (count > kMaxWorkers) return std::nullopt;
  for (std::uint64_t i = 0; i < count; ++i) packet.texts.push_back(reader.Text(kMaxTextBytes));
  if (!reader.Finished()) return std::nullopt;
  return packet;
}

// Nothing when the peer has gone, or sent no packet of ours.
std::optional<Packet> ReceivePacket(int fd, std::vector<char>& buffer) {
  buffer.resize(kMaxPacketBytes);
  const ssize_t size = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (size <= 0 || size > static_cast<ssize_t>(buffer.size())) return std::nullopt;
  return ParsePacket({buffer.data(), static_cast<std::size_t>(size)});
}

class SocketSeat final : public Rendezvous {
 public:
  SocketSeat(base::FileDescriptor socket, std::uint32_t index, std::uint32_t workers,
             base::Clock& clock)
      : socket_(std::move(socket)), index_(index), workers_(workers), clock_(clock) {}

  absl::StatusOr<std::vector<std::string>> Exchange(std::vector<std::string> texts,
                                                    base::MonotonicTime deadline) override {
    ONEPIECE_RETURN_IF_ERROR(CheckRound(texts, workers_));
    const std::string bytes = Packet{.index = index_, .texts = std::move(texts)}.Serialize();
    if (bytes.size() > kMaxPacketBytes) {
      return BadArgument("BAD_ROUND", "the texts have " + std::to_string(bytes.size()) + " bytes");
    }
    if (!SendPacket(socket_.get(), bytes)) return Gone("the leader does not listen any more");
    ONEPIECE_RETURN_IF_ERROR(AwaitAnswer(deadline));
    std::vector<char> buffer;
    std::optional<Packet> answer = ReceivePacket(socket_.get(), buffer);
    if (!answer.has_value()) return Gone("the leader closed the socket");
    if (answer->index == index_ && answer->texts.size() == workers_) {
      return std::move(answer->texts);
    }
    return BadArgument("BAD_SEAT", answer->texts.empty() ? "refused" : answer->texts.front());
  }

 private:
  absl::Status AwaitAnswer(base::MonotonicTime deadline) {
    while (true) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - clock_.Now()).count();
      pollfd ready{.fd = socket_.get(), .events = POLLIN, .revents = 0};
      const int count = poll(&ready, 1, static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000)));
      if (count > 0) return absl::OkStatus();
      if (count < 0 && errno != EINTR) return SocketFailed("poll", errno);
      if (count == 0 && left <= 0) {
        socket_.Close();  // The hub must not count this worker as one that waits.
        return base::MakeError(absl::StatusCode::kDeadlineExceeded, "NOT_ALL_CAME",
                               "not all workers came to the rendezvous in time");
      }
    }
  }

  base::FileDescriptor socket_;
  const std::uint32_t index_;
  const std::uint32_t workers_;
  base::Clock& clock_;
};

class Hub final : public RendezvousHub {
 public:
  Hub(std::string path, std::uint32_t workers, base::FileDescriptor listener,
      base::FileDescriptor stop)
      : path_(std::move(path)),
        workers_(workers),
        listener_(std::move(listener)),
        stop_(std::move(stop)),
        thread_([this] { Serve(); }) {}
  ~Hub() override {
    const std::uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof one);
    thread_.join();
    unlink(path_.c_str());
  }
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

 private:
  struct Guest {
    base::FileDescriptor socket;
    std::optional<Packet> waits;  // Of the round under way.
    std::optional<std::uint64_t> index;
  };

  void Serve() {
    while (true) {
      std::vector<pollfd> ready{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                                {.fd = listener_.get(), .events = POLLIN, .revents = 0}};
      for (const Guest& guest : guests_) {
        ready.push_back({.fd = guest.socket.get(), .events = POLLIN, .revents = 0});
      }
      if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return;
      if (ready[0].revents != 0) return;
      for (std::size_t i = 0; i < guests_.size(); ++i) {
        if (ready[i + 2].revents != 0) Hear(guests_[i]);
      }
      std::erase_if(guests_, [](const Guest& guest) { return guest.socket.get() < 0; });
      if (ready[1].revents != 0) Welcome();
      FinishRound();
    }
  }

  void Welcome() {
    base::FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    // Twice as many as there are seats: those whose workers have just died are not cleared yet.
    if (socket.get() < 0 || !IsOfThisUser(socket.get()) || guests_.size() >= 2 * kMaxWorkers) {
      return;
    }
    guests_.push_back({.socket = std::move(socket), .waits = {}, .index = {}});
  }

  void Hear(Guest& guest) {
    std::optional<Packet> packet = ReceivePacket(guest.socket.get(), buffer_);
    if (!packet.has_value() || guest.waits.has_value()) return guest.socket.Close();
    if (packet->index >= workers_ || packet->texts.size() != workers_) {
      return Refuse(guest, "this world has " + std::to_string(workers_) + " workers");
    }
    const bool taken = std::ranges::any_of(guests_, [&](const Guest& other) {
      return &other != &guest && other.socket.get() >= 0 && other.index == packet->index;
    });
    if (taken) return Refuse(guest, "the seat is taken");
    guest.index = packet->index;
    guest.waits = std::move(packet);
  }

  static void Refuse(Guest& guest, const std::string& why) {
    SendPacket(guest.socket.get(), Packet{.index = kMaxWorkers, .texts = {why}}.Serialize());
    guest.socket.Close();
  }

  void FinishRound() {
    std::vector<Guest*> seats(workers_, nullptr);
    for (Guest& guest : guests_) {
      if (guest.waits.has_value()) seats[guest.waits->index] = &guest;
    }
    if (std::ranges::find(seats, nullptr) != seats.end()) return;
    for (std::uint32_t to = 0; to < workers_; ++to) {
      Packet answer{.index = to, .texts = {}};
      for (const Guest* from : seats) answer.texts.push_back(from->waits->texts[to]);
      const std::string bytes = answer.Serialize();
      if (bytes.size() > kMaxPacketBytes || !SendPacket(seats[to]->socket.get(), bytes)) {
        seats[to]->socket.Close();
      }
    }
    for (Guest* guest : seats) guest->waits.reset();
    std::erase_if(guests_, [](const Guest& guest) { return guest.socket.get() < 0; });
  }

  const std::string path_;
  const std::uint32_t workers_;
  const base::FileDescriptor listener_;
  const base::FileDescriptor stop_;
  std::vector<Guest> guests_;  // Of the thread, as is the buffer.
  std::vector<char> buffer_;
  std::thread thread_;
};

absl::Status CheckWorkers(std::uint32_t workers) {
  if (workers >= 1 && workers <= kMaxWorkers) return absl::OkStatus();
  return BadArgument("BAD_WORLD", "a world has 1 to " + std::to_string(kMaxWorkers) +
                                      " workers, not " + std::to_string(workers));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RendezvousHub>> RendezvousHub::Listen(const std::string& path,
                                                                     std::uint32_t workers) {
  ONEPIECE_RETURN_IF_ERROR(CheckWorkers(workers));
  ONEPIECE_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  ONEPIECE_RETURN_IF_ERROR(CheckFolder(path));
  base::FileDescriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  base::FileDescriptor stop(eventfd(0, EFD_CLOEXEC));
  if (listener.get() < 0 || stop.get() < 0) return SocketFailed("socket", errno);
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) unlink(path.c_str());
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path.c_str(), 0600) != 0 || listen(listener.get(), kMaxWorkers) != 0) {
    return SocketFailed(path, errno);
  }
  return std::make_unique<Hub>(path, workers, std::move(listener), std::move(stop));
}

absl::StatusOr<std::unique_ptr<Rendezvous>> JoinRendezvous(const std::string& path,
                                                           std::uint32_t index,
                                                           std::uint32_t workers,
                                                           base::Clock& clock) {
  ONEPIECE_RETURN_IF_ERROR(CheckWorkers(workers));
  if (index >= workers) {
    return BadArgument("BAD_WORLD",
                       "no worker " + std::to_string(index) + " among " + std::to_string(workers));
  }
  ONEPIECE_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  base::FileDescriptor socket_to_hub(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (socket_to_hub.get() < 0) return SocketFailed("socket", errno);
  if (connect(socket_to_hub.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
      0) {
    return Gone("nobody listens at " + path + ": " + std::strerror(errno));
  }
  if (!IsOfThisUser(socket_to_hub.get())) {
    return base::MakeError(absl::StatusCode::kPermissionDenied, "OTHER_USER",
                           path + " belongs to a process of another user");
  }
  return std::make_unique<SocketSeat>(std::move(socket_to_hub), index, workers, clock);
}

}  // namespace onepiece::collectives
