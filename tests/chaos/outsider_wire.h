// What an outsider sends: TCP connections with a source address of their own, TLS sessions whose
// bytes can be kept, and HTTP/2 frames made by hand, right and wrong.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>

namespace onepiece::ledger {

using Milliseconds = std::chrono::milliseconds;

/// A TCP connection. Thread-confined.
class Line {
 public:
  /// To "host:port", from the address `from` where the target is on the loopback interface.
  /// Blocking: at most a second.
  Line(const std::string& from, const std::string& target);
  /// Resets the connection, so that it leaves nothing on this machine.
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  [[nodiscard]] bool is_open() const { return is_open_; }
  /// Returns false when the peer has ended the connection. What does not fit is left out.
  bool Send(std::string_view bytes);
  /// Returns what has come within the time, at most `most` bytes.
  std::string Read(std::size_t most, Milliseconds limit);

 private:
  int fd_ = -1;
  bool is_open_ = false;
};

/// A TLS 1.3 session over a Line, without a certificate and without a look at the server's.
/// Thread-confined.
class TlsLine {
 public:
  /// Blocking: at most two seconds.
  TlsLine(const std::string& from, const std::string& target);
  ~TlsLine();

  /// Whether the handshake succeeded and the peer has not ended the connection.
  [[nodiscard]] bool is_open() const;
  bool Send(std::string_view bytes);
  /// Decrypts what has come within the time.
  std::string Read(std::size_t most, Milliseconds limit);
  /// Reads raw bytes and drops them, so that the peer's window moves slowly.
  void Sip(std::size_t most);
  /// All bytes that this side has put on the wire.
  [[nodiscard]] const std::string& sent() const;

 private:
  struct Session;
  const std::unique_ptr<Session> session_;
};

using Dice = std::mt19937_64;
std::string RandomBytes(Dice& dice, std::size_t most);

/// HTTP/2: what a client begins with; its windows for streams have `window` bytes.
std::string Preface(std::uint32_t window);
std::string Frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                  std::string_view payload);
/// The head of a call of `path`, with a bearer token unless it is empty.
std::string CallHead(std::uint32_t stream, std::string_view path, std::string_view token);
/// An empty message, which ends the request.
std::string CallBody(std::uint32_t stream);
/// A frame of any kind, often with a length or a stream that cannot be.
std::string WrongFrame(Dice& dice);

}  // namespace onepiece::ledger
