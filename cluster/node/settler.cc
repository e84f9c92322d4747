#include "cluster/node/settler.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "spdlog/spdlog.h"

namespace onepiece::node {
namespace {

constexpr auto kIdleWait = std::chrono::hours(24);
// Between two rounds, so that one call tells of many works.
constexpr base::Duration kRoundPause = std::chrono::milliseconds(20);
constexpr base::Duration kRetryRound = std::chrono::milliseconds(500);

}  // namespace

Settler::Settler(const ClusterView& view, Tell tell, base::Clock& clock)
    : view_(view), tell_(std::move(tell)), clock_(clock) {}

Settler::~Settler() { Close(); }

void Settler::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { Main(stop); });
}

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
  for (auto& entry : round) {
    // clang 14 captures no structured bindings.
    const Keeper& keeper = entry.first;
    std::vector<Word>& words = entry.second;
    const std::size_t before = words.size();
    // A keeper that was stopped for a while goes on under a later incarnation with all that it
    // keeps.
    const auto& alive = routing->table().alive();
    const auto at = std::ranges::find_if(alive, [&](const v1::Endpoint& node) {
      return node.node_id() == keeper.first && node.incarnation() >= keeper.second;
    });
    std::erase_if(words, [&](const Word& word) {
      return word.deadline <= clock_.Now() ||
             (at == alive.end() && routing->IsOver(keeper.first, keeper.second, word.routing_epoch,
                                                   routing->table().workflow_set()));
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

}  // namespace onepiece::node
