#include "tests/nodemanager/paxos/sim/network.h"

#include "absl/strings/str_cat.h"

namespace onepiece::paxos::sim {
namespace {

std::string BallotText(Ballot ballot) {
  return absl::StrCat(ballot.round, "/", absl::Hex(ballot.replica.value >> 48));
}

struct Words {
  std::string operator()(const PreVote& m) const {
    return absl::StrCat("PreVote ", BallotText(m.ballot), " chosen ", m.chosen.value);
  }
  std::string operator()(const PreVoteReply& m) const {
    return absl::StrCat("PreVoteReply ", BallotText(m.ballot), m.granted ? " granted" : " refused");
  }
  std::string operator()(const Prepare& m) const {
    return absl::StrCat("Prepare ", BallotText(m.ballot), " chosen ", m.chosen.value);
  }
  std::string operator()(const Promise& m) const {
    return absl::StrCat("Promise ", BallotText(m.ballot), m.granted ? " granted" : " refused",
                        ", promised ", BallotText(m.promised), ", ", m.accepted.size(),
                        " accepted");
  }
  std::string operator()(const Accept& m) const {
    return absl::StrCat("Accept ", BallotText(m.ballot), " ", m.entries.size(), " from ",
                        m.first.value, " chosen ", m.chosen.value);
  }
  std::string operator()(const Accepted& m) const {
    return absl::StrCat("Accepted ", BallotText(m.ballot), m.granted ? " granted" : " refused",
                        " match ", m.match.value);
  }
  std::string operator()(const InstallSnapshot& m) const {
    return absl::StrCat("InstallSnapshot ", BallotText(m.ballot), " to ", m.snapshot->index.value);
  }
  std::string operator()(const Join& m) const {
    return absl::StrCat("Join ", m.name, " match ", m.match.value);
  }
  std::string operator()(const TakeOver& m) const {
    return absl::StrCat("TakeOver ", BallotText(m.released));
  }
  std::string operator()(const ReadIndexRequest& m) const {
    return absl::StrCat("ReadIndexRequest ", m.request);
  }
  std::string operator()(const ReadIndex& m) const {
    return absl::StrCat("ReadIndex ", m.request, m.granted ? " granted " : " refused ",
                        m.index.value);
  }
};

}  // namespace

std::string Describe(const Message& message) { return std::visit(Words(), message.body); }

std::optional<std::size_t> Network::HostOf(ReplicaId replica) const {
  for (const auto& [id, host] : homes_) {
    if (id == replica) return host;
  }
  return std::nullopt;
}

std::optional<Nanos> Network::Delay() {
  if (c_.random.Chance(c_.plan.loss)) {
    c_.tally.Count(Fault::kLoss);
    return std::nullopt;
  }
  Nanos delay = c_.plan.latency + c_.random.Exponential(c_.plan.jitter);
  if (c_.random.Chance(c_.plan.reorder)) {
    c_.tally.Count(Fault::kReorder);
    delay += c_.random.Exponential(c_.plan.reorder_delay);
  }
  return delay;
}

void Network::SendOver(std::size_t from, std::size_t to, Sent sent) {
  const Link& link = At(from, to);
  if (link.cut_until > c_.now) return;
  const bool twice = c_.random.Chance(c_.plan.duplicate);
  if (twice) c_.tally.Count(Fault::kDuplicate);
  for (int copy = 0; copy < (twice ? 2 : 1); ++copy) {
    const auto delay = Delay();
    if (!delay) continue;
    Nanos at = c_.now + *delay;
    if (link.slow_until > c_.now) at += link.extra;
    if (link.clogged_until > at) at = link.clogged_until + *delay;
    c_.events.Push(at, Event::Kind::kMessage, to, messages_.Put(sent));
  }
}

void Network::Send(std::size_t from, Sent sent) {
  if (sent.message.to != ReplicaId{}) {
    if (const auto to = HostOf(sent.message.to)) SendOver(from, *to, std::move(sent));
    return;
  }
  for (std::size_t to = 0; to < hosts_; ++to) {
    if (to != from) SendOver(from, to, sent);
  }
}

void Network::Send(std::size_t host, const Request& request) {
  if (const auto delay = Delay()) {
    c_.events.Push(c_.now + *delay, Event::Kind::kRequest, host, requests_.Put(request));
  }
}

void Network::Send(const Reply& reply) {
  if (const auto delay = Delay()) {
    c_.events.Push(c_.now + *delay, Event::Kind::kReply, reply.client, replies_.Put(reply));
  }
}

void Network::Cut(std::size_t from, std::size_t to, Nanos until) {
  At(from, to).cut_until = std::max(At(from, to).cut_until, until);
}

void Network::Clog(std::size_t from, std::size_t to, Nanos until) {
  At(from, to).clogged_until = until;
}

void Network::Slow(std::size_t from, std::size_t to, Nanos until, Nanos extra) {
  At(from, to).slow_until = until;
  At(from, to).extra = extra;
}

void Network::Calm() { c_.plan.loss = c_.plan.duplicate = c_.plan.reorder = 0; }

}  // namespace onepiece::paxos::sim
