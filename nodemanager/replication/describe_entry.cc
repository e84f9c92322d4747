#include "nodemanager/replication/describe_entry.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "onepiece/v1/node_manager_state.pb.h"

namespace onepiece::nodemanager {
namespace {

// Fills in the kind of the command, such as "register_node", and what it is about.
void DescribeCommand(const std::string& payload, v1::ListLogResponse::Line& line) {
  v1::Command command;
  const google::protobuf::OneofDescriptor& changes = *v1::Command::descriptor()->oneof_decl(0);
  const google::protobuf::FieldDescriptor* change =
      command.ParseFromString(payload)
          ? command.GetReflection()->GetOneofFieldDescriptor(command, &changes)
          : nullptr;
  line.set_kind(change != nullptr ? change->name() : "unknown");
  line.set_time_unix_ms(command.time_unix_ms());
  if (command.has_register_node()) line.set_subject(command.register_node().node_id());
  if (command.has_end_node()) line.set_subject(command.end_node().node_id());
  if (command.has_set_node_state()) line.set_subject(command.set_node_state().node_id());
  if (command.has_apply_workflow()) line.set_subject(command.apply_workflow().app_id());
  if (command.change_case() == v1::Command::kDeleteWorkflow)
    line.set_subject(command.delete_workflow());
  if (command.has_begin_generation()) line.set_subject(command.begin_generation().cause());
  if (command.has_initialize()) line.set_subject(command.initialize().cluster_id());
}

}  // namespace

v1::ListLogResponse::Line DescribeEntry(const paxos::AcceptedEntry& accepted) {
  v1::ListLogResponse::Line line;
  line.set_slot(accepted.slot.value);
  line.set_round(accepted.ballot.round);
  const paxos::LogEntry& entry = accepted.entry;
  line.set_bytes(static_cast<std::int64_t>(entry.payload ? entry.payload->size() : 0));
  switch (entry.kind) {
    case paxos::LogEntry::Kind::kNoop:
      line.set_kind("noop");
      break;
    case paxos::LogEntry::Kind::kMembers: {
      line.set_kind("members");
      std::string names;
      for (const paxos::Seat& seat : entry.members.seats) {
        absl::StrAppend(&names, names.empty() ? "" : " ", seat.name,
                        seat.replica == paxos::ReplicaId{} ? " (vacant)" : "");
      }
      line.set_subject(names);
      break;
    }
    case paxos::LogEntry::Kind::kCommand:
      DescribeCommand(*entry.payload, line);
      break;
  }
  return line;
}

}  // namespace onepiece::nodemanager
