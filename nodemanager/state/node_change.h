// The scope in which a command changes the record of a node. Private to this folder.
#pragma once

#include <string>

#include "nodemanager/state/resizing.h"
#include "nodemanager/state/state_machine.h"

namespace onepiece::nodemanager {

/// See the declaration in StateMachine.
///
/// Ownership: borrows both. The record must be one of `machine`.
class StateMachine::NodeChange {
 public:
  NodeChange(StateMachine& machine, const v1::NodeRecord& record)
      : machine_(machine),
        record_(record),
        resizing_(machine.bytes_, record),
        set_(record.node().workflow_set()),
        part_(machine.RoutingPart(record)) {}
  ~NodeChange() {
    const std::string& set = record_.node().workflow_set();
    if (set == set_ && machine_.RoutingPart(record_) == part_) return;
    for (const std::string& changed : {set_, set}) {
      if (!changed.empty()) machine_.changed_sets_.names.insert(changed);
    }
  }
  NodeChange(const NodeChange&) = delete;
  NodeChange& operator=(const NodeChange&) = delete;

 private:
  StateMachine& machine_;
  const v1::NodeRecord& record_;
  const Resizing resizing_;
  const std::string set_, part_;
};

}  // namespace onepiece::nodemanager
