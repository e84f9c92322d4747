// A child process for tests in which a process dies, stops or goes on.
#pragma once

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>

namespace onepiece::fabric {

/// A child process, and a socket to it as the control plane. The destructor kills it. REQUIRES: the
/// child needs no thread that the process has when it is made.
///
/// Threading: thread-confined.
class Child {
 public:
  /// `body` opens a fabric of its own and returns the exit code.
  template <typename Body>
  explicit Child(Body body) {
    std::array<int, 2> ends{-1, -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) != 0) return;
    pid_ = fork();
    socket_ = ends[pid_ == 0 ? 1 : 0];
    close(ends[pid_ == 0 ? 0 : 1]);
    if (pid_ == 0) _exit(body(*this));
  }
  ~Child() {
    if (pid_ > 0) {
      Signal(SIGKILL);
      (void)Reap();
    }
    close(socket_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void Signal(int signal) const { kill(pid_, signal); }
  /// Waits until a signal has stopped the child.
  void AwaitStopped() const { waitpid(pid_, nullptr, WUNTRACED); }
  /// Waits until the child ends and returns its exit code; -1 when a signal ended it.
  int Reap() {
    int status = -1;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void Send(const std::string& bytes) const { (void)!write(socket_, bytes.data(), bytes.size()); }
  [[nodiscard]] std::string Receive() const {
    std::array<char, 8192> bytes{};
    const ssize_t size = read(socket_, bytes.data(), bytes.size());
    return {bytes.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
  }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
};

}  // namespace onepiece::fabric
