#include "cluster/node/settler.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "cluster/base/status.h"
#include "cluster/node/kept_work.h"
#include "cluster/rpc/channel.h"
#include "spdlog/spdlog.h"

namespace onepiece::node {
namespace {

constexpr auto kIdleWait = std::chrono::hours(24);
// Between two rounds, so that one call tells of many works.
constexpr base::Duration kRoundPause = std::chrono::milliseconds(20);
constexpr base::Duration kRetryRound = std::chrono::milliseconds(500);
// For one call; scaled. A keeper that was stopped for a moment must not hold up the others long.
constexpr base::Duration kTellTimeout = std::chrono::milliseconds(500);
constexpr int kMaxWorks = 1000;
constexpr std::size_t kMaxKeeperStubs = 256;

}  // namespace

Settler::Settler(const ClusterView& view, Tell tell, base::Clock& clock)
    : view_(view),
      tell_(std::move(tell)),
      clock_(clock),
      thread_([this](const std::stop_token& stop) { Main(stop); }) {}

Settler::~Settler() { Close(); }

void Settler::Completed(const message::Header& header) { Add(header, {}); }

void Settler::Moved(const message::Header& header, const v1::WorkHolder& to) {
  v1::WorkSettled settled;
  *settled.mutable_moved_to() = to;
  Add(header, std::move(settled));
}

void Settler::Add(const message::Header& header, v1::WorkSettled settled) {
  if (header.keeper.empty()) return;
  settled.set_uid(header.uid.ToString());
  settled.set_run(header.run);
  settled.set_stage(header.stage);
  settled.set_from(header.from);
  settled.set_attempt(header.attempt);
  const base::MutexLock lock(mutex_);
  if (count_ >= kMaxPending) {
    spdlog::warn("uid={} keeper {} is not told of stage {}: {} works wait already", settled.uid(),
                 header.keeper, header.stage, count_);
    return;
  }
  ++count_;
  pending_[{header.keeper, header.keeper_incarnation}].push_back(
      {std::move(settled), header.routing_epoch, header.deadline});
  changed_.NotifyAll();
}

std::size_t Settler::pending() const {
  const base::MutexLock lock(mutex_);
  return count_;
}

void Settler::Main(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      base::MutexLock lock(mutex_);
      clock_.WaitUntil(changed_, lock, stop, clock_.Now() + kIdleWait,
                       [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return count_ > 0; });
    }
    const bool all_told = TellAll();
    clock_.Pause(stop, all_told ? kRoundPause : kRetryRound);
  }
  TellAll();
}

bool Settler::TellAll() {
  std::map<Keeper, std::vector<Word>> round;
  {
    const base::MutexLock lock(mutex_);
    round.swap(pending_);
  }
  const std::shared_ptr<const Routing> routing = view_.routing();
  bool all_told = true;
  for (auto& [keeper, words] : round) {
    const std::size_t before = words.size();
    std::erase_if(words, [&](const Word& word) {
      return word.deadline <= clock_.Now() ||
             routing->IsOver(keeper.first, keeper.second, word.routing_epoch,
                             routing->table().workflow_set());
    });
    const auto& alive = routing->table().alive();
    const auto at = std::ranges::find_if(alive, [&](const v1::Endpoint& node) {
      return node.node_id() == keeper.first && node.incarnation() == keeper.second;
    });
    while (at != alive.end() && !words.empty()) {
      v1::SettleWorkRequest request;
      const auto batch = std::min<std::size_t>(words.size(), kMaxWorks);
      for (std::size_t i = 0; i < batch; ++i) *request.add_works() = words[i].settled;
      // A keeper that refuses a call would refuse it again.
      const absl::Status told = tell_(*at, request);
      if (!told.ok() && !absl::IsInvalidArgument(told)) break;
      words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(batch));
    }
    const base::MutexLock lock(mutex_);
    count_ -= before - words.size();
    if (words.empty()) continue;
    all_told = false;
    auto& newer = pending_[keeper];
    newer.insert(newer.begin(), std::make_move_iterator(words.begin()),
                 std::make_move_iterator(words.end()));
  }
  return all_told;
}

Settler::Tell TellByGrpc() {
  // Only the settler's thread calls it.
  const auto stubs =
      std::make_shared<std::map<std::string, std::unique_ptr<v1::WorkService::Stub>>>();
  return [stubs](const v1::Endpoint& keeper, const v1::SettleWorkRequest& request) {
    // Most of them are addresses of nodes that are long gone. Those in use come back at once.
    if (stubs->size() >= kMaxKeeperStubs && !stubs->contains(keeper.address())) stubs->clear();
    auto& stub = (*stubs)[keeper.address()];
    if (stub == nullptr) stub = v1::WorkService::NewStub(rpc::MakeChannel(keeper.address()));
    return rpc::Call(*stub, &v1::WorkService::Stub::Settle, request, kTellTimeout).status();
  };
}

grpc::Status WorkService::Settle(grpc::ServerContext*, const v1::SettleWorkRequest* request,
                                 google::protobuf::Empty*) {
  if (request->works_size() > kMaxWorks)
    return rpc::ToGrpc(base::MakeError(absl::StatusCode::kInvalidArgument, "TOO_MANY_WORKS",
                                       "at most 1000 works"));
  for (const v1::WorkSettled& settled : request->works()) kept_.Settle(settled);
  return grpc::Status::OK;
}

}  // namespace onepiece::node
