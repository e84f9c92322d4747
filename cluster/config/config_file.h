// Reads and writes the file of a cluster's configuration, cluster.yaml (docs/configuration.md).
//
// Threading: may be called from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/base/status.h"
#include "onepiece/v1/cluster_config.pb.h"

namespace onepiece::config {

/// The size of the largest file, in bytes.
inline constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

struct ConfigFile {
  v1::ClusterConfig config;
  /// The sections that the file names. One that is named and empty ("alerts: []") empties its
  /// section.
  std::vector<std::string> sections;
};

/// Parses the text of a configuration file. Errors call it `name`.
///
/// Errors: those of ParseYaml, and BAD_CONFIG for a workflow file (with a hint), for a file without
/// any section, and for a section without a value.
absl::StatusOr<ConfigFile> ParseConfigFile(std::string_view text, std::string_view name);

/// Returns the text of a file that ParseConfigFile() reads back with no difference, without what
/// the server sets (Workflow.name).
std::string ConfigFileText(const v1::ClusterConfig& config);

}  // namespace onepiece::config
