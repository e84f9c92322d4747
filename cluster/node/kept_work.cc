#include "cluster/node/kept_work.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/base/status.h"
#include "cluster/job/job_record.h"
#include "cluster/node/work_holder.h"
#include "spdlog/spdlog.h"

namespace onepiece::node {
namespace {

// How often the thread looks whether something is due.
constexpr base::Duration kLookPause = std::chrono::milliseconds(100);
// When an item is first looked up if its receiver says nothing, and the longest pause between two
// looks, which double. Nobody tells of results: their jobs' ends do. Scaled, as the next.
constexpr base::Duration kFirstLook = std::chrono::seconds(5);
constexpr base::Duration kLongestPause = std::chrono::seconds(30);
constexpr base::Duration kFirstLookAtResult = std::chrono::seconds(1);
// How long work is kept whose job no database knows. Scaled.
constexpr base::Duration kUnknownLimit = std::chrono::minutes(1);
// After a step that failed.
constexpr base::Duration kRetryPause = std::chrono::milliseconds(250);
// For a receiver to say in the record that it has a message whose sender heard no answer.
constexpr base::Duration kDoubtPause = std::chrono::seconds(1);

bool IsResult(const message::Header& header) { return header.kind == message::Kind::kResult; }

/// The stage under which records name the holder.
const std::string& StageOf(const message::Header& header) {
  return IsResult(header) ? header.from : header.stage;
}

/// Returns whether the stage's outputs of this attempt have gone to all stages after it.
bool IsHandedOn(const message::Header& header, const v1::JobRecord& record,
                const Routing& routing) {
  if (IsResult(header) || record.run() != header.run) return false;
  const auto given = std::ranges::count_if(record.holders(), [&](const v1::WorkHolder& holder) {
    return holder.from() == header.stage && holder.attempt() >= header.attempt;
  });
  const auto successors = routing.GraphOf(header.app).Successors(header.stage).size();
  return static_cast<std::size_t>(given) >= std::max<std::size_t>(successors, 1);
}

const v1::WorkHolder* FindEdge(const v1::JobRecord& record, const message::Header& header) {
  if (record.run() != header.run) return nullptr;
  for (const v1::WorkHolder& holder : record.holders()) {
    if (holder.stage() == StageOf(header) && holder.from() == header.from) return &holder;
  }
  return nullptr;
}

/// Returns whether this holder has begun to compute the work before it died.
bool HadBegun(const v1::WorkHolder& holder, const v1::JobRecord& record,
              const message::Header& header) {
  const v1::WorkHolder* const edge = FindEdge(record, header);
  if (edge == nullptr || edge->attempt() != holder.attempt() ||
      edge->node_id() != holder.node_id()) {
    return false;
  }
  const v1::Job& job = record.job();
  const bool stepped =
      record.attempt() == holder.attempt() && job.stage() == holder.stage() && job.step() > 0;
  return edge->begun() || stepped;
}

std::size_t BytesOf(const message::Message& message) {
  std::size_t bytes = 0;
  for (const message::Artifact& artifact : message.artifacts) bytes += artifact.data.size();
  return bytes;
}

/// Names where a message may go: to any instance of a stage, or to a place of its job alone. The
/// databases of a result depend on the job. An instance that has no room for one branch may take
/// another that completes its join.
std::string PlaceOf(const message::Header& header, const Routing& routing) {
  const bool joins = routing.GraphOf(header.app).Predecessors(header.stage).size() > 1;
  if (IsResult(header) || joins) return header.uid.ToString();
  return header.app + "/" + header.stage;
}

}  // namespace

base::Duration KeptPatience() { return base::Scaled(std::chrono::milliseconds(200)); }

base::Duration KeptLimit(const message::Message& message) {
  constexpr std::size_t kBytesPerMs = 20'000;
  return base::Scaled(std::chrono::seconds(1) +
                      std::chrono::milliseconds(BytesOf(message) / kBytesPerMs));
}

WorkKey KeyOf(const message::Header& header) {
  return {.uid = header.uid, .run = header.run, .stage = header.stage, .from = header.from};
}

KeptWork::KeptWork(const ClusterView& view, Ways ways, KeptWorkOptions options, base::Clock& clock)
    : view_(view),
      ways_(std::move(ways)),
      options_(std::move(options)),
      clock_(clock),
      max_bytes_(options_.max_bytes) {}

KeptWork::~KeptWork() { Stop(); }

void KeptWork::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    while (clock_.Pause(stop, kLookPause)) Look(stop);
  });
}

void KeptWork::Stop() { thread_ = {}; }

void KeptWork::SetMaxBytes(std::int64_t bytes) {
  const base::MutexLock lock(mutex_);
  max_bytes_ = bytes > 0 ? static_cast<std::size_t>(bytes) : options_.max_bytes;
}

void KeptWork::Keep(message::Message& message) {
  message::Header& header = message.header;
  const std::size_t size = BytesOf(message);
  const v1::Endpoint self = view_.self();
  const base::MutexLock lock(mutex_);
  auto known = items_.find(KeyOf(header));
  // Work that was sent before comes again when it was computed again. An older attempt that comes
  // late is not worth a place.
  const bool stale = known != items_.end() && known->second.message.header.attempt > header.attempt;
  if (known != items_.end() && !stale) Erase(known);
  if (stale || items_.size() >= options_.max_items ||
      size > max_bytes_ - std::min(max_bytes_, bytes_)) {
    header.keeper.clear();
    header.keeper_incarnation = 0;
    if (!stale) Count(KeptWorkEvent::kNotKept, StageOf(header));
    return;
  }
  header.keeper = self.node_id();
  header.keeper_incarnation = self.incarnation();
  const base::Duration pause = base::Scaled(IsResult(header) ? kFirstLookAtResult : kFirstLook);
  items_[KeyOf(header)] = {.message = message,
                           .bytes = size,
                           .revision = ++last_revision_,
                           .next_look = clock_.Now() + pause,
                           .pause = pause};
  bytes_ += size;
}

void KeptWork::Forget(const message::Header& header) {
  const base::MutexLock lock(mutex_);
  const auto known = items_.find(KeyOf(header));
  if (known == items_.end()) return;
  const Item& item = known->second;
  if (item.state == State::kSender && item.message.header.attempt == header.attempt) Erase(known);
}

bool KeptWork::Doubt(const message::Header& header) {
  const base::MutexLock lock(mutex_);
  const auto known = items_.find(KeyOf(header));
  if (known == items_.end()) return false;
  Item& item = known->second;
  if (item.message.header.attempt != header.attempt) return true;  // Somebody knows more.
  item.revision = ++last_revision_;
  item.state = State::kDoubtful;
  item.next_look = clock_.Now() + base::Scaled(kDoubtPause);
  return true;
}

void KeptWork::Placed(const message::Header& header, const v1::WorkHolder& holder) {
  const base::MutexLock lock(mutex_);
  const auto known = items_.find(KeyOf(header));
  if (known == items_.end()) return;  // The receiver was quicker.
  Item& item = known->second;
  if (item.message.header.attempt > holder.attempt()) return;
  item.revision = ++last_revision_;
  item.message.header.attempt = holder.attempt();
  Hold(holder, *view_.routing(), item);
  // The holder may have died since it was chosen, before the table that the last look had.
  seen_epoch_ = 0;
}

void KeptWork::Settle(const v1::WorkSettled& settled) {
  const auto uid = base::Uid::Parse(settled.uid());
  if (!uid.has_value()) return;
  const base::MutexLock lock(mutex_);
  const auto known = items_.find(
      {.uid = *uid, .run = settled.run(), .stage = settled.stage(), .from = settled.from()});
  if (known == items_.end()) return;
  Item& item = known->second;
  if (settled.attempt() < item.message.header.attempt) return;
  if (!settled.has_moved_to()) {
    Erase(known);
    return;
  }
  item.revision = ++last_revision_;
  item.message.header.attempt = std::max(settled.attempt(), settled.moved_to().attempt());
  Hold(settled.moved_to(), *view_.routing(), item);
  seen_epoch_ = 0;
}

bool KeptWork::Keeps(const v1::HeldWork& work) const {
  const auto uid = base::Uid::Parse(work.uid());
  if (!uid.has_value()) return false;
  const v1::WorkHolder& holder = work.holder();
  const base::MutexLock lock(mutex_);
  auto at = items_.lower_bound({.uid = *uid, .run = holder.run(), .stage = "", .from = ""});
  for (; at != items_.end() && at->first.uid == *uid; ++at) {
    const message::Header& header = at->second.message.header;
    if (header.run > holder.run()) return true;
    if (StageOf(header) == holder.stage() && header.from == holder.from()) return true;
  }
  return false;
}

void KeptWork::Look(const std::stop_token& stop) {
  Refused refused;
  for (auto& [key, item] : Due()) {
    if (stop.stop_requested()) return;
    LookAfter(key, std::move(item), refused);
  }
}

std::vector<std::pair<WorkKey, KeptWork::Item>> KeptWork::Due() {
  const std::shared_ptr<const Routing> routing = view_.routing();
  const base::MonotonicTime now = clock_.Now();
  const std::uint64_t incarnation = view_.self().incarnation();
  std::vector<std::pair<WorkKey, Item>> due;
  const base::MutexLock lock(mutex_);
  const bool changed = seen_epoch_ != routing->epoch();
  const bool reborn = seen_incarnation_ != incarnation;
  seen_epoch_ = routing->epoch();
  seen_incarnation_ = incarnation;
  for (auto at = items_.begin(); at != items_.end();) {
    Item& item = at->second;
    if (item.message.header.deadline <= now) {
      at = Erase(at);
      continue;
    }
    const bool died = changed && item.state == State::kHeld &&
                      routing->IsOver(item.holder.node_id(), item.holder.incarnation(),
                                      item.holder.routing_epoch(), item.workflow_set);
    const bool renew = reborn && item.state == State::kHeld &&
                       item.message.header.keeper_incarnation != incarnation;
    if (died || renew || item.next_look <= now) {
      item.next_look = now + item.pause;
      item.pause = std::min(2 * item.pause, base::Scaled(kLongestPause));
      due.emplace_back(at->first, item);
    }
    ++at;
  }
  // In the order of the keys, a job with a large UID would be the last at every death.
  std::ranges::stable_sort(due, {},
                           [](const auto& one) { return one.second.message.header.deadline; });
  return due;
}

void KeptWork::LookAfter(const WorkKey& key, Item item, Refused& refused) {
  const absl::StatusOr<v1::JobRecord> record = ways_.ask(key.uid);
  const std::shared_ptr<const Routing> routing = view_.routing();
  Verdict verdict = Verdict::kWait;
  if (record.ok()) {
    item.unknown_since.reset();
    verdict = Judge(*record, *routing, item);
  } else if (absl::IsNotFound(record.status())) {
    const base::MonotonicTime now = clock_.Now();
    const base::MonotonicTime since = item.unknown_since.value_or(now);
    item.unknown_since = since;
    const bool is_deleted = base::GetReason(record.status()).metadata.contains("deleted");
    if (is_deleted || now - since >= base::Scaled(kUnknownLimit)) verdict = Verdict::kDrop;
  } else {
    item.next_look = clock_.Now() + base::Scaled(kRetryPause);
  }
  if (verdict == Verdict::kDrop) return Drop(key, item);
  if (!PutBack(key, item)) return;  // Its receiver has said something meanwhile.
  if (verdict == Verdict::kSend) return SendAgain(key, std::move(item), refused);
  if (record.ok() && verdict == Verdict::kWait && item.state == State::kHeld &&
      item.message.header.keeper_incarnation != view_.self().incarnation()) {
    return Renew(key, std::move(item));
  }
  if (verdict == Verdict::kQuarantine || verdict == Verdict::kLost) End(key, item, verdict);
}

KeptWork::Verdict KeptWork::Judge(const v1::JobRecord& record, const Routing& routing,
                                  Item& item) const {
  message::Header& header = item.message.header;
  if (record.deleted() || job::IsTerminal(record.job().state())) return Verdict::kDrop;
  if (record.run() > header.run || IsHandedOn(header, record, routing)) return Verdict::kDrop;
  // Its end waits for the agreement of the databases. What is computed now would be for nothing.
  if (record.has_proposed() && !IsResult(item.message.header)) return Verdict::kWait;
  const bool doubtful = item.state == State::kDoubtful;
  if (const v1::WorkHolder* const edge = FindEdge(record, header);
      edge != nullptr &&
      (edge->attempt() > header.attempt || (doubtful && edge->attempt() == header.attempt))) {
    if (!edge->keeper().empty() && edge->keeper() != view_.self().node_id()) return Verdict::kDrop;
    header.attempt = edge->attempt();
    Hold(*edge, routing, item);
  }
  if (item.state == State::kSender) return Verdict::kWait;
  if (item.state == State::kHeld) {
    if (!routing.IsOver(item.holder.node_id(), item.holder.incarnation(),
                        item.holder.routing_epoch(), item.workflow_set)) {
      return Verdict::kWait;
    }
    if (!IsResult(item.message.header) && HadBegun(item.holder, record, header)) ++header.deaths;
  }
  if (item.state != State::kTakenBack) ++header.attempt;
  item.state = State::kTakenBack;
  item.next_look = clock_.Now() + base::Scaled(kRetryPause);
  const v1::Workflow* const workflow = routing.FindWorkflow(header.app);
  const int retries =
      workflow != nullptr && workflow->has_retries() ? workflow->retries() : kDefaultRetries;
  if (header.deaths > static_cast<std::uint32_t>(retries)) return Verdict::kQuarantine;
  return header.attempt >= kMaxAttempts ? Verdict::kLost : Verdict::kSend;
}

void KeptWork::Renew(const WorkKey& key, Item item) {
  const v1::Endpoint self = view_.self();
  item.holder.set_keeper(self.node_id());
  item.holder.set_keeper_incarnation(self.incarnation());
  v1::UpdateJobRequest update;
  update.set_uid(key.uid.ToString());
  *update.add_placed() = item.holder;
  if (const absl::Status told = ways_.report(update); told.ok()) {
    item.message.header.keeper_incarnation = self.incarnation();
  } else {
    item.next_look = clock_.Now() + base::Scaled(kRetryPause);
  }
  PutBack(key, item);
}

void KeptWork::SendAgain(const WorkKey& key, Item item, Refused& refused) {
  message::Header& header = item.message.header;
  const std::string place = PlaceOf(header, *view_.routing());
  const auto least = refused.find(place);
  if (least != refused.end() && item.bytes >= least->second) return;
  const v1::Endpoint self = view_.self();
  header.keeper = self.node_id();
  header.keeper_incarnation = self.incarnation();
  header.routing_epoch = view_.routing()->epoch();
  const absl::StatusOr<Delivered> sent = ways_.send(item.message);
  if (!sent.ok()) {
    const std::string reason = base::GetReason(sent.status()).reason;
    const bool doubtful = reason == "OUTCOME_UNKNOWN";
    if (doubtful) item.state = State::kDoubtful;
    if (!doubtful) refused[place] = item.bytes;
    item.next_look = clock_.Now() + base::Scaled(doubtful ? kDoubtPause : kRetryPause);
    PutBack(key, item);
    return;
  }
  spdlog::warn("uid={} stage={} goes to {} as attempt {}, because {} has died", key.uid.ToString(),
               StageOf(header), sent->endpoint.node_id(), sent->attempt, item.holder.node_id());
  v1::WorkHolder holder = HolderAt(*view_.routing(), header, *sent);
  Placed(header, holder);
  if (!IsResult(item.message.header)) Count(KeptWorkEvent::kRecomputed, header.stage);
  v1::UpdateJobRequest update;
  update.set_uid(key.uid.ToString());
  *update.add_placed() = std::move(holder);
  // The receiver reports it too.
  if (const absl::Status told = ways_.report(update); !told.ok())
    spdlog::info("uid={} the record does not say yet who has the work: {}", update.uid(),
                 base::Message(told));
}

void KeptWork::End(const WorkKey& key, const Item& item, Verdict verdict) {
  const message::Header& header = item.message.header;
  v1::UpdateJobRequest update;
  update.set_uid(key.uid.ToString());
  v1::JobError& error = *update.mutable_failed();
  if (verdict == Verdict::kQuarantine) {
    error.set_reason("QUARANTINED");
    error.set_message(
        fmt::format("{} instances died while they computed stage {} of this job, the last one was "
                    "{}; it is not computed again",
                    header.deaths, header.stage, item.holder.node_id()));
  } else {
    error.set_reason("LOST");
    error.set_message(fmt::format("stage {} was given to {} instances, and none completed it",
                                  StageOf(header), header.attempt));
  }
  v1::WorkHolder& by = *update.mutable_ended_by();
  by = item.holder;
  by.set_attempt(header.attempt);
  const absl::Status told = ways_.report(update);
  if (!told.ok() && !absl::IsNotFound(told)) {
    spdlog::warn("uid={} the record does not say yet that the job ended: {}", update.uid(),
                 base::Message(told));
    return;  // It is looked after again soon.
  }
  spdlog::warn("uid={} stage={} ended {}: {}", update.uid(), StageOf(header), error.reason(),
               error.message());
  if (verdict == Verdict::kQuarantine) Count(KeptWorkEvent::kQuarantined, header.stage);
  Drop(key, item);
}

bool KeptWork::PutBack(const WorkKey& key, Item& copy) {
  const base::MutexLock lock(mutex_);
  const auto known = items_.find(key);
  if (known == items_.end() || known->second.revision != copy.revision) return false;
  copy.revision = ++last_revision_;
  known->second = copy;
  return true;
}

void KeptWork::Drop(const WorkKey& key, const Item& copy) {
  const base::MutexLock lock(mutex_);
  const auto known = items_.find(key);
  if (known != items_.end() && known->second.revision == copy.revision) Erase(known);
}

void KeptWork::Hold(const v1::WorkHolder& holder, const Routing& routing, Item& item) {
  item.state = State::kHeld;
  item.holder = holder;
  item.workflow_set = routing.table().workflow_set();
}

KeptWork::Items::iterator KeptWork::Erase(Items::iterator item) {
  bytes_ -= item->second.bytes;
  return items_.erase(item);
}

std::size_t KeptWork::items() const {
  const base::MutexLock lock(mutex_);
  return items_.size();
}

std::size_t KeptWork::bytes() const {
  const base::MutexLock lock(mutex_);
  return bytes_;
}

void KeptWork::Count(KeptWorkEvent event, const std::string& stage) const {
  if (options_.count) options_.count(event, stage);
}

}  // namespace onepiece::node
