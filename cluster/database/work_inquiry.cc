#include "cluster/database/work_inquiry.h"

#include <algorithm>

namespace onepiece::database {
namespace {

// How often the thread looks whether somebody is to be asked.
constexpr base::Duration kAskTick = std::chrono::milliseconds(500);
// Before the first question and between two. In this time a keeper gives the work away, and the
// records of other databases come. Scaled.
constexpr base::Duration kAskPause = std::chrono::seconds(5);
// The same when the keeper is there under a later incarnation than the record names. It was stopped
// for a while and has the work, or it was started again and has nothing: then nobody else will end
// the job. Scaled.
constexpr base::Duration kAskAgainPause = std::chrono::seconds(1);
// A question that no sweep asked again for so long is settled. Or this process was stopped, and
// what it knows is old. Scaled.
constexpr base::Duration kAskForget = std::chrono::seconds(3);
constexpr int kDenials = 2;

}  // namespace

WorkInquiry::WorkInquiry(const node::ClusterView& view, Ways ways, base::Clock& clock)
    : view_(view), ways_(std::move(ways)), clock_(clock) {}

WorkInquiry::~WorkInquiry() { Stop(); }

void WorkInquiry::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    while (clock_.Pause(stop, kAskTick)) Ask(stop);
  });
}

void WorkInquiry::Stop() { thread_ = {}; }

bool WorkInquiry::IsKept(const base::Uid& uid, const v1::WorkHolder& holder) {
  const base::MonotonicTime now = clock_.Now();
  const Work work(uid, holder.SerializeAsString());
  const base::MutexLock lock(mutex_);
  const bool is_new = !questions_.contains(work);
  if (is_new && questions_.size() >= kMaxOpen) return true;
  Question& question = questions_[work];
  if (is_new || now - question.seen >= base::Scaled(kAskForget)) {
    const bool same = view_.routing()->IsAlive(holder.keeper(), holder.keeper_incarnation());
    question = {.keeper = holder.keeper(),
                .pause = base::Scaled(same ? kAskPause : kAskAgainPause)};
    question.next = now + question.pause;
  }
  question.seen = now;
  return question.denials < kDenials;
}

void WorkInquiry::Ask(const std::stop_token& stop) {
  for (const auto& [keeper, works] : Due()) {
    if (stop.stop_requested()) return;
    AskKeeper(keeper, works);
  }
}

std::vector<std::pair<v1::Endpoint, std::vector<WorkInquiry::Work>>> WorkInquiry::Due() {
  const auto routing = view_.routing();
  const base::MonotonicTime now = clock_.Now();
  std::vector<std::pair<v1::Endpoint, std::vector<Work>>> due;
  std::map<std::string, std::vector<Work>> works;  // By their keepers.
  {
    const base::MutexLock lock(mutex_);
    std::erase_if(questions_, [&](const auto& entry) {
      return now - entry.second.seen >= base::Scaled(kAskForget);
    });
    for (const auto& [work, question] : questions_) {
      std::vector<Work>& same = works[question.keeper];
      if (question.next <= now && same.size() < kMaxWorks) same.push_back(work);
    }
  }
  for (const v1::Endpoint& node : routing->table().alive()) {
    const auto found = works.find(node.node_id());
    if (found != works.end() && !found->second.empty())
      due.emplace_back(node, std::move(found->second));
  }
  return due;
}

void WorkInquiry::AskKeeper(const v1::Endpoint& keeper, const std::vector<Work>& works) {
  v1::FindKeptRequest request;
  for (const auto& [uid, holder] : works) {
    v1::HeldWork& work = *request.add_works();
    work.set_uid(uid.ToString());
    (void)work.mutable_holder()->ParseFromString(holder);
  }
  const absl::StatusOr<v1::FindKeptResponse> answer = ways_.ask_keeper(keeper, request);
  const bool answered = answer.ok() && answer->kept_size() == request.works_size();
  std::vector<base::Uid> denied;
  for (int i = 0; answered && i < answer->kept_size(); ++i) {
    if (!answer->kept(i)) denied.push_back(works[static_cast<std::size_t>(i)].first);
  }
  const bool heard = denied.empty() || AskDatabases(denied);
  const base::MonotonicTime now = clock_.Now();
  const base::MutexLock lock(mutex_);
  for (std::size_t i = 0; i < works.size(); ++i) {
    const auto known = questions_.find(works[i]);
    if (known == questions_.end()) continue;
    Question& question = known->second;
    question.next = now + question.pause;
    if (!answered) continue;
    const bool kept = answer->kept(static_cast<int>(i));
    if (kept || heard) question.denials = kept ? 0 : question.denials + 1;
  }
}

bool WorkInquiry::AskDatabases(std::span<const base::Uid> uids) const {
  const std::string self = view_.self().node_id();
  return std::ranges::all_of(view_.routing()->Databases(), [&](const v1::Endpoint& database) {
    return database.node_id() == self || ways_.ask_database(database, uids).ok();
  });
}

}  // namespace onepiece::database
