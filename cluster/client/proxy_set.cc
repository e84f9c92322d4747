#include "cluster/client/proxy_set.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <set>

#include "absl/strings/numbers.h"
#include "cluster/base/ids.h"
#include "cluster/base/status.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/status.h"

namespace onepiece::client {
namespace {

// More addresses than any cluster has; bounds the channels kept when addresses come and go.
constexpr std::size_t kMaxChannels = 256;

bool TryElsewhere(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

absl::Status NobodyAnswered(std::string_view who, const absl::Status& last) {
  std::string message = "no " + std::string(who) + " answers";
  if (!last.ok()) message += " (" + base::Message(last) + ")";
  return base::MakeError(absl::StatusCode::kUnavailable, "CLUSTER_UNREACHABLE", message);
}

}  // namespace

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

ProxySet::ProxySet(const Options& options)
    : options_(options),
      first_manager_(
          options.nodemanagers.empty() ? 0 : base::RandomU64() % options.nodemanagers.size()) {}

std::shared_ptr<grpc::Channel> ProxySet::ChannelTo(const std::string& address) {
  const std::scoped_lock lock(mutex_);
  if (channels_.size() >= kMaxChannels) channels_.clear();
  auto& channel = channels_[address];
  if (channel == nullptr) channel = rpc::MakeChannel(address);
  return channel;
}

void ProxySet::SetDeadline(grpc::ClientContext& context, base::MonotonicTime deadline,
                           base::Duration upload) const {
  const base::Duration left =
      std::min(options_.attempt_timeout + upload, deadline - options_.clock->Now());
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::duration_cast<std::chrono::system_clock::duration>(left));
}

bool ProxySet::Pause(base::Duration pause, base::MonotonicTime deadline, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  const base::MonotonicTime until = std::min(deadline, options_.clock->Now() + pause);
  options_.clock->WaitUntil(condition_, lock, stop, until, [] { return false; });
  return !stop.stop_requested();
}

absl::Status ProxySet::CallManagerUntil(const ManagerCall& call, base::MonotonicTime deadline) {
  if (options_.nodemanagers.empty()) {
    return base::MakeError(absl::StatusCode::kInvalidArgument, "NO_NODEMANAGER",
                           "no NodeManager address is given");
  }
  base::Duration pause = options_.first_pause;
  absl::Status last;
  for (;;) {
    for (std::size_t i = 0; i < options_.nodemanagers.size(); ++i) {
      const std::size_t index = (first_manager_ + i) % options_.nodemanagers.size();
      grpc::ClientContext context;
      SetDeadline(context, deadline);
      v1::NodeManagerService::Stub stub(ChannelTo(options_.nodemanagers[index]));
      last = ReadAnswer(call(stub, context)).status;
      if (!TryElsewhere(last)) return last;
    }
    if (options_.clock->Now() + pause >= deadline) return NobodyAnswered("NodeManager", last);
    Pause(pause, deadline);
    pause = std::min(pause * 2, options_.max_pause);
  }
}

absl::Status ProxySet::CallManager(const ManagerCall& call) {
  return CallManagerUntil(call, options_.clock->Now() + options_.timeout);
}

void ProxySet::Prefer(const Proxy& proxy) {
  const std::scoped_lock lock(mutex_);
  preferred_address_ = proxy.address;
}

absl::StatusOr<std::vector<Proxy>> ProxySet::Proxies(bool refresh, base::MonotonicTime deadline) {
  {
    const std::scoped_lock lock(mutex_);
    if (!refresh && !proxies_.empty()) return proxies_;
  }
  v1::ListProxiesResponse response;
  ONEPIECE_RETURN_IF_ERROR(CallManagerUntil(
      [&response](auto& stub, auto& context) { return stub.ListProxies(&context, {}, &response); },
      deadline));
  std::vector<Proxy> proxies;
  for (const auto& proxy : response.proxies()) {
    proxies.push_back({proxy.workflow_set(), proxy.endpoint().address(),
                       v1::GenerationService::NewStub(ChannelTo(proxy.endpoint().address()))});
  }
  if (proxies.empty()) return NobodyAnswered("proxy", absl::OkStatus());
  // Clients spread over the proxies by starting at a random one and then stay where they got an
  // answer.
  std::rotate(proxies.begin(),
              proxies.begin() + static_cast<std::ptrdiff_t>(base::RandomU64() % proxies.size()),
              proxies.end());
  const std::scoped_lock lock(mutex_);
  const auto rank = [this](const Proxy& proxy) {
    if (proxy.address == preferred_address_) return 0;
    return proxy.workflow_set == options_.workflow_set ? 1 : 2;
  };
  std::stable_sort(proxies.begin(), proxies.end(),
                   [&rank](const Proxy& a, const Proxy& b) { return rank(a) < rank(b); });
  proxies_ = proxies;
  return proxies;
}

ProxySet::Round ProxySet::CallEachProxy(const std::vector<Proxy>& proxies, const ProxyCall& call,
                                        base::Duration upload, base::MonotonicTime deadline) {
  Round round;
  std::set<std::string> answered_sets;  // Said "full" or "not here" for the whole set.
  for (const Proxy& proxy : proxies) {
    if (answered_sets.contains(proxy.workflow_set)) continue;
    if (options_.clock->Now() >= deadline) break;
    grpc::ClientContext context;
    SetDeadline(context, deadline, upload);
    const Answer answer = ReadAnswer(call(*proxy.stub, context));
    if (answer.status.ok()) {
      Prefer(proxy);
      round.done = true;
      round.error = absl::OkStatus();
      return round;
    }
    if (absl::IsResourceExhausted(answer.status)) {
      answered_sets.insert(proxy.workflow_set);
      const base::Duration delay = answer.retry_delay.value_or(options_.first_pause);
      round.retry_delay = std::min(delay, round.retry_delay.value_or(delay));
      round.error = answer.status;
    } else if (absl::IsNotFound(answer.status)) {
      answered_sets.insert(proxy.workflow_set);
      // "Full" elsewhere may change, so it outweighs "not here".
      if (!absl::IsResourceExhausted(round.error)) round.error = answer.status;
    } else if (TryElsewhere(answer.status)) {
      if (round.error.ok()) round.error = answer.status;
    } else {
      round.error = answer.status;
      round.done = true;
      return round;
    }
  }
  // Every set answered NOT_FOUND: that is the answer. A set that did not answer may hold the job.
  const bool all_answered = std::all_of(
      proxies.begin(), proxies.end(),
      [&answered_sets](const Proxy& proxy) { return answered_sets.contains(proxy.workflow_set); });
  round.done = absl::IsNotFound(round.error) && all_answered;
  return round;
}

absl::Status ProxySet::Call(const ProxyCall& call, base::Duration upload) {
  const base::MonotonicTime deadline = options_.clock->Now() + options_.timeout + upload;
  base::Duration pause = options_.first_pause;
  absl::Status last;
  for (bool refresh = false;; refresh = true) {
    auto proxies = Proxies(refresh, deadline);
    std::optional<base::Duration> retry_delay;
    if (proxies.ok()) {
      const Round round = CallEachProxy(*proxies, call, upload, deadline);
      if (round.done) return round.error;
      last = round.error;
      retry_delay = round.retry_delay;
    } else if (!absl::IsUnavailable(proxies.status())) {
      return proxies.status();
    } else if (last.ok()) {
      last = proxies.status();
    }
    const base::Duration wait = std::max(pause, retry_delay.value_or(base::Duration{}));
    if (options_.clock->Now() + wait >= deadline) {
      return TryElsewhere(last) && base::GetReason(last).reason.empty()
                 ? NobodyAnswered("proxy", last)
                 : last;
    }
    Pause(wait, deadline);
    pause = std::min(pause * 2, options_.max_pause);
  }
}

}  // namespace onepiece::client
