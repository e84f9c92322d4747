#include "nodemanager/replication/codec.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/base/status.h"

namespace onepiece::nodemanager {
namespace {

using paxos::Ballot;
using paxos::Slot;

absl::Status Bad(std::string_view field, std::string_view why) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_MESSAGE",
                         absl::StrCat(std::string(field), ": ", std::string(why)),
                         {{"field", std::string(field)}});
}

std::int64_t ToNs(paxos::Time time) { return time.time_since_epoch().count(); }
paxos::Time FromNs(std::int64_t ns) { return paxos::Time(paxos::Duration(ns)); }

void EncodeBallot(const Ballot& ballot, v1::Ballot* out) {
  out->set_round(ballot.round);
  out->set_replica(ballot.replica.value);
}

// Allows 0/0 too, the ballot that was never used.
absl::StatusOr<Ballot> DecodeAnyBallot(const v1::Ballot& ballot, std::string_view field) {
  if (ballot.round() > kMaxRound) return Bad(field, "a round that nobody can have reached");
  if ((ballot.round() == 0) != (ballot.replica() == 0)) return Bad(field, "half a ballot");
  return Ballot{ballot.round(), paxos::ReplicaId{ballot.replica()}};
}

absl::StatusOr<Ballot> DecodeBallot(const v1::Ballot& ballot, std::string_view field) {
  if (ballot.round() == 0) return Bad(field, "missing");
  return DecodeAnyBallot(ballot, field);
}

absl::StatusOr<Slot> DecodeSlot(std::uint64_t encoded, std::string_view field) {
  const Slot slot{encoded};
  if (slot > kMaxSlot) return Bad(field, "a slot that nobody can have reached");
  return slot;
}

absl::Status CheckName(const std::string& text, std::string_view field) {
  if (text.empty()) return Bad(field, "missing");
  if (text.size() > kMaxNameBytes) return Bad(field, "too long");
  return absl::OkStatus();
}

std::shared_ptr<const std::string> Take(std::string* bytes) {
  return std::make_shared<const std::string>(std::move(*bytes));
}

// ---- one Encode and one Decode for each kind of message ----

void Encode(const paxos::PreVote& from, v1::ReplicaMessage& out) {
  v1::PreVote& to = *out.mutable_pre_vote();
  EncodeBallot(from.ballot, to.mutable_ballot());
  to.set_chosen(from.chosen.value);
  EncodeBallot(from.released, to.mutable_released());
}

absl::Status Decode(v1::PreVote& from, paxos::PreVote& to) {
  ONEPIECE_ASSIGN_OR_RETURN(to.ballot, DecodeBallot(from.ballot(), "pre_vote.ballot"));
  ONEPIECE_ASSIGN_OR_RETURN(to.chosen, DecodeSlot(from.chosen(), "pre_vote.chosen"));
  ONEPIECE_ASSIGN_OR_RETURN(to.released, DecodeAnyBallot(from.released(), "pre_vote.released"));
  return absl::OkStatus();
}

void Encode(const paxos::PreVoteReply& from, v1::ReplicaMessage& out) {
  v1::PreVoteReply& to = *out.mutable_pre_vote_reply();
  EncodeBallot(from.ballot, to.mutable_ballot());
  to.set_granted(from.granted);
  EncodeBallot(from.promised, to.mutable_promised());
  to.set_chosen(from.chosen.value);
}

absl::Status Decode(v1::PreVoteReply& from, paxos::PreVoteReply& to) {
  ONEPIECE_ASSIGN_OR_RETURN(to.ballot, DecodeBallot(from.ballot(), "pre_vote_reply.ballot"));
  to.granted = from.granted();
  ONEPIECE_ASSIGN_OR_RETURN(to.promised,
                            DecodeAnyBallot(from.promised(), "pre_vote_reply.promised"));
  ONEPIECE_ASSIGN_OR_RETURN(to.chosen, DecodeSlot(from.chosen(), "pre_vote_reply.chosen"));
  return absl::OkStatus();
}

void Encode(const paxos::Prepare& from, v1::ReplicaMessage& out) {
  v1::Prepare& to = *out.mutable_prepare();
  EncodeBallot(from.ballot, to.mutable_ballot());
  to.set_chosen(from.chosen.value);
  EncodeBallot(from.released, to.mutable_released());
}

absl::Status Decode(v1::Prepare& from, paxos::Prepare& to) {
  ONEPIECE_ASSIGN_OR_RETURN(to.ballot, DecodeBallot(from.ballot(), "prepare.ballot"));
  ONEPIECE_ASSIGN_OR_RETURN(to.chosen, DecodeSlot(from.chosen(), "prepare.chosen"));
  ONEPIECE_ASSIGN_OR_RETURN(to.released, DecodeAnyBallot(from.released(), "prepare.released"));
  return absl::OkStatus();
}

void Encode(const paxos::Promise& from, v1::ReplicaMessage& out) {
  v1::Promise& to = *out.mutable_promise();
  EncodeBallot(from.ballot, to.mutable_ballot());
  to.set_granted(from.granted);
  EncodeBallot(from.promised, to.mutable_promised());
  to.set_chosen(from.chosen.value);
  for (const paxos::AcceptedEntry& accepted : from.accepted) {
    v1::AcceptedLogEntry& entry = *to.add_accepted();
    entry.set_slot(accepted.slot.value);
    EncodeBallot(accepted.ballot, entry.mutable_ballot());
    EncodeEntry(accepted.entry, entry.mutable_entry());
  }
}

absl::Status Decode(v1::Promise& from, paxos::Promise& to) {
  ONEPIECE_ASSIGN_OR_RETURN(to.ballot, DecodeBallot(from.ballot(), "promise.ballot"));
  to.granted = from.granted();
  ONEPIECE_ASSIGN_OR_RETURN(to.promised, DecodeAnyBallot(from.promised(), "promise.promised"));
  ONEPIECE_ASSIGN_OR_RETURN(to.chosen, DecodeSlot(from.chosen(), "promise.chosen"));
  if (from.accepted_size() > kMaxEntries) return Bad("promise.accepted", "too many entries");
  to.accepted.reserve(static_cast<std::size_t>(from.accepted_size()));
  Slot last;
  for (v1::AcceptedLogEntry& accepted : *from.mutable_accepted()) {
    paxos::AcceptedEntry& entry = to.accepted.emplace_back();
    ONEPIECE_ASSIGN_OR_RETURN(entry.slot, DecodeSlot(accepted.slot(), "promise.accepted.slot"));
    if (entry.slot <= last) return Bad("promise.accepted.slot", "not ascending");
    last = entry.slot;
    ONEPIECE_ASSIGN_OR_RETURN(entry.ballot,
                              DecodeBallot(accepted.ballot(), "promise.accepted.ballot"));
    if (!accepted.has_entry()) return Bad("promise.accepted.entry", "missing");
    ONEPIECE_ASSIGN_OR_RETURN(entry.entry, DecodeEntry(std::move(*accepted.mutable_entry())));
  }
  return absl::OkStatus();
}

void Encode(const paxos::Accept& from, v1::ReplicaMessage& out) {
  v1::Accept& to = *out.mutable_accept();
  EncodeBallot(from.ballot, to.mutable_ballot());
  to.set_first(from.first.value);
  for (const paxos::LogEntry& entry : from.entries) EncodeEntry(entry, to.add_entries());
  to.set_chosen(from.chosen.value);
  to.set_sent_ns(ToNs(from.sent));
  to.set_agreed_slot(from.agreed.slot.value);
  to.set_agreed_hash(from.agreed.hash);
}

absl::Status Decode(v1::Accept& from, paxos::Accept& to) {
  ONEPIECE_ASSIGN_OR_RETURN(to.ballot, DecodeBallot(from.ballot(), "accept.ballot"));
  ONEPIECE_ASSIGN_OR_RETURN(to.first, DecodeSlot(from.first(), "accept.first"));
  if (to.first == Slot{}) return Bad("accept.first", "missing");
  if (from.entries_size() > kMaxEntries) return Bad("accept.entries", "too many entries");
  to.entries.reserve(static_cast<std::size_t>(from.entries_size()));
  for (v1::LogEntry& entry : *from.mutable_entries()) {
    ONEPIECE_ASSIGN_OR_RETURN(paxos::LogEntry decoded, DecodeEntry(std::move(entry)));
    to.entries.push_back(std::move(decoded));
  }
  ONEPIECE_ASSIGN_OR_RETURN(to.chosen, DecodeSlot(from.chosen(), "accept.chosen"));
  to.sent = FromNs(from.sent_ns());
  ONEPIECE_ASSIGN_OR_RETURN(to.agreed.slot, DecodeSlot(from.agreed_slot(), "accept.agreed_slot"));
  to.agreed.hash = from.agreed_hash();
  return absl::OkStatus();
}

void Encode(const paxos::Accepted& from, v1::ReplicaMessage& out) {
  v1::Accepted& to = *out.mutable_accepted();
  EncodeBallot(from.ballot, to.mutable_ballot());
  to.set_granted(from.granted);
  EncodeBallot(from.promised, to.mutable_promised());
  to.set_match(from.match.value);
  to.set_sent_ns(ToNs(from.sent));
  to.set_local_ns(ToNs(from.local));
  to.set_version(from.version);
  to.set_hashed_slot(from.hashed.slot.value);
  to.set_state_hash(from.hashed.hash);
}

absl::Status Decode(v1::Accepted& from, paxos::Accepted& to) {
  ONEPIECE_ASSIGN_OR_RETURN(to.ballot, DecodeBallot(from.ballot(), "accepted.ballot"));
  to.granted = from.granted();
  ONEPIECE_ASSIGN_OR_RETURN(to.promised, DecodeAnyBallot(from.promised(), "accepted.promised"));
  ONEPIECE_ASSIGN_OR_RETURN(to.match, DecodeSlot(from.match(), "accepted.match"));
  to.sent = FromNs(from.sent_ns());
  to.local = FromNs(from.local_ns());
  to.version = from.version();
  ONEPIECE_ASSIGN_OR_RETURN(to.hashed.slot, DecodeSlot(from.hashed_slot(), "accepted.hashed_slot"));
  to.hashed.hash = from.state_hash();
  return absl::OkStatus();
}

void Encode(const paxos::InstallSnapshot& from, v1::ReplicaMessage& out) {
  v1::InstallSnapshot& to = *out.mutable_install_snapshot();
  EncodeBallot(from.ballot, to.mutable_ballot());
  if (from.snapshot != nullptr) EncodeSnapshot(*from.snapshot, to.mutable_snapshot());
  to.set_sent_ns(ToNs(from.sent));
}

absl::Status Decode(v1::InstallSnapshot& from, paxos::InstallSnapshot& to) {
  ONEPIECE_ASSIGN_OR_RETURN(to.ballot, DecodeBallot(from.ballot(), "install_snapshot.ballot"));
  if (!from.has_snapshot()) return Bad("install_snapshot.snapshot", "missing");
  if (from.snapshot().state().size() > kMaxSnapshotBytes)
    return Bad("install_snapshot.snapshot.state", "too long");
  ONEPIECE_ASSIGN_OR_RETURN(paxos::Snapshot snapshot,
                            DecodeSnapshot(std::move(*from.mutable_snapshot())));
  to.snapshot = std::make_shared<const paxos::Snapshot>(std::move(snapshot));
  to.sent = FromNs(from.sent_ns());
  return absl::OkStatus();
}

void Encode(const paxos::Join& from, v1::ReplicaMessage& out) {
  v1::Join& to = *out.mutable_join();
  to.set_name(from.name);
  to.set_address(from.address);
  to.set_match(from.match.value);
  to.set_version(from.version);
}

absl::Status Decode(v1::Join& from, paxos::Join& to) {
  ONEPIECE_RETURN_IF_ERROR(CheckName(from.name(), "join.name"));
  ONEPIECE_RETURN_IF_ERROR(CheckName(from.address(), "join.address"));
  to.name = std::move(*from.mutable_name());
  to.address = std::move(*from.mutable_address());
  ONEPIECE_ASSIGN_OR_RETURN(to.match, DecodeSlot(from.match(), "join.match"));
  to.version = from.version();
  return absl::OkStatus();
}

void Encode(const paxos::TakeOver& from, v1::ReplicaMessage& out) {
  EncodeBallot(from.released, out.mutable_take_over()->mutable_released());
}

absl::Status Decode(v1::TakeOver& from, paxos::TakeOver& to) {
  ONEPIECE_ASSIGN_OR_RETURN(to.released, DecodeBallot(from.released(), "take_over.released"));
  return absl::OkStatus();
}

void Encode(const paxos::ReadIndexRequest& from, v1::ReplicaMessage& out) {
  out.mutable_read_index_request()->set_request(from.request);
}

absl::Status Decode(v1::ReadIndexRequest& from, paxos::ReadIndexRequest& to) {
  to.request = from.request();
  return absl::OkStatus();
}

void Encode(const paxos::ReadIndex& from, v1::ReplicaMessage& out) {
  v1::ReadIndex& to = *out.mutable_read_index();
  to.set_request(from.request);
  to.set_granted(from.granted);
  to.set_index(from.index.value);
}

absl::Status Decode(v1::ReadIndex& from, paxos::ReadIndex& to) {
  to.request = from.request();
  to.granted = from.granted();
  ONEPIECE_ASSIGN_OR_RETURN(to.index, DecodeSlot(from.index(), "read_index.index"));
  return absl::OkStatus();
}

}  // namespace

v1::ReplicaMessage EncodeMessage(const paxos::Message& message) {
  v1::ReplicaMessage out;
  std::visit([&](const auto& body) { Encode(body, out); }, message.body);
  return out;
}

absl::StatusOr<paxos::Message> DecodeMessage(v1::ReplicaMessage&& message, paxos::ReplicaId from,
                                             paxos::ReplicaId to) {
  paxos::Message out{.from = from, .to = to};
  const auto decode = [&out](auto* body, auto empty) -> absl::StatusOr<paxos::Message> {
    ONEPIECE_RETURN_IF_ERROR(Decode(*body, empty));
    out.body = std::move(empty);
    return std::move(out);
  };
  switch (message.body_case()) {
    case v1::ReplicaMessage::kPreVote:
      return decode(message.mutable_pre_vote(), paxos::PreVote());
    case v1::ReplicaMessage::kPreVoteReply:
      return decode(message.mutable_pre_vote_reply(), paxos::PreVoteReply());
    case v1::ReplicaMessage::kPrepare:
      return decode(message.mutable_prepare(), paxos::Prepare());
    case v1::ReplicaMessage::kPromise:
      return decode(message.mutable_promise(), paxos::Promise());
    case v1::ReplicaMessage::kAccept:
      return decode(message.mutable_accept(), paxos::Accept());
    case v1::ReplicaMessage::kAccepted:
      return decode(message.mutable_accepted(), paxos::Accepted());
    case v1::ReplicaMessage::kInstallSnapshot:
      return decode(message.mutable_install_snapshot(), paxos::InstallSnapshot());
    case v1::ReplicaMessage::kJoin:
      return decode(message.mutable_join(), paxos::Join());
    case v1::ReplicaMessage::kTakeOver:
      return decode(message.mutable_take_over(), paxos::TakeOver());
    case v1::ReplicaMessage::kReadIndexRequest:
      return decode(message.mutable_read_index_request(), paxos::ReadIndexRequest());
    case v1::ReplicaMessage::kReadIndex:
      return decode(message.mutable_read_index(), paxos::ReadIndex());
    case v1::ReplicaMessage::BODY_NOT_SET:
      break;
  }
  return Bad("body", "empty, or of a newer version");
}

void EncodeEntry(const paxos::LogEntry& entry, v1::LogEntry* out) {
  out->set_kind(static_cast<v1::LogEntry::Kind>(entry.kind));
  out->set_version(entry.version);
  if (entry.payload != nullptr) out->set_payload(*entry.payload);
  EncodeSeats(entry.members, out->mutable_seats());
}

absl::StatusOr<paxos::LogEntry> DecodeEntry(v1::LogEntry&& entry) {
  paxos::LogEntry out;
  out.version = entry.version();
  if (entry.kind() != v1::LogEntry::COMMAND && !entry.payload().empty())
    return Bad("entry.payload", "of an entry that is no command");
  if (entry.kind() != v1::LogEntry::MEMBERS && entry.seats_size() > 0)
    return Bad("entry.seats", "of an entry that does not change the members");
  switch (entry.kind()) {
    case v1::LogEntry::NOOP:
      out.kind = paxos::LogEntry::Kind::kNoop;
      return out;
    case v1::LogEntry::COMMAND:
      if (entry.payload().size() > kMaxPayloadBytes) return Bad("entry.payload", "too long");
      out.kind = paxos::LogEntry::Kind::kCommand;
      out.payload = Take(entry.mutable_payload());
      return out;
    case v1::LogEntry::MEMBERS: {
      if (entry.seats_size() == 0) return Bad("entry.seats", "missing");
      out.kind = paxos::LogEntry::Kind::kMembers;
      ONEPIECE_ASSIGN_OR_RETURN(out.members, DecodeSeats(entry.seats()));
      return out;
    }
    default:
      return Bad("entry.kind", absl::StrCat(static_cast<int>(entry.kind()), " is unknown here"));
  }
}

void EncodeSeats(const paxos::Members& members, google::protobuf::RepeatedPtrField<v1::Seat>* out) {
  for (const paxos::Seat& seat : members.seats) {
    v1::Seat& to = *out->Add();
    to.set_name(seat.name);
    to.set_address(seat.address);
    to.set_replica(seat.replica.value);
  }
}

absl::StatusOr<paxos::Members> DecodeSeats(
    const google::protobuf::RepeatedPtrField<v1::Seat>& seats) {
  if (seats.size() > static_cast<int>(paxos::Members::kMaxSeats))
    return Bad("seats", "too many seats");
  paxos::Members members;
  for (const v1::Seat& seat : seats) {
    ONEPIECE_RETURN_IF_ERROR(CheckName(seat.name(), "seat.name"));
    if (seat.address().size() > kMaxNameBytes) return Bad("seat.address", "too long");
    const paxos::ReplicaId replica{seat.replica()};
    for (const paxos::Seat& other : members.seats) {
      if (other.name == seat.name()) return Bad("seat.name", "not unique");
      if (replica != paxos::ReplicaId{} && other.replica == replica)
        return Bad("seat.replica", "has two seats");
    }
    members.seats.push_back({seat.name(), seat.address(), replica});
  }
  return members;
}

void EncodeSnapshot(const paxos::Snapshot& snapshot, v1::LogSnapshot* out) {
  out->set_index(snapshot.index.value);
  EncodeSeats(snapshot.members, out->mutable_seats());
  if (snapshot.state != nullptr) out->set_state(*snapshot.state);
}

absl::StatusOr<paxos::Snapshot> DecodeSnapshot(v1::LogSnapshot&& snapshot) {
  paxos::Snapshot out;
  ONEPIECE_ASSIGN_OR_RETURN(out.index, DecodeSlot(snapshot.index(), "snapshot.index"));
  ONEPIECE_ASSIGN_OR_RETURN(out.members, DecodeSeats(snapshot.seats()));
  out.state = Take(snapshot.mutable_state());
  return out;
}

}  // namespace onepiece::nodemanager
