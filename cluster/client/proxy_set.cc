#include "cluster/client/proxy_set.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "cluster/base/ids.h"
#include "cluster/base/mutex.h"
#include "cluster/base/sha256.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/repeat.h"
#include "cluster/rpc/status.h"

namespace onepiece::client {
namespace {

// No cluster has this many addresses. The limit bounds the channels when addresses come and go.
constexpr std::size_t kMaxChannels = 256;
// The first limit for one of several NodeManager replicas. It doubles with every round.
constexpr std::chrono::seconds kFirstAttempt(1);
// How soon Connect() notices a stop.
constexpr base::Duration kStopPoll = std::chrono::milliseconds(100);
// A proxy that did not answer is asked last for this long.
constexpr std::chrono::seconds kLeftOut(10);

bool TryElsewhere(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

absl::Status NobodyAnswered(std::string_view who, const absl::Status& last) {
  std::string message = "no " + std::string(who) + " answers";
  if (!last.ok()) message += " (" + base::Message(last) + ")";
  return base::MakeError(absl::StatusCode::kUnavailable, "CLUSTER_UNREACHABLE", message);
}

absl::Status NobodyLeads() {
  return base::MakeError(
      absl::StatusCode::kUnavailable, "NO_LEADER",
      "the NodeManager's replicas have no leader now: see `onepiece cluster status`");
}

bool DeadlineTooShort(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) &&
         base::GetReason(status).reason == "DEADLINE_TOO_SHORT";
}

/// Returns true when other proxies of the set may take the job.
bool IsAboutOneProxy(const absl::Status& refusal) {
  const std::string reason = base::GetReason(refusal).reason;
  return reason == "QUOTA" || reason == "INPUTS_BUSY";
}

/// Returns true when the proxy answered so before it took anything.
bool SurelyNotTaken(const absl::Status& status) {
  const std::string reason = base::GetReason(status).reason;
  // NO_INSTANCE is what older proxies say for STAGE_UNSERVED.
  return reason == "NOT_REGISTERED" || reason == "STAGE_UNSERVED" || reason == "NO_INSTANCE";
}

/// Returns a sort key that every client computes alike and that differs for every request id.
std::string Turn(const std::string& request_id, const std::string& who) {
  return base::Sha256Hex(request_id + "/" + who);
}

/// Returns the listed sets that may have the job. When it is empty, any set may take the job. A
/// configured proxy of an unknown set is known by its address until the NodeManager lists it.
std::set<std::string> Holders(std::span<const Proxy> proxies,
                              const std::map<std::string, std::string>& reached) {
  std::set<std::string> holders;
  for (const Proxy& proxy : proxies) {
    if (proxy.workflow_set.empty()) continue;
    for (const auto& [address, set] : reached) {
      if (proxy.address == address || SetOf(proxy) == set) holders.insert(SetOf(proxy));
    }
  }
  return holders;
}

bool IsOfSeveralSets(std::span<const Proxy> proxies) {
  return std::ranges::adjacent_find(proxies, std::not_equal_to<>(), SetOf) != proxies.end();
}

/// Only the NodeManager knows which sets there are. Behind a configured address there may be
/// nothing.
bool IsListed(const Proxy& proxy) { return !proxy.unlisted && !proxy.workflow_set.empty(); }

/// Puts the sets with the most room first, as the refusal tells: "set-2=0.40,set-3=0.10".
void OrderByRoom(std::span<Proxy> proxies, const absl::Status& refusal) {
  const auto metadata = base::GetReason(refusal).metadata;
  const auto told = metadata.find("headroom");
  if (told == metadata.end()) return;
  std::map<std::string, double> rooms;
  for (const absl::string_view one : absl::StrSplit(told->second, ',')) {
    const std::pair<std::string, std::string> set = absl::StrSplit(one, absl::MaxSplits('=', 1));
    if (double room = 0; absl::SimpleAtod(set.second, &room) && room >= 0) rooms[set.first] = room;
  }
  const auto room_of = [&](const Proxy& proxy) {
    const auto room = rooms.find(SetOf(proxy));
    return room == rooms.end() ? 0 : room->second;
  };
  std::ranges::stable_sort(proxies, [&](const Proxy& a, const Proxy& b) {
    if (a.away != b.away) return b.away;
    return room_of(a) > room_of(b);
  });
}

}  // namespace

const std::string& SetOf(const Proxy& proxy) {
  return proxy.workflow_set.empty() ? proxy.address : proxy.workflow_set;
}

Answer ReadAnswer(const grpc::Status& status) {
  Answer answer;
  if (status.ok()) return answer;
  answer.status = rpc::FromGrpc(status);
  const auto reason = base::GetReason(answer.status);
  std::int64_t retry_ms = 0;
  if (const auto at = reason.metadata.find(rpc::kRetryAfterMs);
      at != reason.metadata.end() && absl::SimpleAtoi(at->second, &retry_ms) && retry_ms >= 0) {
    answer.retry_delay = std::chrono::milliseconds(retry_ms);
  }
  return answer;
}

ProxySet::ProxySet(const ClientOptions& options)
    : options_(options), managers_(options.nodemanagers, options.user_agent) {
  std::vector<Proxy> known;
  for (const std::string& address : options_.proxies)
    known.push_back({"", address, v1::GenerationService::NewStub(ChannelTo(address))});
  Keep(std::move(known));
}

std::shared_ptr<grpc::Channel> ProxySet::ChannelTo(const std::string& address) {
  const base::MutexLock lock(mutex_);
  if (channels_.size() >= kMaxChannels) channels_.clear();
  auto& channel = channels_[address];
  if (channel == nullptr) channel = rpc::MakeChannel(address, {}, options_.user_agent);
  return channel;
}

void ProxySet::SetDeadline(grpc::ClientContext& context, base::MonotonicTime deadline,
                           base::Duration limit) const {
  rpc::SetTimeLeft(context, std::min(limit, deadline - options_.clock->Now()));
}

bool ProxySet::Pause(base::Duration pause, base::MonotonicTime deadline, std::stop_token stop) {
  std::stop_source either;
  const std::stop_callback stop_call(stop, [&either] { either.request_stop(); });
  const std::stop_callback stop_client(options_.stop, [&either] { either.request_stop(); });
  return options_.clock->Pause(either.get_token(),
                               std::min(pause, deadline - options_.clock->Now()));
}

absl::Status ProxySet::Stopped() const {
  if (!options_.stop.stop_requested()) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kCancelled, "INTERRUPTED", "interrupted");
}

absl::Status ProxySet::CallManagerUntil(const ManagerCall& call, base::MonotonicTime deadline,
                                        bool one_round) {
  const std::size_t replicas = managers_.addresses().size();
  if (replicas == 0) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "NO_NODEMANAGER",
                           "no NodeManager address is given");
  }
  base::Duration limit = options_.attempt_timeout;
  if (replicas > 1) limit = std::min(limit, base::Scaled(kFirstAttempt));
  bool somebody_follows = false;
  rpc::LeaderSearch search(managers_);
  for (;;) {
    const rpc::Replica replica = search.Next();
    grpc::ClientContext context;
    SetDeadline(context, deadline, limit);
    const std::stop_callback cancel(options_.stop, [&context] { context.TryCancel(); });
    const absl::Status status = ReadAnswer(call(replica.channel, context)).status;
    if (!status.ok()) ONEPIECE_RETURN_IF_ERROR(Stopped());
    if (!rpc::IsAboutTheReplica(status)) {
      search.Answered();
      return status;
    }
    somebody_follows |= rpc::LeaderHint(status).has_value();
    const base::Duration pause = search.Failed(status);
    const bool round_ended = pause > base::Duration::zero();
    if ((one_round && round_ended) || options_.clock->Now() + pause >= deadline) {
      return somebody_follows ? NobodyLeads() : NobodyAnswered("NodeManager", status);
    }
    if (!round_ended) continue;
    Pause(pause, deadline);
    limit = std::min(limit * 2, options_.attempt_timeout);
    somebody_follows = false;
  }
}

absl::Status ProxySet::CallManager(const ManagerCall& call) {
  return CallManagerUntil(call, options_.clock->Now() + options_.timeout, false);
}

void ProxySet::Prefer(const Proxy& proxy) {
  const base::MutexLock lock(mutex_);
  preferred_address_ = proxy.address;
}

absl::StatusOr<std::vector<Proxy>> ProxySet::Proxies(bool refresh, base::MonotonicTime deadline) {
  absl::StatusOr<std::vector<Proxy>> proxies = Find(refresh, deadline);
  if (!proxies.ok()) return proxies;
  const base::MutexLock lock(mutex_);
  const base::MonotonicTime now = options_.clock->Now();
  std::erase_if(away_until_, [now](const auto& entry) { return entry.second <= now; });
  for (Proxy& proxy : *proxies) proxy.away = away_until_.contains(proxy.address);
  std::stable_partition(proxies->begin(), proxies->end(),
                        [](const Proxy& proxy) { return !proxy.away; });
  return proxies;
}

void ProxySet::LeaveOut(const Proxy& proxy) {
  const base::MutexLock lock(mutex_);
  if (away_until_.size() >= kMaxChannels) away_until_.clear();
  away_until_[proxy.address] = options_.clock->Now() + base::Scaled(kLeftOut);
}

// Sorts by the request's own order of sets, and within a set by its own order of proxies.
std::vector<Proxy> ProxySet::Spread(std::vector<Proxy> proxies,
                                    const std::string& request_id) const {
  std::map<std::string, std::string> turns;
  for (const Proxy& proxy : proxies) {
    turns.try_emplace(SetOf(proxy), Turn(request_id, SetOf(proxy)));
    turns.try_emplace(proxy.address, Turn(request_id, proxy.address));
  }
  const auto rank = [&](const Proxy& proxy) {
    const bool asked_for =
        !options_.workflow_set.empty() && proxy.workflow_set == options_.workflow_set;
    return std::tuple(proxy.away, proxy.unlisted, !asked_for, turns.at(SetOf(proxy)),
                      turns.at(proxy.address));
  };
  std::ranges::stable_sort(proxies, std::less<>(), rank);
  return proxies;
}

// Connects before anything is sent. Returns false when that fails, and the caller then knows that
// the proxy has not got the request.
bool ProxySet::Connect(const Proxy& proxy, base::MonotonicTime deadline) {
  base::Clock& clock = *options_.clock;
  const base::MonotonicTime until = std::min(deadline, clock.Now() + options_.attempt_timeout);
  const std::shared_ptr<grpc::Channel> channel = ChannelTo(proxy.address);
  for (auto state = channel->GetState(true); state != GRPC_CHANNEL_READY;
       state = channel->GetState(true)) {
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || state == GRPC_CHANNEL_SHUTDOWN) return false;
    // gRPC waits in real time, so each wait is short, and the clock tells when to give up.
    while (!channel->WaitForStateChange(
        state,
        gpr_time_from_nanos(std::min(kStopPoll, until - clock.Now()).count(), GPR_TIMESPAN))) {
      if (options_.stop.stop_requested() || clock.Now() >= until) return false;
    }
  }
  return true;
}

absl::StatusOr<std::vector<Proxy>> ProxySet::Find(bool refresh, base::MonotonicTime deadline) {
  std::vector<Proxy> known;
  {
    const base::MutexLock lock(mutex_);
    known = proxies_;
  }
  if (!known.empty() && (!refresh || options_.nodemanagers.empty())) return known;
  v1::ListProxiesResponse response;
  const absl::Status status = CallManagerUntil(
      [&response](const auto& channel, auto& context) {
        return v1::NodeManagerService::Stub(channel).ListProxies(&context, {}, &response);
      },
      deadline, !known.empty());
  std::vector<Proxy> proxies;
  for (const auto& proxy : response.proxies()) {
    proxies.push_back({proxy.workflow_set(), proxy.endpoint().address(),
                       v1::GenerationService::NewStub(ChannelTo(proxy.endpoint().address()))});
  }
  if (!proxies.empty()) {
    LearnManagers(deadline);
    std::vector<Proxy> ordered = Keep(std::move(proxies));
    const base::MutexLock lock(mutex_);
    listed_ = true;
    return ordered;
  }
  if (!known.empty()) return known;
  return status.ok() ? NobodyAnswered("proxy", absl::OkStatus()) : status;
}

std::vector<Proxy> ProxySet::Keep(std::vector<Proxy> proxies) {
  if (proxies.empty()) return proxies;
  // The proxies that the caller named stay, because the list may lack one that works.
  for (const std::string& address : options_.proxies) {
    if (std::ranges::find(proxies, address, &Proxy::address) == proxies.end())
      proxies.push_back({"", address, v1::GenerationService::NewStub(ChannelTo(address)), true});
  }
  // Clients start at a random proxy, so they spread over the proxies. They then stay with the proxy
  // that answered.
  std::rotate(proxies.begin(),
              proxies.begin() + static_cast<std::ptrdiff_t>(base::RandomU64() % proxies.size()),
              proxies.end());
  const base::MutexLock lock(mutex_);
  const std::string preferred = preferred_address_;
  const auto rank = [this, &preferred](const Proxy& proxy) {
    if (proxy.address == preferred) return 0;
    if (proxy.unlisted) return 3;
    return proxy.workflow_set == options_.workflow_set ? 1 : 2;
  };
  std::stable_sort(proxies.begin(), proxies.end(),
                   [&rank](const Proxy& a, const Proxy& b) { return rank(a) < rank(b); });
  proxies_ = proxies;
  return proxies;
}

// Asks once. A client that was given the address of one replica must know the others when that one
// is gone.
void ProxySet::LearnManagers(base::MonotonicTime deadline) {
  {
    const base::MutexLock lock(mutex_);
    if (std::exchange(asked_managers_, true)) return;
  }
  v1::Cluster cluster;
  const absl::Status status = CallManagerUntil(
      [&cluster](const auto& channel, auto& context) {
        return v1::NodeManagerService::Stub(channel).GetCluster(&context, {}, &cluster);
      },
      deadline, true);
  if (status.ok()) Learn(cluster);
}

void ProxySet::Learn(const v1::Cluster& cluster) {
  std::vector<std::string> managers;
  for (const v1::Node& node : cluster.nodes()) {
    if (node.role() == v1::NODE_MANAGER) managers.push_back(node.address());
  }
  managers_.Learn(managers);
}

bool ProxySet::Complete() {
  const base::MutexLock lock(mutex_);
  return listed_ || options_.nodemanagers.empty();
}

// Asks a proxy whether its set has the request's job. NOT_FOUND means no. Any other error leaves it
// open.
absl::Status ProxySet::AskForJob(const Proxy& proxy, const std::string& request_id,
                                 base::MonotonicTime deadline) {
  if (options_.clock->Now() >= deadline) return absl::CancelledError("not asked");
  if (!Connect(proxy, deadline)) return absl::UnavailableError("cannot reach " + proxy.address);
  grpc::ClientContext context;
  SetDeadline(context, deadline, options_.attempt_timeout);
  const std::stop_callback cancel(options_.stop, [&context] { context.TryCancel(); });
  v1::GetJobRequest request;
  request.set_name(std::string(rpc::kRequestNamePrefix) + request_id);
  v1::Job job;
  return ReadAnswer(proxy.stub->GetJob(&context, request, &job)).status;
}

// Keeps the proxies of the set that has the request's job, or all of them when no set has it.
// Returns an error when a set does not say, because another set that took the request might do the
// job again.
absl::Status ProxySet::KeepWhoKnows(std::vector<Proxy>& proxies, const std::string& request_id,
                                    base::MonotonicTime deadline,
                                    std::set<std::string>& strangers) {
  // A proxy that is asked to make the job will say what is wrong with such an id.
  if (!base::Uid::Parse(request_id).has_value()) return absl::OkStatus();
  std::set<std::string> silent;
  for (const Proxy& proxy : proxies) {
    const std::string set = SetOf(proxy);
    if (strangers.contains(set)) continue;
    const absl::Status status = AskForJob(proxy, request_id, deadline);
    if (status.ok()) {
      std::erase_if(proxies, [&set](const Proxy& other) { return SetOf(other) != set; });
      return absl::OkStatus();
    }
    if (absl::IsNotFound(status)) {
      strangers.insert(set);
      silent.erase(set);
      continue;
    }
    if (TryElsewhere(status)) LeaveOut(proxy);
    if (IsListed(proxy)) silent.insert(set);
  }
  if (silent.empty()) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kUnavailable, "SET_SILENT",
                         "workflow set " + *silent.begin() +
                             " does not say whether it has the job of this request_id already");
}

ProxySet::Round ProxySet::CallEachProxy(std::vector<Proxy> proxies, const ProxyCall& call,
                                        const CallOptions& how, base::MonotonicTime deadline,
                                        Past& past) {
  // Sets that refused in an earlier round are not asked again, so their refusal stands until
  // another set says something else.
  Round round{.error = past.refusal, .retry_delay = std::nullopt, .done = false};
  std::set<std::string> answered_sets = past.refused;  // A proxy has answered for these.
  std::set<std::string> holders = Holders(proxies, past.reached);
  for (std::size_t i = 0; i < proxies.size(); ++i) {
    const Proxy proxy = proxies[i];
    if (answered_sets.contains(SetOf(proxy))) continue;
    if (!holders.empty() && !holders.contains(SetOf(proxy))) continue;
    if (options_.clock->Now() >= deadline || options_.stop.stop_requested()) break;
    // A proxy that was never connected cannot have the job, so its set need not become a holder.
    if (!how.request_id.empty() && !Connect(proxy, deadline)) {
      LeaveOut(proxy);
      if (round.error.ok()) round.error = absl::UnavailableError("cannot reach " + proxy.address);
      continue;
    }
    grpc::ClientContext context;
    SetDeadline(context, deadline, options_.attempt_timeout + how.upload);
    if (past.repeated) context.AddMetadata(rpc::kRepeated, "1");
    const std::stop_callback cancel(options_.stop, [&context] { context.TryCancel(); });
    const Answer answer = ReadAnswer(call(*proxy.stub, context));
    const std::span<Proxy> rest = std::span(proxies).subspan(i + 1);
    if (answer.status.ok()) {
      Prefer(proxy);
      round.done = true;
      round.error = absl::OkStatus();
      return round;
    }
    if (absl::IsResourceExhausted(answer.status)) {
      if (!IsAboutOneProxy(answer.status)) answered_sets.insert(SetOf(proxy));
      const base::Duration delay = answer.retry_delay.value_or(options_.first_pause);
      round.retry_delay = std::min(delay, round.retry_delay.value_or(delay));
      round.error = answer.status;
      OrderByRoom(rest, answer.status);
    } else if (absl::IsNotFound(answer.status) || DeadlineTooShort(answer.status)) {
      answered_sets.insert(SetOf(proxy));
      if (DeadlineTooShort(answer.status)) {
        past.refused.insert(SetOf(proxy));
        past.refusal = answer.status;
        OrderByRoom(rest, answer.status);
      }
      // A full set may have room later, so its refusal outweighs "not here".
      if (!absl::IsResourceExhausted(round.error)) round.error = answer.status;
    } else if (TryElsewhere(answer.status)) {
      LeaveOut(proxy);
      past.repeated = true;
      if (!how.request_id.empty() && !SurelyNotTaken(answer.status)) {
        past.reached[proxy.address] = SetOf(proxy);
        if (!proxy.workflow_set.empty()) holders.insert(SetOf(proxy));
      }
      if (round.error.ok()) round.error = answer.status;
    } else {
      round.error = answer.status;
      round.done = true;
      return round;
    }
  }
  // The error is final only when every set has answered, because a silent set may hold the job.
  const bool all_answered =
      std::all_of(proxies.begin(), proxies.end(), [&answered_sets](const Proxy& proxy) {
        return proxy.unlisted || answered_sets.contains(SetOf(proxy));
      });
  const bool final = absl::IsNotFound(round.error) || DeadlineTooShort(round.error);
  round.done = final && all_answered;
  return round;
}

absl::Status ProxySet::Call(const ProxyCall& call, const CallOptions& how) {
  const base::MonotonicTime deadline = options_.clock->Now() + options_.timeout + how.upload;
  base::Duration pause = options_.first_pause;
  absl::Status last;
  Past past;
  past.repeated = how.repeated;
  for (bool refresh = how.repeated && !Complete();; refresh = true) {
    ONEPIECE_RETURN_IF_ERROR(Stopped());
    auto proxies = Proxies(refresh, deadline);
    std::optional<base::Duration> retry_delay;
    if (proxies.ok()) {
      if (!how.request_id.empty()) proxies = Spread(*std::move(proxies), how.request_id);
      Round round;
      if (how.repeated && IsOfSeveralSets(*proxies))
        round.error = KeepWhoKnows(*proxies, how.request_id, deadline, past.strangers);
      if (round.error.ok()) round = CallEachProxy(*std::move(proxies), call, how, deadline, past);
      // Proxies that are not known yet may know the job.
      if (round.done && absl::IsNotFound(round.error) && !refresh && !Complete()) continue;
      if (!round.done || !round.error.ok()) ONEPIECE_RETURN_IF_ERROR(Stopped());
      if (round.done) return round.error;
      if (!round.error.ok()) last = round.error;
      retry_delay = round.retry_delay;
    } else if (!absl::IsUnavailable(proxies.status())) {
      return proxies.status();
    } else if (last.ok()) {
      last = proxies.status();
    }
    const base::Duration wait = std::max(pause, retry_delay.value_or(base::Duration{}));
    if (options_.clock->Now() + wait >= deadline) {
      const bool nobody = TryElsewhere(last) && base::GetReason(last).reason.empty();
      return last.ok() || nobody ? NobodyAnswered("proxy", last) : last;
    }
    Pause(wait, deadline);
    pause = std::min(pause * 2, options_.max_pause);
  }
}

}  // namespace onepiece::client
