// Writes configurations, their revisions and what differs between them, for `onepiece config` and
// `onepiece apply`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/config/config_path.h"
#include "cluster/terminal/json.h"
#include "onepiece/v1/cluster_config.pb.h"

namespace onepiece::cli {

using terminal::Json;
using ChangeList = std::vector<v1::ConfigChange>;

/// Returns what the YAML of the message says: only what is set, with short names of enum values.
Json MessageDocument(const google::protobuf::Message& message);
/// Returns a part of a configuration. It is null when the part is not set.
Json ConfigPartDocument(const config::ConfigPart& part);

Json ConfigChangesDocument(const ChangeList& changes);
/// Writes a line for each change, which begins with "+ " (was not set before), "- " (is not set any
/// more) or "~ ", and a line that counts them. Empty when nothing differs.
std::string ConfigChangesText(const ChangeList& changes);

/// Returns everything about a revision but the configuration.
Json ConfigRevisionDocument(const v1::ConfigRevision& revision);
/// Returns the cells of one line: revision, time, author, what, reason.
std::vector<std::string> ConfigRevisionRow(const v1::ConfigRevision& revision);
/// Writes "revision 7 of 2026-01-31 12:00:00 UTC by operator:ann: more diffusion", in one line.
std::string ConfigRevisionTitle(const v1::ConfigRevision& revision);

}  // namespace onepiece::cli
