#include "tests/nodemanager/paxos/sim/client.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace onepiece::paxos::sim {

Clients::Clients(Context& context, Network& network, std::size_t hosts)
    : c_(context), network_(network), choices_(hosts), clients_(context.plan.clients) {
  std::iota(choices_.begin(), choices_.end(), std::size_t{0});
}

void Clients::Start() {
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    SetTimer(i, c_.random.Exponential(c_.plan.think));
  }
}

void Clients::SetTimer(std::size_t index, Nanos after) {
  c_.events.Push(c_.now + after, Event::Kind::kClient, index, ++clients_[index].generation);
}

void Clients::Begin(std::size_t index) {
  Client& client = clients_[index];
  Request& request = client.request;
  request = {.client = static_cast<std::uint32_t>(index), .number = ++client.number};
  request.group = c_.group;
  request.key = static_cast<std::uint32_t>(c_.random.Below(ToyState::kKeys));
  if (!c_.random.Chance(c_.plan.reads)) {
    request.kind =
        c_.random.Chance(0.5) ? Operation::Kind::kWrite : Operation::Kind::kCompareAndSet;
    request.expected = client.seen[request.key];
    request.written = ++last_value_;
  }
  client.busy = true;
  client.called = c_.now;
  client.known_epoch = c_.invariants.newest_epoch();
  Ask(index);
}

void Clients::Ask(std::size_t index) {
  Client& client = clients_[index];
  client.elsewhere = true;
  network_.Send(client.host, client.request);
  if (c_.random.Chance(c_.plan.hedge)) {
    network_.Send(AnyHost(), client.request);
  }
  SetTimer(index, c_.plan.patience);
}

void Clients::TimerFired(std::size_t index, std::uint32_t generation) {
  Client& client = clients_[index];
  if (generation != client.generation) return;
  if (!client.busy) {
    if (!stopped_) Begin(index);
    return;
  }
  if (c_.now - client.called > c_.plan.give_up) {
    ++c_.tally.unknown;
    End(index, Operation::kNever, 0);
    return;
  }
  if (client.elsewhere) client.host = AnyHost();
  Ask(index);
}

void Clients::Receive(const Reply& reply) {
  Client& client = clients_[reply.client];
  if (!client.busy || reply.number != client.request.number) return;
  if (reply.kind != Reply::Kind::kDone) {
    if (reply.hint) client.host = *reply.hint;
    client.elsewhere = reply.kind == Reply::Kind::kNotLeader && !reply.hint;
    SetTimer(reply.client, c_.random.Between(5, 40) * kMillisecond);
    return;
  }
  c_.invariants.Answers(client.known_epoch, reply.result.epoch);
  const Request& request = client.request;
  client.seen[request.key] = reply.result.before;
  if (request.kind == Operation::Kind::kRead) {
    ++c_.tally.reads;
  } else {
    ++c_.tally.commands;
    client.acknowledged = request.number;
    newest_call_ = std::max(newest_call_, client.called);
    if (request.kind == Operation::Kind::kWrite || reply.result.before == request.expected) {
      client.seen[request.key] = request.written;
    }
  }
  End(reply.client, c_.now, reply.result.before);
}

void Clients::End(std::size_t index, Nanos returned, std::uint64_t before) {
  Client& client = clients_[index];
  const Request& request = client.request;
  std::vector<Operation>& history = histories_.back();
  history.push_back({request.kind, request.client, request.key, request.expected, request.written,
                     before, client.called, returned});
  if (c_.trace.on()) c_.trace.Line(c_.now, "client", Describe(history.back()));
  client.busy = false;
  SetTimer(index, c_.random.Exponential(c_.plan.think));
}

void Clients::Abandon() {
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    if (!clients_[i].busy) continue;
    ++c_.tally.unknown;
    End(i, Operation::kNever, 0);
  }
}

void Clients::Close() {
  stopped_ = true;
  Abandon();
}

void Clients::BeginGeneration(const ToyState& state) {
  Abandon();
  std::vector<Operation>& history = histories_.emplace_back();
  // The registers begin with what the new group knows, as if somebody had written it just before.
  for (std::uint32_t key = 0; key < ToyState::kKeys; ++key) {
    const std::uint64_t value = state.Read(key).before;
    if (value == 0) continue;
    history.push_back({.kind = Operation::Kind::kWrite,
                       .client = static_cast<std::uint32_t>(clients_.size()),
                       .key = key,
                       .written = value,
                       .called = c_.now - 2,
                       .returned = c_.now - 1});
  }
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    clients_[i].acknowledged =
        std::min(clients_[i].acknowledged, state.last_number(static_cast<std::uint32_t>(i)));
  }
}

std::vector<std::uint32_t> Clients::acknowledged() const {
  std::vector<std::uint32_t> numbers;
  for (const Client& client : clients_) numbers.push_back(client.acknowledged);
  return numbers;
}

}  // namespace onepiece::paxos::sim
