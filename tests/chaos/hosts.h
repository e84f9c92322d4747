// A switch with a few hosts, all on this machine. Each host is a network namespace, and this
// process has one too.
#pragma once

#include <string>
#include <vector>

#include "tests/netns.h"

namespace onepiece::chaos {

/// Ownership: owns the namespaces. They go with the object, or with the next run of a test.
///
/// Threading: thread-confined. Make() moves the calling thread and those that it starts later, so
/// it comes before any thread that uses the network.
///
/// Errors: as the system's text. An empty text means success.
class Hosts {
 public:
  explicit Hosts(int count) : count_(count) {}
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  /// Returns false if this process has no permission, or the kernel lacks support.
  bool Make(std::string& why);
  /// Connects them. REQUIRES: Make().
  std::string Join();

  [[nodiscard]] int count() const { return count_; }
  /// Returns the namespace of a host, 0 to count - 1.
  [[nodiscard]] static QString Name(int host);
  /// Returns its IPv4 address.
  [[nodiscard]] static std::string Address(int host);

  /// Pulls the host's cable, or plugs it in again. The kernel notices.
  std::string SetLink(int host, bool up);
  /// Drops packets of the host silently. `where` is "input" or "output", and `from_or_to` narrows
  /// the filter to one other host. A host has one filter at a time.
  std::string Drop(int host, const QString& where, const std::string& from_or_to = "");
  std::string DropNothing(int host);

 private:
  static std::string Nft(int host, const QString& rules);
  const int count_;
};

}  // namespace onepiece::chaos
