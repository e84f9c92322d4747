#include "tests/ring/schedule.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "tests/ring/fiber.h"
#include "tests/ring/ring_world.h"
#include "tests/ring/sim_fabric.h"

namespace onepiece::ring {
namespace {

constexpr std::uint64_t kScheduleFiller = 9;
constexpr std::size_t kSizes[] = {1, 64, 200, 600, 1024, 1500, 2048};
constexpr std::uint32_t kFaultRates[] = {0, 10, 40, 100};  // Faults in a thousand operations.
constexpr int kRandomSteps = 160;
// Rounds in which every actor gets one step. A schedule that is not done by then is wedged.
constexpr int kSettleRounds = 4000;

struct Actor {
  std::string name;
  std::unique_ptr<Fiber> fiber;
  bool stalled = false;
  bool idle = false;  ///< Its last step found nothing to do.
};

struct Sender {
  std::uint64_t id = 0;
  std::size_t actor = 0;
  std::uint64_t messages = 0;
  std::shared_ptr<fabric::FaultPolicy> policy;
  std::unique_ptr<fabric::FaultyFabric> process;
  std::unique_ptr<fabric::Fabric> reordered;  ///< Around `process`, for a mutant.
  std::unique_ptr<Producer> producer;
  std::uint64_t incarnation = 0;
  std::uint64_t acknowledged = 0;  ///< Messages 1 … this one.
  std::map<std::uint64_t, std::size_t> sizes;
};

class Schedule {
 public:
  Schedule(Choices& choices, Mutant mutant, bool trace);
  Verdict Run();

 private:
  class Policy;
  friend class Policy;

  void Build();
  void Prefill();
  void AddActor(std::string name, std::function<void()> body);
  void SetHooks();

  // The bodies of the fibers.
  void Produce(Sender& sender);
  void Consume();
  void Recover();
  bool Connect(Sender& sender);
  void Judge(Sender& sender, const SendResult& result);
  void Tick();
  void TickWithoutTailGuard();
  void Take(Delivery& delivery);

  // The scheduler.
  void Yield(bool idle);
  void LockConsumer();
  void UnlockConsumer() { consumer_locked_ = false; }
  void Point(const char* what);
  fabric::Fault Strike(Sender& sender, const fabric::FaultPoint& point);
  void Resume(std::size_t actor);
  bool Runnable(std::size_t actor) const;
  void RandomStep();
  void Event(std::uint32_t pick);
  void Unstall();
  bool Settle(bool with_stalled);
  void Finish();

  bool shared() const { return options_.shape == Shape::kShared; }

  // The checks.
  void Violate(const std::string& what);
  void CheckEffect(const SimMemory& memory, const fabric::Op& op, std::uint64_t held);
  void CheckMemory();
  void CheckEnd();
  void Trace(const std::string& what);

  Choices& choices_;
  const Mutant mutant_;
  const bool tracing_;
  Verdict verdict_;

  base::ManualClock clock_;
  SimFabric sim_{clock_};
  std::shared_ptr<fabric::FaultBoard> board_;
  std::unique_ptr<fabric::FaultyFabric> consumer_fabric_;
  ConsumerOptions options_;
  std::unique_ptr<Consumer> consumer_;
  std::vector<std::unique_ptr<Sender>> senders_;
  std::vector<Actor> actors_;
  std::size_t current_ = 0;
  bool inside_ = false;           // A fiber is running.
  bool consumer_locked_ = false;  // A fiber is inside a call that holds the consumer's mutex.
  bool uninterrupted_ = false;    // No scheduling points.
  bool stopping_ = false;         // Fibers must end.
  std::uint32_t fault_rate_ = 0;
  std::deque<Delivery> held_;
  std::vector<Received> received_;
  std::string last_traced_;
  std::map<std::uint64_t, std::uint64_t> last_polled_;  // The last message id by producer.
};

// Asks the schedule before every operation of one sender.
class Schedule::Policy final : public fabric::FaultPolicy {
 public:
  Policy(Schedule& schedule, Sender& sender) : schedule_(schedule), sender_(sender) {}
  fabric::Fault Before(const fabric::FaultPoint& point) override {
    return schedule_.Strike(sender_, point);
  }

 private:
  Schedule& schedule_;
  Sender& sender_;
};

Schedule::Schedule(Choices& choices, Mutant mutant, bool trace)
    : choices_(choices), mutant_(mutant), tracing_(trace) {}

Verdict Schedule::Run() {
  Build();
  Prefill();
  for (int step = 0; step < kRandomSteps && verdict_.violation.empty(); ++step) RandomStep();
  fault_rate_ = 0;
  Trace("-- no more faults");
  // The stalled actors may never come back, so the others must settle without them first.
  if (!Settle(/*with_stalled=*/false)) Violate("wedged while somebody is stalled");
  Unstall();
  board_->Land();
  if (!Settle(/*with_stalled=*/true)) Violate("wedged");
  Finish();
  if (verdict_.violation.empty()) CheckEnd();
  const ConsumerCounters counters = consumer_->counters();
  Tally& tally = verdict_.tally;
  tally.schedules = 1;
  tally.fenced = counters.owners_fenced + counters.moves > 0 ? 1 : 0;
  tally.per_producer = shared() ? 0 : 1;
  tally.revoking = board_->revokes() ? 1 : 0;
  tally.moves = counters.moves;
  tally.holes = counters.holes_skipped;
  tally.locks = counters.locks_broken;
  tally.duplicates = counters.duplicates;
  return std::move(verdict_);
}

void Schedule::Build() {
  // Two mutants lie about the fence, so the backend must not have one.
  const bool lies =
      mutant_ == Mutant::kBreakLockWithoutFence || mutant_ == Mutant::kSkipHoleWithoutFence;
  const bool revokes = choices_.Draw(2) == 1 && !lies;
  board_ = std::make_shared<fabric::FaultBoard>(revokes);
  consumer_fabric_ =
      std::make_unique<fabric::FaultyFabric>(sim_, board_, fabric::SelfIdentity(), nullptr);
  options_ = SmallRing();
  options_.slots = choices_.Draw(2) == 0 ? 8 : 4;
  // The mutants change the shared ring.
  if (choices_.Draw(4) == 3 && mutant_ == Mutant::kNone) options_.shape = Shape::kPerProducer;
  consumer_ = *Consumer::Create(*consumer_fabric_, options_, clock_);
  const std::uint32_t producers = 1 + choices_.Draw(3);
  fault_rate_ = kFaultRates[choices_.Draw(std::size(kFaultRates))];
  for (std::uint64_t id = 1; id <= producers; ++id) {
    auto sender = std::make_unique<Sender>();
    sender->id = id;
    sender->actor = actors_.size();
    sender->messages = 1 + choices_.Draw(4);
    for (std::uint64_t message = 1; message <= sender->messages; ++message) {
      sender->sizes[message] = kSizes[choices_.Draw(std::size(kSizes))];
    }
    sender->policy = std::make_shared<Policy>(*this, *sender);
    AddActor("p" + std::to_string(id), [this, s = sender.get()] { Produce(*s); });
    senders_.push_back(std::move(sender));
  }
  AddActor("consumer", [this] { Consume(); });
  AddActor("recovery", [this] { Recover(); });
  SetHooks();
}

void Schedule::AddActor(std::string name, std::function<void()> body) {
  actors_.push_back({.name = std::move(name), .fiber = std::make_unique<Fiber>(std::move(body))});
}

void Schedule::SetHooks() {
  sim_.hooks.point = [this](const char* what) { Point(what); };
  sim_.hooks.effect = [this](const SimMemory& memory, const fabric::Op& op, std::uint64_t held) {
    if (op.name == std::string_view("lock.break")) Point(op.name);
    CheckEffect(memory, op, held);
  };
  if (mutant_ == Mutant::kBreakLockWithoutFence) {
    sim_.hooks.revoke = [](const SimMemory& memory) { return memory.words[0] != 0; };
  }
  if (mutant_ == Mutant::kSkipHoleWithoutFence) {
    sim_.hooks.revoke = [](const SimMemory& memory) { return memory.words[0] == 0; };
  }
}

// Brings the ring into a state: somewhere in a lap, with messages that wait.
void Schedule::Prefill() {
  fabric::FaultyFabric process(sim_, board_, board_->NewProcess(), nullptr);
  auto enrolled = *EnrollWith(*consumer_, process, kScheduleFiller, 1);
  auto producer = *Producer::Connect(*enrolled.dialer, enrolled.grant, {}, clock_);
  std::uint64_t id = 0;
  const std::uint32_t steps = choices_.Draw(6);
  for (std::uint32_t i = 0; i < steps; ++i) {
    ONEPIECE_CHECK(SendOnce(*producer, kScheduleFiller, ++id, 1024).outcome == SendOutcome::kOk);
    while (auto delivery = consumer_->Poll()) Take(*delivery);
  }
  const std::uint32_t waiting = choices_.Draw(options_.slots);
  for (std::uint32_t i = 0; i < waiting; ++i) {
    // When the ring is full, no more messages can wait.
    if (SendOnce(*producer, kScheduleFiller, ++id, 512).outcome != SendOutcome::kOk) break;
  }
}

void Schedule::Produce(Sender& sender) {
  bool again = false;
  for (std::uint64_t message = 1; message <= sender.messages && !stopping_;) {
    if (sender.producer == nullptr && !Connect(sender)) {
      Yield(/*idle=*/true);
      continue;
    }
    if (again) ++verdict_.tally.resends;
    const SendResult result = SendOnce(*sender.producer, sender.id, message, sender.sizes[message]);
    if (stopping_) break;
    Judge(sender, result);
    again = result.outcome == SendOutcome::kUnknown;
    if (result.outcome == SendOutcome::kOk) sender.acknowledged = message++;
    const bool leaves = result.outcome == SendOutcome::kOk && choices_.Draw(16) == 15;
    if (result.reconnect || leaves) {
      sender.producer.reset();
      ++verdict_.tally.reconnects;
    }
    if (leaves && choices_.Draw(2) == 1) {
      LockConsumer();
      (void)consumer_->Dismiss(ProducerId(sender.id), Incarnation(sender.incarnation));
      UnlockConsumer();
    }
    Yield(/*idle=*/result.outcome == SendOutcome::kBusy);
  }
  sender.producer.reset();
}

void Schedule::Judge(Sender& sender, const SendResult& result) {
  Tally& tally = verdict_.tally;
  if (result.outcome == SendOutcome::kOk) ++tally.sent;
  if (result.outcome == SendOutcome::kUnknown) ++tally.unknown;
  if (tracing_) {
    const char* text = result.outcome == SendOutcome::kOk     ? "OK"
                       : result.outcome == SendOutcome::kBusy ? "BUSY"
                                                              : "UNKNOWN";
    Trace("p" + std::to_string(sender.id) + ": message " + std::to_string(sender.acknowledged + 1) +
          " " + text + " " + Reason(result.detail));
  }
  if (Reason(result.detail) != "RING_FULL" || !shared()) return;
  const auto memory = sim_.newest();
  const auto tail =
      DecodeTail(std::span(memory->words).subspan(kTailOffset / 8).first<kTailWords>());
  if (tail.has_value() && tail->offset >= options_.capacity_bytes) tally.wrapped_full = 1;
}

bool Schedule::Connect(Sender& sender) {
  if (sender.process == nullptr || board_->IsDead(sender.process->self())) {
    sender.process =
        std::make_unique<fabric::FaultyFabric>(sim_, board_, board_->NewProcess(), sender.policy);
    sender.reordered.reset();
    if (mutant_ == Mutant::kTailBeforeReserved) {
      sender.reordered =
          std::make_unique<ReorderingFabric>(*sender.process, "slot.reserve", "tail.write");
    } else if (mutant_ == Mutant::kCommittedBeforePayload) {
      sender.reordered =
          std::make_unique<ReorderingFabric>(*sender.process, "payload.write", "slot.commit");
    }
  }
  fabric::Fabric& fabric = sender.reordered != nullptr ? *sender.reordered : *sender.process;
  LockConsumer();
  auto enrolled = EnrollWith(*consumer_, fabric, sender.id, ++sender.incarnation);
  UnlockConsumer();
  if (!enrolled.ok()) return false;
  auto producer = Producer::Connect(*enrolled->dialer, enrolled->grant, {}, clock_);
  if (producer.ok()) sender.producer = *std::move(producer);
  return producer.ok();
}

void Schedule::Consume() {
  while (!stopping_) {
    LockConsumer();
    auto delivery = consumer_->Poll();
    const bool idle = !delivery.has_value() && held_.empty();
    if (delivery.has_value()) {
      const std::uint64_t id = delivery->message_id();
      std::uint64_t& last = last_polled_[delivery->producer_id().value];
      if (id <= last) Violate("messages of one producer out of order, or twice");
      last = id;
      held_.push_back(*std::move(delivery));
    }
    // Copies are made after polls, and out of order.
    if (!held_.empty() && choices_.Draw(3) != 2) {
      const std::size_t at = choices_.Draw(static_cast<std::uint32_t>(held_.size()));
      Take(held_[at]);
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    UnlockConsumer();
    Yield(idle);
  }
}

void Schedule::Take(Delivery& delivery) {
  std::vector<std::byte> bytes(delivery.size_bytes());
  const Received got{delivery.producer_id().value, delivery.message_id(), bytes.size()};
  const absl::Status status = delivery.CopyTo(bytes);
  if (tracing_) {
    Trace("consumer: message " + std::to_string(got.id) + " of p" + std::to_string(got.producer) +
          (status.ok() ? "" : " " + Reason(status)));
  }
  if (!status.ok()) {
    Violate("a committed message does not have its checksum");
  } else if (bytes != Content(got.producer, got.id, got.size)) {
    Violate("a message arrived that nobody sent");
  }
  received_.push_back(got);
}

void Schedule::Recover() {
  while (!stopping_) {
    LockConsumer();
    const bool changed = mutant_ == Mutant::kSkipWithoutTailGuard ? (TickWithoutTailGuard(), false)
                                                                  : consumer_->Tick(clock_.Now());
    UnlockConsumer();
    if (changed) Trace("recovery: changed the ring");
    Yield(/*idle=*/!changed);
  }
}

// A mutant of recovery that takes a reservation for published although the tail has not passed it.
// It sees such a tail, and nobody else does.
void Schedule::TickWithoutTailGuard() {
  const auto memory = sim_.newest();
  const std::span<std::uint64_t> line =
      std::span(memory->words).subspan(kTailOffset / 8, kTailWords);
  const std::vector<std::uint64_t> before(line.begin(), line.end());
  const auto tail = DecodeTail(line.first<kTailWords>());
  std::optional<Slot> slot;
  if (tail.has_value()) {
    const Layout layout{.capacity_bytes = options_.capacity_bytes, .slots = options_.slots};
    slot = DecodeSlot(
        std::span(memory->words).subspan(layout.SlotOffset(tail->seq) / 8).first<kSlotWords>());
  }
  const bool lies = slot.has_value() && slot->seq == tail->seq &&
                    slot->state == SlotState::kReserved && slot->offset == tail->offset;
  if (lies) {
    std::ranges::copy(EncodeTail({.seq = slot->seq + 1,
                                  .offset = slot->offset + Layout::Footprint(slot->length_bytes)}),
                      line.begin());
  }
  uninterrupted_ = true;
  consumer_->Tick(clock_.Now());
  uninterrupted_ = false;
  if (lies) std::ranges::copy(before, line.begin());
}

void Schedule::Yield(bool idle) {
  Actor& actor = actors_[current_];
  actor.idle = idle;
  actor.fiber->Yield();
}

// All fibers share one thread, so they cannot wait for the consumer's mutex. They queue here.
void Schedule::LockConsumer() {
  while (consumer_locked_) Yield(/*idle=*/true);
  consumer_locked_ = true;
}

void Schedule::Point(const char* what) {
  if (!inside_ || uninterrupted_ || stopping_) return;
  const std::string_view name(what);
  const bool unlocked = name != "lock.break";  // At the other points the mutex is free.
  if (unlocked) UnlockConsumer();
  Yield(/*idle=*/false);
  if (unlocked) LockConsumer();
  if (tracing_) Trace(actors_[current_].name + ": " + what);
}

fabric::Fault Schedule::Strike(Sender& sender, const fabric::FaultPoint& point) {
  using fabric::FaultKind;
  if (stopping_) return {.kind = FaultKind::kDrop};
  Yield(/*idle=*/false);
  if (stopping_) return {.kind = FaultKind::kDrop};
  const std::string where = tracing_ ? actors_[sender.actor].name + ": " + point.name : "";
  if (fault_rate_ == 0 || choices_.Draw(1000) < 1000 - fault_rate_) {
    Trace(where);
    return {};
  }
  Tally& tally = verdict_.tally;
  switch (choices_.Draw(9)) {
    case 0:
    case 1:
      ++tally.stalls;
      Trace(where + " STALLS");
      actors_[sender.actor].stalled = true;
      Yield(/*idle=*/false);
      Trace(where);
      return {};
    case 2:
    case 3:
      ++tally.deaths;
      Trace(where + " DIES");
      return {.kind = FaultKind::kDie};
    case 4:
      ++tally.tears;
      Trace(where + " DIES IN THE MIDDLE");
      return {.kind = FaultKind::kTear};
    case 5:
      ++tally.splits;
      Trace(where + " HALF");
      return {.kind = FaultKind::kSplit};
    case 6:
      ++tally.lates;
      Trace(where + " and the rest LATE");
      return {.kind = FaultKind::kLate};
    case 7:
      ++tally.cuts;
      Trace(where + " CUT BEFORE");
      return {.kind = FaultKind::kDrop};
    default:
      ++tally.cuts;
      Trace(where + " CUT BEHIND");
      return {.kind = FaultKind::kBreak};
  }
}

bool Schedule::Runnable(std::size_t actor) const {
  return !actors_[actor].fiber->done() && !actors_[actor].stalled;
}

void Schedule::Resume(std::size_t actor) {
  current_ = actor;
  inside_ = true;
  actors_[actor].fiber->Resume();
  inside_ = false;
  ++verdict_.tally.steps;
  CheckMemory();
}

void Schedule::RandomStep() {
  constexpr std::uint32_t kGoOn = 100;
  const std::uint32_t draw = choices_.Draw(256);
  if (draw >= kGoOn) {
    Event(draw - kGoOn);
    return;
  }
  std::size_t next = current_;
  if (!Runnable(next) || actors_[next].idle) {
    do {
      next = (next + 1) % actors_.size();
    } while (!Runnable(next));  // The consumer and recovery are always runnable.
  }
  Resume(next);
}

// 0 … 155.
void Schedule::Event(std::uint32_t pick) {
  static constexpr std::array<int, 4> kAdvanceMs{50, 300, 700, 2000};
  if (pick < 130) {
    const std::size_t actor = pick % actors_.size();
    if (Runnable(actor)) Resume(actor);
  } else if (pick < 144) {
    const int ms = kAdvanceMs[pick % kAdvanceMs.size()];
    if (tracing_) Trace("clock: +" + std::to_string(ms) + " ms");
    clock_.Advance(std::chrono::milliseconds(ms));
  } else if (pick < 152) {
    if (board_->Land(1 + static_cast<int>(pick % 4)) > 0) Trace("late operations land");
    CheckMemory();
  } else {
    Unstall();
  }
}

void Schedule::Unstall() {
  for (Actor& actor : actors_) {
    if (actor.stalled) Trace(actor.name + ": GOES ON");
    actor.stalled = false;
  }
}

// Runs the actors in turn while time passes. Returns true when every sender that can send has sent
// and the ring is empty.
bool Schedule::Settle(bool with_stalled) {
  int quiet = 0;  // Quiet rounds. A move in the last one may have found messages for the next.
  for (int round = 0; round < kSettleRounds; ++round) {
    if (!verdict_.violation.empty()) return true;
    bool finished = true;
    for (std::size_t i = 0; i < actors_.size(); ++i) {
      if (Runnable(i)) Resume(i);
      const bool sends = i < senders_.size();
      finished = finished && (!sends || actors_[i].fiber->done() || actors_[i].stalled);
    }
    const bool empty =
        !consumer_locked_ && actors_[senders_.size()].idle && consumer_->fill().messages == 0;
    // A stalled sender may hold a place in the ring. It stays taken until the sender is suspected.
    quiet = finished && empty ? quiet + 1 : 0;
    if (quiet == 2) return true;
    if (round % 4 == 3) clock_.Advance(std::chrono::milliseconds(100));
    if (with_stalled) Unstall();
  }
  return false;
}

void Schedule::Finish() {
  stopping_ = true;
  for (Actor& actor : actors_) actor.stalled = false;
  for (bool running = true; running;) {
    running = false;
    for (std::size_t i = 0; i < actors_.size(); ++i) {
      if (actors_[i].fiber->done()) continue;
      running = true;
      current_ = i;
      actors_[i].fiber->Resume();
    }
  }
  held_.clear();
}

void Schedule::Violate(const std::string& what) {
  if (!verdict_.violation.empty()) return;
  verdict_.violation = what;
  Trace("VIOLATION: " + what);
}

// Checks that operations of at most one holder of the lock take effect.
void Schedule::CheckEffect(const SimMemory& memory, const fabric::Op& op, std::uint64_t held) {
  const std::string_view name(op.name);
  if (!shared()) return;
  if (name != "tail.write" && name != "slot.reserve" && name != "slot.pad") return;
  const auto newest = sim_.newest();
  if (newest.get() != &memory) return;
  if (memory.words[0] != held) Violate(std::string(name) + " of somebody who has lost the lock");
}

// Checks that head <= tail <= head + the ring's size, and that every published slot is valid.
void Schedule::CheckMemory() {
  const auto memory = sim_.newest();
  if (memory == nullptr || !shared()) return;
  const std::span<const std::uint64_t> words(memory->words);
  const auto head = DecodeHead(words.subspan(kHeadOffset / 8).first<kHeadWords>());
  const auto tail = DecodeTail(words.subspan(kTailOffset / 8).first<kTailWords>());
  if (!head.has_value() || !tail.has_value()) return;
  if (tail->seq < head->seq || tail->seq - head->seq > options_.slots ||
      tail->offset < head->offset || tail->offset - head->offset > options_.capacity_bytes) {
    Violate("tail and head have come apart");
    return;
  }
  const Layout layout{.capacity_bytes = options_.capacity_bytes, .slots = options_.slots};
  for (std::uint64_t seq = head->seq; seq < tail->seq; ++seq) {
    if (words[layout.SlotOffset(seq) / 8] != seq) Violate("a published slot is not reserved");
  }
}

void Schedule::CheckEnd() {
  std::set<Received> seen;
  for (const Received& got : received_) {
    if (!seen.insert(got).second) Violate("a message arrived twice");
  }
  for (const auto& sender : senders_) {
    if (sender->acknowledged != sender->messages) Violate("a message was never acknowledged");
    for (std::uint64_t id = 1; id <= sender->acknowledged; ++id) {
      if (!seen.contains({sender->id, id, sender->sizes[id]})) {
        Violate("an acknowledged message is lost");
      }
    }
  }
  const ConsumerCounters counters = consumer_->counters();
  if (counters.bad_payload + counters.bad_owner + counters.bad_generation + counters.bad_structure >
      0) {
    Violate("the consumer saw what no honest producer writes");
  }
  if (!shared()) {
    if (counters.moves + counters.holes_skipped + counters.abandoned > 0) {
      Violate("recovery of a segment that needs none");
    }
    return;
  }
  if (!shared()) {
    if (counters.moves + counters.holes_skipped + counters.abandoned > 0) {
      Violate("recovery of a segment that needs none");
    }
    return;
  }
  const auto memory = sim_.newest();
  const auto tail =
      DecodeTail(std::span(memory->words).subspan(kTailOffset / 8).first<kTailWords>());
  if (counters.moves == 0 && tail->seq != counters.delivered + counters.duplicates + counters.pads +
                                              counters.holes_skipped) {
    Violate("a hole was not counted");
  }
  if (memory->words[0] != 0) Violate("the lock is not free");
}

// `what` is "WHO: WHAT". The next steps of the same actor go on the same line.
void Schedule::Trace(const std::string& what) {
  if (!tracing_ || what.empty()) return;
  const std::string who = what.substr(0, what.find(':') + 1);
  const bool same = !who.empty() && who == last_traced_;
  verdict_.trace += same ? "," + what.substr(who.size()) : "\n  " + what;
  last_traced_ = who;
}

}  // namespace

std::uint32_t Choices::Draw(std::uint32_t n) {
  std::uint32_t value = 0;
  if (!replay_) {
    value = static_cast<std::uint32_t>(random_() % n);
  } else if (taken_.size() < given_.size()) {
    value = given_[taken_.size()] % n;
  }
  taken_.push_back(value);
  return value;
}

void Tally::Add(const Tally& other) {
  schedules += other.schedules;
  fenced += other.fenced;
  wrapped_full += other.wrapped_full;
  revoking += other.revoking;
  per_producer += other.per_producer;
  steps += other.steps;
  sent += other.sent;
  deaths += other.deaths;
  tears += other.tears;
  splits += other.splits;
  stalls += other.stalls;
  lates += other.lates;
  cuts += other.cuts;
  unknown += other.unknown;
  resends += other.resends;
  reconnects += other.reconnects;
  moves += other.moves;
  holes += other.holes;
  locks += other.locks;
  duplicates += other.duplicates;
}

Verdict RunSchedule(Choices& choices, Mutant mutant, bool trace) {
  return Schedule(choices, mutant, trace).Run();
}

Shrunk Shrink(std::vector<std::uint32_t> choices, Mutant mutant) {
  const auto fails = [mutant](const std::vector<std::uint32_t>& list) {
    Choices replay(list);
    return !RunSchedule(replay, mutant, /*trace=*/false).violation.empty();
  };
  for (std::size_t chunk = std::max<std::size_t>(choices.size() / 2, 1); chunk > 0; chunk /= 2) {
    for (std::size_t end = choices.size(); end > 0; end -= std::min(end, chunk)) {
      const std::size_t begin = end - std::min(end, chunk);
      auto duller = choices;
      std::fill(duller.begin() + static_cast<std::ptrdiff_t>(begin),
                duller.begin() + static_cast<std::ptrdiff_t>(end), 0);
      if (duller != choices && fails(duller)) choices = std::move(duller);
    }
  }
  while (!choices.empty() && choices.back() == 0) choices.pop_back();
  Choices replay(choices);
  return {.choices = choices, .verdict = RunSchedule(replay, mutant, /*trace=*/true)};
}

}  // namespace onepiece::ring
