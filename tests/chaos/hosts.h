// A switch with a few hosts on it, all on this machine: each host is a network namespace, and so
// is this process's own place beside them.
#pragma once

#include <string>
#include <vector>

#include "tests/netns.h"

namespace onepiece::chaos {

/// Ownership: Owns the namespaces: gone with the object, or with the next run of a test.
/// Threading: Thread-confined. Make() moves the calling thread and those that it starts later, so
/// it comes before any thread that uses the network.
/// Errors: As text, in the words of the system; empty: none.
class Hosts {
 public:
  explicit Hosts(int count) : count_(count) {}
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  /// False: this process may not, or the kernel cannot.
  bool Make(std::string& why);
  /// Connects them. REQUIRES: Make().
  std::string Join();

  [[nodiscard]] int count() const { return count_; }
  /// The namespace of a host, 0 to count - 1.
  [[nodiscard]] static QString Name(int host);
  /// Its IPv4 address.
  [[nodiscard]] static std::string Address(int host);

  /// Pulls the host's cable, or plugs it in again: the kernel knows.
  std::string SetLink(int host, bool up);
  /// Loses packets of the host without telling anybody: `where` is "input" or "output",
  /// `from_or_to` narrows it to one other host. One filter a host at a time.
  std::string Drop(int host, const QString& where, const std::string& from_or_to = "");
  std::string DropNothing(int host);

 private:
  static std::string Nft(int host, const QString& rules);
  const int count_;
};

}  // namespace onepiece::chaos
