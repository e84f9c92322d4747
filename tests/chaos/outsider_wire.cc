#include "tests/chaos/outsider_wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace onepiece::ledger {
namespace {

constexpr Milliseconds kConnectLimit(1000), kHandshakeStep(200);
constexpr int kHandshakeSteps = 10;
constexpr std::size_t kPiece = 16 << 10;
constexpr std::uint8_t kHeaders = 1, kSettings = 4, kEndStream = 1, kEndHeaders = 4;
constexpr unsigned char kAlpn[] = "\x02h2";

bool WaitFor(int fd, short events, Milliseconds limit) {
  pollfd waiting{.fd = fd, .events = events, .revents = 0};
  return poll(&waiting, 1, static_cast<int>(limit.count())) > 0;
}

sockaddr_in AddressOf(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

std::string BigEndian(std::uint32_t value, int bytes) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    text.push_back(static_cast<char>(value >> shift));
  return text;
}

/// A header with a new name, without compression. HPACK: both have less than 127 bytes.
std::string Header(std::string_view name, std::string_view value) {
  std::string text(1, '\0');
  text.push_back(static_cast<char>(name.size()));
  text.append(name);
  text.push_back(static_cast<char>(value.size()));
  return text.append(value);
}

SSL_CTX* Context() {
  static SSL_CTX* const context = [] {
    SSL_CTX* made = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION);
    SSL_CTX_set_verify(made, SSL_VERIFY_NONE, nullptr);
    return made;
  }();
  return context;
}

}  // namespace

Line::Line(const std::string& from, const std::string& target) {
  const std::size_t colon = target.rfind(':');
  const std::string host = target.substr(0, colon);
  const sockaddr_in to = AddressOf(host, std::atoi(target.c_str() + colon + 1));
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd_ < 0) return;
  const linger reset{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  const int yes = 1;
  setsockopt(fd_, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof(yes));
  if (host.starts_with("127.")) {
    const sockaddr_in own = AddressOf(from, 0);
    (void)bind(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof(own));
  }
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) {
    is_open_ = true;
  } else if (errno == EINPROGRESS && WaitFor(fd_, POLLOUT, kConnectLimit)) {
    int error = 0;
    socklen_t length = sizeof(error);
    is_open_ = getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
  }
}

Line::~Line() {
  if (fd_ >= 0) close(fd_);
}

bool Line::Send(std::string_view bytes) {
  if (!is_open_) return false;
  const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN) is_open_ = false;
  return is_open_;
}

std::string Line::Read(std::size_t most, Milliseconds limit) {
  std::string bytes(std::min(most, kPiece), '\0');
  if (!is_open_ || !WaitFor(fd_, POLLIN, limit)) return {};
  const ssize_t read = recv(fd_, bytes.data(), bytes.size(), 0);
  if (read == 0 || (read < 0 && errno != EAGAIN)) is_open_ = false;
  bytes.resize(read > 0 ? static_cast<std::size_t>(read) : 0);
  return bytes;
}

struct TlsLine::Session {
  Session(const std::string& from, const std::string& target)
      : line(from, target), ssl(SSL_new(Context())) {
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_alpn_protos(ssl, kAlpn, sizeof(kAlpn) - 1);
    SSL_set_connect_state(ssl);
  }
  ~Session() { SSL_free(ssl); }

  /// Puts on the wire what OpenSSL has written.
  void Flush() {
    std::array<char, kPiece> piece{};
    for (int n = 0; (n = BIO_read(SSL_get_wbio(ssl), piece.data(), piece.size())) > 0;) {
      const std::string_view bytes(piece.data(), static_cast<std::size_t>(n));
      line.Send(bytes);
      sent += bytes;
    }
  }
  void Feed(std::size_t most, Milliseconds limit) {
    const std::string bytes = line.Read(most, limit);
    if (!bytes.empty()) BIO_write(SSL_get_rbio(ssl), bytes.data(), static_cast<int>(bytes.size()));
  }

  Line line;
  SSL* const ssl;
  std::string sent;
  bool ready = false;
};

TlsLine::TlsLine(const std::string& from, const std::string& target)
    : session_(std::make_unique<Session>(from, target)) {
  for (int step = 0; step < kHandshakeSteps && session_->line.is_open(); ++step) {
    session_->ready = SSL_do_handshake(session_->ssl) == 1;
    session_->Flush();
    if (session_->ready) break;
    session_->Feed(kPiece, kHandshakeStep);
  }
}

TlsLine::~TlsLine() = default;

bool TlsLine::is_open() const { return session_->ready && session_->line.is_open(); }

bool TlsLine::Send(std::string_view bytes) {
  if (!is_open()) return false;
  SSL_write(session_->ssl, bytes.data(), static_cast<int>(bytes.size()));
  session_->Flush();
  return is_open();
}

std::string TlsLine::Read(std::size_t most, Milliseconds limit) {
  if (!is_open()) return {};
  session_->Feed(most, limit);
  std::string bytes(most, '\0');
  const int read = SSL_read(session_->ssl, bytes.data(), static_cast<int>(most));
  bytes.resize(read > 0 ? static_cast<std::size_t>(read) : 0);
  return bytes;
}

void TlsLine::Sip(std::size_t most) { (void)session_->line.Read(most, Milliseconds(0)); }

const std::string& TlsLine::sent() const { return session_->sent; }

std::string RandomBytes(Dice& dice, std::size_t most) {
  std::string bytes(dice() % (most + 1), '\0');
  for (char& byte : bytes) byte = static_cast<char>(dice());
  return bytes;
}

std::string Frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                  std::string_view payload) {
  std::string frame = BigEndian(static_cast<std::uint32_t>(payload.size()), 3);
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  return (frame + BigEndian(stream, 4)).append(payload);
}

std::string Preface(std::uint32_t window) {
  constexpr std::uint32_t kInitialWindow = 4;
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
         Frame(kSettings, 0, 0, BigEndian(kInitialWindow, 2) + BigEndian(window, 4));
}

std::string CallHead(std::uint32_t stream, std::string_view path, std::string_view token) {
  std::string block = Header(":method", "POST") + Header(":scheme", "https") +
                      Header(":path", path) + Header(":authority", "onepiece") +
                      Header("content-type", "application/grpc") + Header("te", "trailers");
  if (!token.empty()) block += Header("authorization", "Bearer " + std::string(token));
  return Frame(kHeaders, kEndHeaders, stream, block);
}

std::string CallBody(std::uint32_t stream) {
  return Frame(0, kEndStream, stream, std::string(5, '\0'));
}

std::string WrongFrame(Dice& dice) {
  std::string frame =
      Frame(static_cast<std::uint8_t>(dice() % 12), static_cast<std::uint8_t>(dice()),
            static_cast<std::uint32_t>(dice() % 9), RandomBytes(dice, 300));
  // Every other frame has a length, a type or a stream that does not go with the rest.
  if (dice() % 2 == 0) frame[dice() % 9] = static_cast<char>(dice());
  return frame;
}

}  // namespace onepiece::ledger
