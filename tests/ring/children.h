// Producers as real processes: forked children, memory that they share with the test, and for each
// a socket as its control plane.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "cluster/base/check.h"
#include "cluster/fabric/fabric.h"
#include "cluster/ring/consumer.h"
#include "cluster/ring/producer.h"

namespace onepiece::ring {

/// Makes a zeroed T in memory that children share. It lives until the process ends.
template <typename T>
T* NewShared() {
  void* memory =
      mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ONEPIECE_CHECK(memory != MAP_FAILED);
  return new (memory) T();
}

/// A child process, and the test's end of the socket to it.
struct Child {
  pid_t pid = -1;
  int fd = -1;
  Child() = default;
  ~Child() { Reap(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void Reap() {
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
      close(fd);
    }
    pid = -1;
  }
};

/// Runs body(socket) in a child. REQUIRES: this process has one thread.
template <typename Body>
void Spawn(Child& child, Body body) {
  int fds[2];
  ONEPIECE_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0);
  child.pid = fork();
  ONEPIECE_CHECK(child.pid >= 0);
  if (child.pid == 0) {
    close(fds[0]);
    body(fds[1]);
    _exit(0);
  }
  close(fds[1]);
  child.fd = fds[0];
}

struct Request {
  std::uint64_t producer_id;
  std::uint64_t incarnation;
  std::array<char, 256> offer;  // Serialised, with zeros behind it.
  std::size_t offer_bytes;
};

/// Asks for enrollment over `fd`. Returns null when it is refused. Ends the process when nobody
/// answers.
inline std::unique_ptr<Producer> ConnectInChild(int fd, fabric::Fabric& fabric, std::uint64_t id,
                                                std::atomic<std::uint64_t>& incarnation) {
  const auto dialer = *fabric.Dial();
  const std::string offer = dialer->offer().Serialize();
  Request request{id, ++incarnation, {}, offer.size()};
  ONEPIECE_CHECK(offer.size() <= request.offer.size());
  std::ranges::copy(offer, request.offer.begin());
  if (write(fd, &request, sizeof request) != sizeof request) _exit(2);
  std::array<char, 1024> answer;
  const ssize_t size = read(fd, answer.data(), answer.size());
  if (size <= 0) _exit(2);
  auto grant = ProducerGrant::Parse({answer.data(), static_cast<std::size_t>(size)});
  if (!grant.ok()) return nullptr;
  auto producer = Producer::Connect(*dialer, *grant);
  return producer.ok() ? *std::move(producer) : nullptr;
}

/// Answers at most one request that waits on `fd`.
inline void Serve(Consumer& consumer, int fd) {
  Request request;
  if (recv(fd, &request, sizeof request, MSG_DONTWAIT) != sizeof request) return;
  auto grant = consumer.Enroll(
      {.producer_id = ProducerId(request.producer_id),
       .incarnation = Incarnation(request.incarnation),
       .offer = *fabric::Offer::Parse({request.offer.data(), request.offer_bytes})});
  const std::string answer = grant.ok() ? grant->Serialize() : "refused";
  (void)!write(fd, answer.data(), answer.size());
}

}  // namespace onepiece::ring
