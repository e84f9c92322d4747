// What differs between two configurations of a cluster, and which sections one has
// (docs/configuration.md).
//
// Threading: may be called from any thread.
#pragma once

#include <string>
#include <vector>

#include "cluster/base/status.h"
#include "onepiece/v1/cluster_config.pb.h"

namespace onepiece::config {

/// A change shows at most this many bytes of a value, and "…" when there are more.
inline constexpr std::size_t kMaxShownValue = 200;

/// The sections: the names of ClusterConfig's fields, in their order.
std::vector<std::string> ConfigSections();
/// The sections that `config` has. A list has at least one element.
std::vector<std::string> SectionsOf(const v1::ClusterConfig& config);
/// What differs, field by field, in the order of the fields.
///
/// Elements of lists are compared by their names (an application by its id, a stage by its name).
/// The order matters for alert rules and for all lists of an application: when elements that both
/// sides have come in another order, the list itself is a change from "[a, b]" to "[b, a]". Lists
/// whose elements have no names, or not one each, are compared as a whole. Workflow.name is left
/// out, because the server sets it.
std::vector<v1::ConfigChange> ConfigChanges(const v1::ClusterConfig& before,
                                            const v1::ClusterConfig& after);

/// Returns the field by which elements of a list are told apart. Null: they have no names.
const google::protobuf::FieldDescriptor* ElementNameField(
    const google::protobuf::FieldDescriptor& list);

}  // namespace onepiece::config
