// Every single fault at every operation of a send, in every state of the ring, among one to three
// producers, on a backend that can revoke and on one that cannot; and pairs of faults. Afterwards
// the others go on, the ring is empty and free, every hole is counted, and every acknowledged
// message has arrived exactly once.
//
// ONEPIECE_TEST_FABRIC chooses another fabric than shared memory. ONEPIECE_FAULTS=small chooses
// fewer cases.
#include <QtTest>
#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "spdlog/spdlog.h"
#include "tests/ring/ring_world.h"
#include "tests/test_main.h"

namespace onepiece::ring {
namespace {

/// When the operations take effect that a late fault held back.
enum class Landing { kNever, kBeforeTheFence, kBehindTheFence, kAfterReconnect };

struct Trouble {
  const char* name;
  std::optional<fabric::FaultKind> fault;  ///< None: a stall past every timeout.
  Landing landing = Landing::kNever;
  bool small = false;  ///< True when the small run has it.
};
constexpr Trouble kDie{"die", fabric::FaultKind::kDie, Landing::kNever, true};
constexpr Trouble kTear{"tear", fabric::FaultKind::kTear};
constexpr Trouble kCut{"break before effect", fabric::FaultKind::kDrop};
constexpr Trouble kBreak{"break after effect", fabric::FaultKind::kBreak, Landing::kNever, true};
constexpr Trouble kStall{"stall", std::nullopt, Landing::kNever, true};
constexpr Trouble kTroubles[] = {
    kDie,
    kStall,
    {"late, before the fence", fabric::FaultKind::kLate, Landing::kBeforeTheFence},
    {"late, behind the fence", fabric::FaultKind::kLate, Landing::kBehindTheFence, true},
    {"late, after a new connection", fabric::FaultKind::kLate, Landing::kAfterReconnect},
    kCut,
    kBreak,
    kTear};

/// A state of the ring (4096 bytes, 8 slots) when the send begins, and the size of the message.
struct State {
  const char* name;
  std::uint64_t tail;  ///< Messages up to here have been consumed.
  int waiting;         ///< Messages of 512 bytes that nobody has consumed.
  std::size_t size;
};
constexpr State kEmpty{"empty", 0, 0, 10};
constexpr State kWrapped{"wrapped", 4096 + 3072, 0, 1500};  // With a PAD in front.
constexpr State kNearlyFull{"nearly full", 0, 5, 1500};     // Then there are 0 bytes left.
constexpr State kStates[] = {kEmpty, kWrapped, kNearlyFull};

/// The operations that a send without faults posts.
class Recorder final : public fabric::FaultPolicy {
 public:
  fabric::Fault Before(const fabric::FaultPoint& point) override {
    names_.emplace_back(point.name);
    return {};
  }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

/// Sends message `message` until it is acknowledged, as a service does: it reconnects when told to,
/// and waits on the manual clock when the ring is busy. Returns false when no acknowledgement comes
/// within a minute of the ring's time.
bool SendForSure(World& world, std::uint64_t id, std::uint64_t message, std::size_t size,
                 fabric::FaultyFabric& process) {
  auto producer = world.Connect(id, process);
  for (int attempt = 0; attempt < 600; ++attempt) {
    if (producer == nullptr) return false;
    const SendResult result = SendOnce(*producer, id, message, size);
    if (result.outcome == SendOutcome::kOk) return true;
    if (result.reconnect) producer = world.Connect(id, process);
    world.Advance(std::chrono::milliseconds(100));
  }
  return false;
}

constexpr std::uint64_t kA = 1;
constexpr std::uint64_t kB = 2;
constexpr std::uint64_t kC = 3;
constexpr std::uint64_t kSmallProducers = 2;
constexpr std::uint64_t kProbe = 50;
constexpr std::uint64_t kFiller = 99;

ConsumerOptions RingOf(Shape shape) {
  ConsumerOptions options = SmallRing();
  options.shape = shape;
  return options;
}

/// Brings the fresh segment of `producer` into `state`. Returns how many messages that took. The
/// last state.waiting of them are not consumed.
std::uint64_t Prepare(World& world, Producer& producer, std::uint64_t id, const State& state) {
  std::uint64_t message = 0;
  for (std::uint64_t at = 0; at < state.tail;) {
    const std::uint64_t size = std::min<std::uint64_t>(1024, state.tail - at);
    ONEPIECE_CHECK(SendOnce(producer, id, ++message, size).outcome == SendOutcome::kOk);
    world.Drain();
    at += size;
  }
  for (int i = 0; i < state.waiting; ++i) {
    ONEPIECE_CHECK(SendOnce(producer, id, ++message, 512).outcome == SendOutcome::kOk);
  }
  return message;
}

/// The operations that a producer posts from its connection on until it has sent a message in
/// `state`.
struct Operations {
  std::vector<std::string> names;  ///< The operations of the send.
  std::uint64_t before = 0;        ///< How many operations came before the send.
};

Operations OperationsOf(Shape shape, const State& state) {
  World world(RingOf(shape));
  auto recorder = std::make_shared<Recorder>();
  auto producer = world.Connect(kA, world.NewProcess(recorder));
  std::uint64_t message = 0;
  if (shape == Shape::kShared) {
    Prepare(world, *world.Connect(kFiller, world.NewProcess()), kFiller, state);
  } else {
    message = Prepare(world, *producer, kA, state);
  }
  const std::uint64_t before = recorder->names().size();
  ONEPIECE_CHECK(SendOnce(*producer, kA, message + 1, state.size).outcome == SendOutcome::kOk);
  return {.names = {recorder->names().begin() + static_cast<std::ptrdiff_t>(before),
                    recorder->names().end()},
          .before = before};
}

/// A producer one of whose sends meets one fault, while the ring is in some state.
struct Victim {
  std::uint64_t id;
  std::shared_ptr<fabric::PlannedFault> fault;
  fabric::FaultyFabric* process = nullptr;
  std::unique_ptr<Producer> producer;
  std::uint64_t message = 1;  // The one that meets the fault.
  std::thread thread;         // Runs the send of a stalled producer.
  SendResult result;
  bool reached = false;
  std::atomic<bool> ended{false};  // The thread's send has ended.

  /// The fault strikes at operation `op` of the send.
  Victim(World& world, std::uint64_t producer_id, std::uint64_t op, const Trouble& trouble)
      : id(producer_id), fault(std::make_shared<fabric::PlannedFault>(op, trouble.fault)) {
    process = &world.NewProcess(fault);
    producer = world.Connect(id, *process);
    ONEPIECE_CHECK(producer != nullptr);
  }
  /// The same, after bringing the ring into `state`. In a shared ring another producer does that.
  /// `op` counts those operations too.
  Victim(World& world, std::uint64_t producer_id, Shape shape, const State& state, std::uint64_t op,
         const Trouble& trouble)
      : Victim(world, producer_id, op, trouble) {
    if (shape == Shape::kShared) {
      Prepare(world, *world.Connect(kFiller, world.NewProcess()), kFiller, state);
    } else {
      message = 1 + Prepare(world, *producer, id, state);
    }
  }
  ~Victim() { Resume(); }

  /// Returns once the send has ended or stalled.
  void Send(std::size_t size, const Trouble& trouble) {
    const auto send = [this, size] { result = SendOnce(*producer, id, message, size); };
    if (trouble.fault.has_value()) {
      send();
      reached = fault->AwaitReached(base::Duration::zero());
      return;
    }
    thread = std::thread([this, send] {
      send();
      ended.store(true);
    });
    while (!reached && !ended.load()) reached = fault->AwaitReached(std::chrono::milliseconds(1));
    if (!reached) Resume();
  }
  void Resume() {
    if (!thread.joinable()) return;
    fault->Release();
    thread.join();
  }
};

/// How many sequence numbers the ring's present segment has given out, as a peer sees it.
std::uint64_t TailSeq(World& world) {
  auto enrolled = world.Enroll(kProbe, world.NewProcess());
  const Hostile peer(*enrolled);
  TailWords words{};
  const fabric::Op read = fabric::Op::ReadWords("peek", kTailOffset, words);
  ONEPIECE_CHECK(peer.channel->Execute({&read, 1}, base::MonotonicTime::max()).ok());
  return DecodeTail(words)->seq;
}

struct Case {
  Shape shape = Shape::kShared;
  State state;
  Trouble trouble;
  std::uint64_t op = 0;
  std::uint64_t producers = 1;
  bool revokes = false;
};

/// The sums over all cases.
struct Sum {
  std::uint64_t cases = 0;
  std::uint64_t lost = 0;
  std::uint64_t duplicates = 0;
  std::uint64_t corrupt = 0;
  std::uint64_t moves = 0;
  std::uint64_t holes = 0;
  std::uint64_t locks = 0;
  std::uint64_t tails = 0;
};

}  // namespace

class FaultEnumerationTest : public QObject {
  Q_OBJECT

  Sum sum_;

  static std::string Where(const char* what, const Victim& victim, std::uint64_t op) {
    return std::string(what) + " producer " + std::to_string(victim.id) + " at operation " +
           std::to_string(op) + " " + victim.fault->reached_name();
  }

  // The ring is empty and free: a new producer needs one attempt.
  static void CheckFree(World& world, std::uint64_t message, const std::string& where) {
    world.Advance(std::chrono::seconds(5));
    QVERIFY2(world.consumer->fill().messages == 0, where.c_str());
    QVERIFY2(world.consumer->fill().bytes == 0, where.c_str());
    auto producer = world.Connect(kProbe, world.NewProcess());
    QVERIFY2(SendOnce(*producer, kProbe, message, 2048).outcome == SendOutcome::kOk, where.c_str());
    world.Drain();
    QVERIFY2(world.Count(kProbe, message) == 1, where.c_str());
  }

  // Every message of `acknowledged` arrived. None arrived twice, out of its producer's order or
  // altered, and every sequence number is accounted for.
  void CheckReceived(World& world, const std::set<std::pair<std::uint64_t, std::uint64_t>>& sure,
                     const std::string& where) {
    std::uint64_t lost = 0;
    for (const auto& [id, message] : sure) lost += world.Count(id, message) == 0 ? 1 : 0;
    std::set<Received> seen;
    std::map<std::uint64_t, std::uint64_t> last;
    std::uint64_t duplicates = 0;
    bool in_order = true;
    for (const Received& got : world.received) {
      duplicates += seen.insert(got).second ? 0 : 1;
      in_order = in_order && got.id >= last[got.producer];
      last[got.producer] = got.id;
    }
    sum_.lost += lost;
    sum_.duplicates += duplicates;
    sum_.corrupt += world.corrupt;
    const ConsumerCounters counters = world.consumer->counters();
    sum_.moves += counters.moves;
    sum_.holes += counters.holes_skipped;
    sum_.locks += counters.locks_broken;
    sum_.tails += counters.tails_repaired;
    QVERIFY2(lost == 0, where.c_str());
    QVERIFY2(duplicates == 0, where.c_str());
    QVERIFY2(in_order, where.c_str());
    QVERIFY2(world.corrupt == 0 && counters.bad_payload == 0, where.c_str());
    QVERIFY2(counters.bad_owner + counters.bad_generation + counters.bad_structure == 0,
             where.c_str());
    if (world.shape == Shape::kPerProducer) {
      // In a segment of its own no producer reserves.
      QVERIFY2(counters.moves + counters.holes_skipped + counters.abandoned == 0, where.c_str());
    } else if (counters.moves == 0) {
      QVERIFY2(TailSeq(world) == counters.delivered + counters.duplicates + counters.pads +
                                     counters.holes_skipped,
               where.c_str());
    }
  }

  // A meets its fault; B and C, if there are any, go on; A comes back.
  void OneFault(const Case& c) {
    World world(RingOf(c.shape), c.revokes);
    Victim a(world, kA, c.shape, c.state, c.op, c.trouble);
    std::set<std::pair<std::uint64_t, std::uint64_t>> sure;
    for (std::uint64_t id = c.state.waiting; id > 0; --id) {
      sure.emplace(c.shape == Shape::kShared ? kFiller : kA, id);
    }
    a.Send(c.state.size, c.trouble);
    const std::string where = Where(c.trouble.name, a, c.op) + ", " + c.state.name + ", " +
                              (c.shape == Shape::kShared ? "shared, " : "of its own, ") +
                              std::to_string(c.producers) + " producers, " +
                              (c.revokes ? "revoking" : "not revoking");
    QVERIFY2(a.reached, where.c_str());
    if (c.trouble.landing == Landing::kBeforeTheFence) world.board->Land();
    for (std::uint64_t message = 1; message <= 2; ++message) {
      for (std::uint64_t id = kB; id < kA + c.producers; ++id) {
        QVERIFY2(SendForSure(world, id, message, c.state.size, world.NewProcess()), where.c_str());
        sure.emplace(id, message);
      }
    }
    CheckFree(world, 1, where);
    if (c.trouble.landing == Landing::kBehindTheFence) world.board->Land();
    a.Resume();  // The late writes of a stalled producer, after it was fenced.
    world.Drain();
    const bool dead = world.board->IsDead(a.process->self());
    QVERIFY2(dead == (c.trouble.fault == fabric::FaultKind::kDie ||
                      c.trouble.fault == fabric::FaultKind::kTear),
             where.c_str());
    const bool acknowledged = a.result.outcome == SendOutcome::kOk;
    a.producer.reset();
    // A dead one comes back as a new process, a living one as its next connection, without a fault.
    auto& process = dead ? world.NewProcess() : *a.process;
    auto again = world.Connect(kA, process);
    if (c.trouble.landing == Landing::kAfterReconnect) world.board->Land();
    again.reset();
    for (std::uint64_t message = a.message + (acknowledged ? 1 : 0); message <= a.message + 1;
         ++message) {
      QVERIFY2(SendForSure(world, kA, message, c.state.size, process), where.c_str());
    }
    sure.insert({{kA, a.message}, {kA, a.message + 1}});
    CheckFree(world, 2, where);
    CheckReceived(world, sure, where);
    ++sum_.cases;
  }

  // All faults at all operations in `state`, with and without revocation.
  std::uint64_t AllFaults(Shape shape, const State& state, const Operations& operations) {
    std::uint64_t faults = 0;
    for (const Trouble& trouble : kTroubles) {
      if (SmallRun() && !trouble.small) continue;
      ++faults;
      for (std::uint64_t producers = 1; producers <= 3; ++producers) {
        if (SmallRun() && producers != kSmallProducers) continue;
        for (const bool revokes : {false, true}) {
          // Elsewhere the backend itself decides whether it can fence.
          if (!revokes && !OnSharedMemory()) continue;
          for (std::uint64_t op = 0; op < operations.names.size(); ++op) {
            OneFault({shape, state, trouble, operations.before + op, producers, revokes});
            if (QTest::currentTestFailed()) return faults;
          }
        }
      }
    }
    return faults;
  }

  void OnePair(const State& state, const Trouble& first, std::uint64_t i, const Trouble& second,
               std::uint64_t j) {
    World world(SmallRing());
    Prepare(world, *world.Connect(kFiller, world.NewProcess()), kFiller, state);
    Victim a(world, kA, i, first);
    Victim b(world, kB, j, second);
    a.Send(state.size, first);
    b.Send(state.size, second);
    const std::string where =
        Where(first.name, a, i) + ", " + Where(second.name, b, j) + ", " + state.name;
    const bool c_sent = SendForSure(world, kC, 1, state.size, world.NewProcess());
    b.Resume();
    a.Resume();
    QVERIFY2(c_sent, where.c_str());
    std::set<std::pair<std::uint64_t, std::uint64_t>> sure{{kC, 1}};
    if (a.result.outcome == SendOutcome::kOk) sure.emplace(kA, 1);
    if (b.result.outcome == SendOutcome::kOk) sure.emplace(kB, 1);
    CheckFree(world, 1, where);
    CheckReceived(world, sure, where);
    ++sum_.cases;
  }

  void Restart(Shape shape, const State& state, const Trouble& trouble, std::uint64_t op) {
    World world(RingOf(shape));
    Victim a(world, kA, shape, state, op, trouble);
    a.Send(state.size, trouble);
    const std::string where = Where("restart,", a, op) + ", " + state.name;
    QVERIFY2(a.reached, where.c_str());
    world.consumer.reset();
    world.consumer = *Consumer::Create(*world.consumer_fabric, RingOf(shape), world.clock);
    world.received.clear();
    world.board->Land();
    a.Resume();
    world.Advance(std::chrono::seconds(5));
    QVERIFY2(a.result.outcome != SendOutcome::kOk && a.result.reconnect, where.c_str());
    QVERIFY2(world.received.empty(), where.c_str());
    a.producer.reset();
    QVERIFY2(SendForSure(world, kA, a.message, state.size, *a.process), where.c_str());
    CheckFree(world, 1, where);
    CheckReceived(world, {{kA, a.message}}, where);
    ++sum_.cases;
  }

 private Q_SLOTS:
  void initTestCase() { spdlog::set_level(spdlog::level::off); }
  void cleanupTestCase() {
    const PollCosts& costs = ThePollCosts();
    qInfo("longest Poll: %lld us, %lld us of it on the processor; %llu polls, %lld waits",
          (long long)(costs.longest_ns / 1000), (long long)(costs.longest_cpu_ns / 1000),
          (unsigned long long)costs.polls, (long long)costs.waits);
    qInfo("faults=%llu lost=%llu dup=%llu corrupt=%llu", (unsigned long long)sum_.cases,
          (unsigned long long)sum_.lost, (unsigned long long)sum_.duplicates,
          (unsigned long long)sum_.corrupt);
    // Elsewhere it is only printed, because the fabric has threads that share locks with this one.
    if (OnSharedMemory()) QCOMPARE(costs.waits, std::int64_t{0});
  }

  void EveryFaultAtEveryOperation() {
    std::uint64_t expected = 0;
    std::uint64_t operations = 0;
    std::uint64_t faults = 0;
    const std::uint64_t backends = OnSharedMemory() ? 2 : 1;
    for (const Shape shape : {Shape::kShared, Shape::kPerProducer}) {
      for (const State& state : kStates) {
        const Operations posted = OperationsOf(shape, state);
        const auto& names = posted.names;
        std::string list;
        for (const std::string& name : names) list += " " + name;
        qInfo("%s, %s:%s", shape == Shape::kShared ? "shared" : "of its own", state.name,
              list.c_str());
        faults = AllFaults(shape, state, posted);
        if (QTest::currentTestFailed()) return;
        operations += names.size();
        expected += names.size() * faults * (SmallRun() ? 1 : 3) * backends;
      }
    }
    qInfo(
        "cases = operations × faults × states × producers = %llu: %llu operations in the %d "
        "states, "
        "%llu faults, %s producers, %llu kinds of fence; moves %llu, holes %llu, locks broken "
        "%llu, tails repaired %llu",
        (unsigned long long)sum_.cases, (unsigned long long)operations, int(std::size(kStates)),
        (unsigned long long)faults, SmallRun() ? "2" : "1 to 3", (unsigned long long)backends,
        (unsigned long long)sum_.moves, (unsigned long long)sum_.holes,
        (unsigned long long)sum_.locks, (unsigned long long)sum_.tails);
    QCOMPARE(sum_.cases, expected);
    // The enumeration has reached the cases that matter.
    QVERIFY(sum_.moves > 0 || !OnSharedMemory());
    QVERIFY(sum_.holes > 0);
    QVERIFY(sum_.locks > 0);
    QVERIFY(sum_.tails > 0 || SmallRun());
  }

  // A meets its fault while B is stalled in the middle of a send. C goes on, and late writes do no
  // harm.
  void EveryPairOfFaults() {
    if (SmallRun()) QSKIP("part of the full run");
    for (const State& state : {kEmpty, kWrapped}) {
      const std::uint64_t operations = OperationsOf(Shape::kShared, state).names.size();
      for (const Trouble& first : {kStall, kDie, kTear}) {
        for (const Trouble& second : {kStall, kDie, kBreak}) {
          for (std::uint64_t i = 0; i < operations; ++i) {
            for (std::uint64_t j = 0; j < operations; ++j) {
              OnePair(state, first, i, second, j);
              if (QTest::currentTestFailed()) return;
            }
          }
        }
      }
    }
  }

  // A new incarnation of the consumer takes no message that was on its way to the former one.
  void ARestartedConsumerAcceptsNothingOld() {
    for (const Shape shape : {Shape::kShared, Shape::kPerProducer}) {
      for (const State& state : kStates) {
        const Operations operations = OperationsOf(shape, state);
        for (const Trouble& trouble : {kStall, kTroubles[3]}) {
          if (SmallRun() && trouble.fault.has_value()) continue;
          for (std::uint64_t op = 0; op < operations.names.size(); ++op) {
            Restart(shape, state, trouble, operations.before + op);
            if (QTest::currentTestFailed()) return;
          }
        }
      }
    }
  }

  // While a producer is stalled, Poll never gives the processor up, whether or not that producer is
  // already suspected.
  void PollNeverWaitsForAProducer() {
    for (const double scale : {0.1, 10.0}) {
      PollCosts costs;
      std::swap(costs, ThePollCosts());
      const std::uint64_t operations = OperationsOf(Shape::kShared, kEmpty).names.size();
      for (std::uint64_t op = 0; op < operations; ++op) {
        ConsumerOptions options = SmallRing();
        options.timeouts.scale = scale;
        World world(options);
        Victim a(world, kA, op, kStall);
        a.Send(100, kStall);
        for (int i = 0; i < 1000; ++i) world.Drain();
        a.Resume();
        world.Drain();
        QCOMPARE(world.Count(kA, 1), 1);
      }
      std::swap(costs, ThePollCosts());
      qInfo(
          "longest Poll with T_lock %lld ms: %lld us, %lld us of it on the processor; %llu polls, "
          "%lld waits",
          (long long)(500 * scale), (long long)(costs.longest_ns / 1000),
          (long long)(costs.longest_cpu_ns / 1000), (unsigned long long)costs.polls,
          (long long)costs.waits);
      QCOMPARE(costs.waits, std::int64_t{0});
    }
  }

  // A live producer that stalls for less than the timeouts is left alone.
  void AShortStallIsNotSuspected() {
    const std::uint64_t operations = OperationsOf(Shape::kShared, kEmpty).names.size();
    for (std::uint64_t op = 0; op < operations; ++op) {
      World world(SmallRing());
      Victim a(world, kA, op, kStall);
      a.Send(100, kStall);
      QVERIFY(a.reached);
      world.Advance(Timeouts{.scale = 1}.Lock() * 4 / 5, std::chrono::milliseconds(20));
      a.Resume();
      QCOMPARE(a.result.outcome, SendOutcome::kOk);
      QCOMPARE(world.consumer->counters().moves, std::uint64_t{0});
      world.Drain();
      QCOMPARE(world.Count(kA, 1), 1);
    }
  }

  // A move takes along the messages that are complete, in order and once.
  void AMoveTakesCommittedMessagesAlong() {
    if (!OnSharedMemory())
      QSKIP("only where a living producer cannot be fenced does the ring move");
    World world(SmallRing());
    const auto operations = OperationsOf(Shape::kShared, kEmpty).names;
    const auto commit = std::ranges::find(operations, "slot.commit") - operations.begin();
    Victim a(world, kA, commit, kStall);  // It has written the payload and not committed.
    a.Send(100, kStall);
    QVERIFY(a.reached);
    auto& process = world.NewProcess();
    auto producer = world.Connect(kB, process);
    for (std::uint64_t id = 1; id <= 4; ++id) {
      QCOMPARE(SendOnce(*producer, kB, id, 200).outcome, SendOutcome::kOk);
    }
    QVERIFY(!world.consumer->Poll().has_value());  // A's hole comes first.
    world.Advance(std::chrono::milliseconds(1500));
    QCOMPARE(world.consumer->counters().moves, std::uint64_t{1});
    const SendResult moved = SendOnce(*producer, kB, 5, 200);
    QCOMPARE(moved.outcome, SendOutcome::kBusy);
    QVERIFY(moved.reconnect);
    QVERIFY(SendForSure(world, kB, 5, 200, process));
    a.Resume();
    QCOMPARE(a.result.outcome, SendOutcome::kUnknown);
    QVERIFY(a.result.reconnect);
    QVERIFY(SendForSure(world, kA, 1, 100, *a.process));
    world.Drain();
    QVERIFY(
        world.received ==
        (std::vector<Received>{
            {kB, 1, 200}, {kB, 2, 200}, {kB, 3, 200}, {kB, 4, 200}, {kB, 5, 200}, {kA, 1, 100}}));
    QCOMPARE(world.corrupt, 0);
  }
};

}  // namespace onepiece::ring

ONEPIECE_TEST(onepiece::ring::FaultEnumerationTest)
#include "fault_enumeration_test.moc"
