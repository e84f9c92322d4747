// An open file, socket or event, owned.
#pragma once

#include <unistd.h>

#include <utility>

namespace onepiece::base {

/// Closes the descriptor at its end. A value that moves; thread-confined.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  /// Takes over `fd`, as the system's calls return it: negative means none.
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { Close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  /// Closes it now.
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace onepiece::base
