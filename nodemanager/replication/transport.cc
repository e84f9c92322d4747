#include "nodemanager/replication/transport.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/rpc/status.h"
#include "nodemanager/replication/codec.h"
#include "nodemanager/replication/peer.h"

namespace onepiece::nodemanager {
namespace {

// At most this many replicas are remembered, with or without a seat.
constexpr std::size_t kMaxSpeakers = 16;
static_assert(kMaxSpeakers > paxos::Members::kMaxSeats);
// When a replica's open streams are silent for this long, its host may have vanished, and another
// process may speak as this replica. Leaders and followers speak at every heartbeat, and learners
// as often as they ask to join.
constexpr auto kSpeakerSilent = std::chrono::seconds(2);

absl::Status Refusal(std::string_view reason, const std::string& message) {
  return base::MakeError(absl::StatusCode::kFailedPrecondition, reason, message);
}

}  // namespace

Transport::Transport(Hooks hooks, base::Clock& clock)
    : hooks_(std::move(hooks)), clock_(clock), boot_(base::RandomU64()) {}

Transport::~Transport() { Stop(); }

void Transport::Start(const Self& self) {
  const base::MutexLock lock(mutex_);
  self_ = self;
  started_ = true;
}

void Transport::SetPeers(const paxos::Members& members, const std::vector<std::string>& addresses) {
  {
    const base::MutexLock lock(mutex_);
    for (const paxos::Seat& seat : members.seats) {
      // A changed address of the seat is newer than what its replica said when it connected.
      const paxos::Seat* before = members_.Find(seat.replica);
      if (before != nullptr && before->address != seat.address) found_.erase(seat.replica);
    }
    members_ = members;
    addresses_ = {addresses.begin(), addresses.end()};
    for (const paxos::Seat& seat : members.seats) addresses_.insert(seat.address);
    addresses_.erase(self_.address);
    addresses_.erase("");
  }
  EndPeers([&](const PeerKey& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return peer.first == paxos::ReplicaId{} &&
           (members_.Votes(self_.replica) || !addresses_.contains(peer.second));
  });
  EndOutdatedPeers();
}

// Where messages to `replica` go, or null when nobody knows where it is.
const std::string* Transport::AddressOf(paxos::ReplicaId replica) const {
  if (const auto found = found_.find(replica); found != found_.end()) return &found->second;
  const paxos::Seat* seat = members_.Find(replica);
  return seat != nullptr ? &seat->address : nullptr;
}

std::string Transport::FoundAt(paxos::ReplicaId replica) const {
  const base::MutexLock lock(mutex_);
  const auto found = found_.find(replica);
  return found != found_.end() ? found->second : "";
}

// Ends the connections to which nothing will be sent any more, because their replica has gone or is
// elsewhere.
void Transport::EndOutdatedPeers() {
  EndPeers([&](const PeerKey& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (peer.first == paxos::ReplicaId{}) return false;
    const std::string* address = AddressOf(peer.first);
    return address == nullptr || *address != peer.second;
  });
}

void Transport::SetGroup(const std::string& cluster_id, GroupId group) {
  {
    const base::MutexLock lock(mutex_);
    self_.cluster_id = cluster_id;
    self_.group = group;
  }
  // Every stream began with a hello that named no group, so all of them must begin anew.
  EndPeers([](const PeerKey&) { return true; });
}

// A peer's destructor joins its thread. `ended` is destroyed after the lock is released, so nobody
// else waits for that. A Send() that is under way may be the last to let the peer go.
void Transport::EndPeers(const std::function<bool(const PeerKey&)>& ends) {
  std::vector<std::shared_ptr<Peer>> ended;
  const base::MutexLock lock(mutex_);
  for (auto it = peers_.begin(); it != peers_.end();) {
    if (!ends(it->first)) {
      ++it;
      continue;
    }
    ended.push_back(std::move(it->second));
    it = peers_.erase(it);
  }
}

std::shared_ptr<Peer> Transport::FindPeer(paxos::ReplicaId replica, const std::string& address) {
  std::shared_ptr<Peer>& peer = peers_[{replica, address}];
  if (peer == nullptr) {
    v1::ReplicaHello hello;
    hello.set_cluster_id(self_.cluster_id);
    hello.set_name(self_.name);
    hello.set_address(self_.address);
    hello.set_replica(self_.replica.value);
    hello.set_boot(boot_);
    hello.set_to(replica.value);
    hello.set_group(self_.group.value);
    peer = std::make_shared<Peer>(address, hello, clock_);
  }
  return peer;
}

void Transport::Send(std::vector<paxos::Message> messages) {
  if (messages.empty()) return;
  // Peers write without mutex_, so that nobody who receives waits for that.
  std::vector<std::pair<std::shared_ptr<Peer>, std::shared_ptr<const EncodedMessage>>> sent;
  {
    const base::MutexLock lock(mutex_);
    if (!started_ || stopped_) return;
    std::shared_ptr<const EncodedMessage> last;
    for (paxos::Message& message : messages) {
      const paxos::ReplicaId to = message.to;
      // A leader says the same to its followers, one after another.
      if (last == nullptr || !last->Says(message))
        last = std::make_shared<const EncodedMessage>(std::move(message));
      if (to == paxos::ReplicaId{}) {
        for (const std::string& address : addresses_)
          sent.emplace_back(FindPeer(to, address), last);
      } else if (const std::string* address = AddressOf(to); address != nullptr) {
        sent.emplace_back(FindPeer(to, *address), last);
      }
    }
  }
  for (auto& [peer, message] : sent) peer->Send(std::move(message));
}

void Transport::Stop() {
  {
    const base::MutexLock lock(mutex_);
    stopped_ = true;
    for (grpc::CallbackServerContext* stream : streams_) stream->TryCancel();
  }
  EndPeers([](const PeerKey&) { return true; });
}

absl::Status Transport::CheckGroup(const v1::ReplicaHello& hello) const {
  if (!hello.cluster_id().empty() && !self_.cluster_id.empty() &&
      hello.cluster_id() != self_.cluster_id) {
    return Refusal("OTHER_CLUSTER",
                   absl::StrCat(self_.name, " belongs to cluster '", self_.cluster_id, "', ",
                                hello.name(), " to '", hello.cluster_id(), "'"));
  }
  // Operators begin a new group under the old cluster's name when a majority is lost. A disk of the
  // old group holds other entries under the same slots. Its answers would undo what the new group
  // has acknowledged, so it must stay out.
  const GroupId group{hello.group()};
  if (group != GroupId{} && self_.group != GroupId{} && group != self_.group) {
    return Refusal(
        "OTHER_CLUSTER",
        absl::StrCat(self_.name, " at ", self_.address, " and ", hello.name(), " at ",
                     hello.address(), " belong to two groups of the same cluster name, '",
                     self_.cluster_id,
                     "': move the data folder away of the one that does not belong here"));
  }
  return absl::OkStatus();
}

absl::Status Transport::RegisterSpeaker(const v1::ReplicaHello& hello) {
  const base::MutexLock lock(mutex_);
  if (!started_ || stopped_) {
    return base::MakeError(absl::StatusCode::kUnavailable, "NOT_STARTED",
                           "this replica is starting or ending");
  }
  const paxos::ReplicaId replica{hello.replica()}, to{hello.to()};
  if (replica == paxos::ReplicaId{} || hello.boot() == 0 || hello.address().empty() ||
      hello.address().size() > kMaxNameBytes || hello.name().size() > kMaxNameBytes) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_HELLO",
                           "a stream begins with who speaks");
  }
  ONEPIECE_RETURN_IF_ERROR(CheckGroup(hello));
  if (replica == self_.replica) {
    return Refusal("DUPLICATE_REPLICA",
                   absl::StrCat(hello.name(), " at ", hello.address(), " uses the replica id of ",
                                self_.name, " at ", self_.address,
                                ": never copy a data folder; move it away and start again"));
  }
  if (to != paxos::ReplicaId{} && to != self_.replica) {
    return Refusal("WRONG_REPLICA",
                   absl::StrCat("replica ", to.value, " is not at ", self_.address, " any more, ",
                                self_.name, " is here as replica ", self_.replica.value));
  }
  // Two processes with one replica id could promise against each other. The id of the process that
  // speaks now stays taken until it has been silent for a while.
  const base::MonotonicTime now = clock_.Now();
  const auto known = speakers_.find(replica);
  if (known != speakers_.end() && known->second.boot != hello.boot() && known->second.streams > 0 &&
      now - known->second.heard < base::Scaled(kSpeakerSilent)) {
    return Refusal("DUPLICATE_REPLICA",
                   absl::StrCat("another process speaks as replica ", replica.value, " (",
                                hello.name(), " at ", hello.address(),
                                "): never copy a data folder; move it away and start again"));
  }
  if (known == speakers_.end() && speakers_.size() >= kMaxSpeakers) ForgetStranger();
  Speaker& speaker = speakers_[replica];
  if (speaker.boot != hello.boot()) speaker = {.boot = hello.boot()};
  speaker.heard = now;
  ++speaker.streams;
  found_[replica] = hello.address();
  return absl::OkStatus();
}

// A member stays known, whoever else speaks: where it is must not be forgotten, and no other
// process may take its id. There are fewer seats than kMaxSpeakers, so somebody else is always
// there.
void Transport::ForgetStranger() {
  auto oldest = speakers_.end();
  for (auto at = speakers_.begin(); at != speakers_.end(); ++at) {
    if (members_.Votes(at->first)) continue;
    if (oldest == speakers_.end() || at->second.heard < oldest->second.heard) oldest = at;
  }
  if (oldest == speakers_.end()) return;
  found_.erase(oldest->first);
  speakers_.erase(oldest);
}

void Transport::ReleaseSpeaker(const v1::ReplicaHello& hello) {
  const base::MutexLock lock(mutex_);
  const auto speaker = speakers_.find(paxos::ReplicaId{hello.replica()});
  // A newer process of the same replica counts its streams from 0. A stream of the process before
  // must not be taken off that count.
  if (speaker != speakers_.end() && speaker->second.boot == hello.boot()) --speaker->second.streams;
}

absl::Status Transport::Take(const v1::ReplicaHello& hello, v1::ReplicaEnvelope& envelope) {
  const paxos::ReplicaId from{hello.replica()}, to{hello.to()};
  paxos::ReplicaId self;
  bool strangers = false;  // One of the two has no group yet. Then nothing but a Join counts.
  bool invited = false;
  {
    const base::MutexLock lock(mutex_);
    if (stopped_) return absl::CancelledError("this replica ends");
    self = self_.replica;
    // This replica may have joined another group since it let the stream in.
    ONEPIECE_RETURN_IF_ERROR(CheckGroup(hello));
    strangers = hello.group() == 0 || self_.group == GroupId{};
    invited = self_.group == GroupId{} && hello.group() != 0 && to == self;
    if (const auto speaker = speakers_.find(from);
        speaker != speakers_.end() && speaker->second.boot == hello.boot())
      speaker->second.heard = clock_.Now();
  }
  if (invited) hooks_.invited(hello.cluster_id(), GroupId{hello.group()});
  for (v1::ReplicaMessage& encoded : *envelope.mutable_messages()) {
    // A newer program sent a kind of message that this one does not know.
    if (encoded.body_case() == v1::ReplicaMessage::BODY_NOT_SET) continue;
    ONEPIECE_ASSIGN_OR_RETURN(paxos::Message message,
                              DecodeMessage(std::move(encoded), from, self));
    if (strangers && !std::holds_alternative<paxos::Join>(message.body)) continue;
    hooks_.receive(std::move(message));
  }
  return absl::OkStatus();
}

// One incoming stream. gRPC calls it on one thread at a time, and it deletes itself.
class Transport::Incoming final : public grpc::ServerReadReactor<v1::ReplicaEnvelope> {
 public:
  Incoming(Transport& transport, grpc::CallbackServerContext& context)
      : transport_(transport), context_(context) {
    {
      const base::MutexLock lock(transport_.mutex_);
      transport_.streams_.insert(&context_);
      // Stop() cancels only the streams that it finds. This one may have come too late for that.
      if (transport_.stopped_) context_.TryCancel();
    }
    StartRead(&envelope_);
  }

  void OnReadDone(bool ok) override {
    const absl::Status status = ok ? TakeEnvelope() : absl::OkStatus();
    if (ok && status.ok()) {
      envelope_.Clear();
      return StartRead(&envelope_);
    }
    if (registered_) transport_.ReleaseSpeaker(hello_);
    Finish(rpc::ToGrpc(status));
  }
  void OnDone() override {
    {
      const base::MutexLock lock(transport_.mutex_);
      // gRPC destroys the context after this call, and Stop() cancels under the same lock. So
      // Stop() never touches a context that is gone.
      transport_.streams_.erase(&context_);
    }
    delete this;
  }

 private:
  absl::Status TakeEnvelope() {
    if (registered_) return transport_.Take(hello_, envelope_);
    hello_ = envelope_.hello();
    const absl::Status status = transport_.RegisterSpeaker(hello_);
    registered_ = status.ok();
    if (registered_) {
      // The hello may name a new address. The connection to the old one is of no use any more.
      transport_.EndOutdatedPeers();
    } else if (status.code() == absl::StatusCode::kFailedPrecondition) {
      spdlog::debug("op=refuse_peer name={} address={} error=\"{}\"", hello_.name(),
                    hello_.address(), base::Message(status));
    }
    return status;
  }

  Transport& transport_;
  grpc::CallbackServerContext& context_;
  v1::ReplicaEnvelope envelope_;
  v1::ReplicaHello hello_;
  bool registered_ = false;
};

grpc::ServerReadReactor<v1::ReplicaEnvelope>* Transport::Exchange(
    grpc::CallbackServerContext* context, google::protobuf::Empty*) {
  return new Incoming(*this, *context);
}

}  // namespace onepiece::nodemanager
