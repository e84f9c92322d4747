// The shared parts of the verbs that look at and change the cluster's configuration.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cluster/cli/config_output.h"
#include "cluster/cli/context.h"
#include "cluster/config/config_file.h"
#include "onepiece/v1/cluster_config.pb.h"

namespace onepiece::cli {

/// Reads a configuration file. "-" is the standard input.
///
/// Errors: INVALID_ARGUMENT (BAD_CONFIG).
absl::StatusOr<config::ConfigFile> LoadConfigFile(const std::string& path);

/// Returns what `apply`, `config set` and `config rollback` print of an answer.
Json AppliedDocument(const v1::ApplyConfigResponse& response, bool dry_run);
std::string AppliedText(const v1::ApplyConfigResponse& response, bool dry_run);

}  // namespace onepiece::cli
