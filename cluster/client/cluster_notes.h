// What people should know of a cluster as a whole.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "onepiece/v1/node_manager.pb.h"

namespace onepiece::client {

struct UnservedStage {
  std::string workflow_set, app_id, stage;
};

/// Returns the stages that no instance serves, of every application that no workflow set serves
/// completely. Sets without a proxy do not count.
std::vector<UnservedStage> UnservedStages(const v1::Cluster& cluster);

/// Returns the ids of the live nodes by the version of their program. A node that does not say its
/// version has the version "".
std::map<std::string, std::vector<std::string>> NodesByVersion(const v1::Cluster& cluster);

/// Says these things for people, one line each: stages that nobody serves, different versions, and
/// a feature level that may be raised. Empty when there is nothing to say.
std::vector<std::string> NotesOn(const v1::Cluster& cluster);

}  // namespace onepiece::client
