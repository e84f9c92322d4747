// Network namespaces: hosts of a test that are all on this machine.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/program.h"

namespace onepiece::testing {

inline Outcome Ip(const QStringList& arguments) { return RunProgram(FindProgram("ip"), arguments); }

inline constexpr char kNamespacePrefix[] = "onepiece-test-";

/// Namespace of the host `host` of this process's test.
inline QString NamespaceName(const QString& host) {
  return kNamespacePrefix + QString::number(getpid()) + "-" + host;
}

/// Namespaces of tests that were killed before they could tidy up. Their process's number may be
/// another process's by now, or ours.
inline void RemoveForgottenNamespaces() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/run/netns", error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kNamespacePrefix)) continue;
    const int pid = std::atoi(name.c_str() + sizeof kNamespacePrefix - 1);
    if (pid == getpid() || kill(pid, 0) != 0) Ip({"netns", "del", QString::fromStdString(name)});
  }
}

}  // namespace onepiece::testing
