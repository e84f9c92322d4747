// Attention of tokens that lie on several ranks against attention on one: every way, random shapes.
#include "stages/model/token_parts.h"

#include <ATen/CPUGeneratorImpl.h>

#include <QtTest>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>

#include "cluster/base/status.h"
#include "stages/model/layers.h"
#include "stages/model/online_attention.h"
#include "tests/collectives/thread_group.h"
#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::model {
namespace {

using testing::FirstWorkers;
using testing::Patience;
using testing::RunWorkers;
using testing::ThreadGroup;
using testing::ThreadWorld;

double RelativeError(const at::Tensor& ours, const at::Tensor& expected) {
  if (ours.sizes() != expected.sizes()) return INFINITY;
  return ((ours - expected).norm() / expected.norm()).item<double>();
}

std::uint64_t GivenSeed() {
  const char* given = std::getenv("ONEPIECE_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
}

/// One attention and the group that computes it.
struct Scene {
  ParallelPlan plan;
  ParallelWork work;
  std::int64_t batch = 1, dim = 8;
  std::vector<std::int64_t> offsets;  ///< Of the group's descriptor.
  double loudness = 1;                ///< Of the queries: scores far apart.
  std::uint64_t seed = 1;

  [[nodiscard]] std::string Text() const {
    return "cfg " + std::to_string(plan.cfg) + " sequence " + std::to_string(plan.sequence) +
           " ulysses " + std::to_string(plan.ulysses) +
           (plan.way == KeyValueWay::kRing ? " ring, " : " gather, ") +
           std::to_string(work.tokens) + " tokens, " + std::to_string(work.heads) + " heads of " +
           std::to_string(dim) + ", batch " + std::to_string(batch);
  }
};

/// The inputs of every branch, [branch, q k v, batch, tokens, heads · dim].
at::Tensor InputsOf(const Scene& scene) {
  at::Tensor inputs =
      at::randn({scene.plan.cfg, 3, scene.batch, scene.work.tokens, scene.work.heads * scene.dim},
                at::detail::createCPUGenerator(scene.seed));
  inputs.select(1, 0).mul_(scene.loudness);
  return inputs;
}

/// Computes what all ranks must give: [cfg · batch, tokens, heads · dim].
at::Tensor Expected(const Scene& scene, const at::Tensor& inputs, double scale) {
  std::vector<at::Tensor> branches;
  for (std::int64_t branch = 0; branch < scene.plan.cfg; ++branch) {
    const auto heads = [&](std::int64_t which) {
      return inputs[branch][which].unflatten(2, {scene.work.heads, scene.dim}).transpose(1, 2);
    };
    branches.push_back(Attention(heads(0), heads(1), heads(2), scale).transpose(1, 2).flatten(2));
  }
  return at::cat(branches);
}

/// Computes the scene by a group. Returns the greatest error of any rank, or infinity and an error
/// in the log.
double ErrorOf(const Scene& scene, std::size_t* bytes = nullptr) {
  const c10::InferenceMode guard;
  const double scale = 1.0 / std::sqrt(static_cast<double>(scene.dim));
  const at::Tensor inputs = InputsOf(scene), expected = Expected(scene, inputs, scale);
  ThreadWorld world;
  sdk::GroupDescriptor descriptor = FirstWorkers(scene.plan.ranks());
  descriptor.offsets = scene.offsets;
  const auto results = RunWorkers<at::Tensor>(
      scene.plan.ranks(), [&](std::uint32_t worker) -> absl::StatusOr<at::Tensor> {
        ThreadGroup group(world, descriptor, static_cast<int>(worker));
        const Parallel parallel{&group, scene.plan, Patience};
        ONEPIECE_ASSIGN_OR_RETURN(const TokenParts parts, TokenParts::Make(parallel, scene.work));
        const auto mine = [&](std::int64_t which) {
          return inputs[parallel.branch()][which]
              .narrow(1, parts.begin(), parts.count())
              .contiguous();
        };
        ONEPIECE_ASSIGN_OR_RETURN(const at::Tensor attended,
                                  parts.Attention(mine(0), mine(1), mine(2), scale));
        return parts.Gather(attended);
      });
  if (bytes != nullptr) *bytes = world.TakeBytes();
  double error = 0;
  for (const auto& result : results) {
    if (!result.ok()) qWarning("%s", result.status().ToString().c_str());
    error = std::max(error, result.ok() ? RelativeError(*result, expected) : INFINITY);
  }
  return error;
}

/// Returns the divisors of both numbers.
std::vector<int> CommonDivisors(std::int64_t a, std::int64_t b) {
  std::vector<int> divisors;
  for (int d = 1; d <= std::gcd(a, b); ++d)
    if (std::gcd(a, b) % d == 0) divisors.push_back(d);
  return divisors;
}

Scene RandomScene(int sequence, KeyValueWay way, std::mt19937_64& random) {
  const auto from = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  Scene scene;
  // Heads that all ranks could share, or any number.
  scene.work = {.heads = from(0, 1) == 1 ? sequence * from(1, 2) : from(1, 12),
                .tokens = from(sequence, 60),
                .guided = from(0, 1) == 1};
  scene.batch = from(1, 2);
  scene.dim = 2 * from(1, 8);
  scene.seed = random();
  const auto divisors = CommonDivisors(sequence, scene.work.heads);
  scene.plan = {.cfg = scene.work.guided && sequence <= 4 ? 2 : 1,
                .sequence = sequence,
                .ulysses = divisors[static_cast<std::size_t>(
                    from(0, static_cast<std::int64_t>(divisors.size()) - 1))],
                .way = way};
  if (scene.plan.cfg == 1 && from(0, 1) == 1) {
    // Any parts of at least one token.
    std::vector<std::int64_t> cuts(static_cast<std::size_t>(scene.work.tokens - 1));
    std::iota(cuts.begin(), cuts.end(), 1);
    std::shuffle(cuts.begin(), cuts.end(), random);
    cuts.resize(static_cast<std::size_t>(sequence - 1));
    cuts.insert(cuts.end(), {0, scene.work.tokens});
    std::sort(cuts.begin(), cuts.end());
    scene.offsets = cuts;
  }
  return scene;
}

}  // namespace

class TokenPartsTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Attention_OfManyRanks_IsThatOfOne_data() {
    QTest::addColumn<int>("sequence");
    QTest::addColumn<bool>("ring");
    for (const int sequence : {1, 2, 3, 4, 6, 8}) {
      QTest::addRow("%d gather", sequence) << sequence << false;
      QTest::addRow("%d ring", sequence) << sequence << true;
    }
  }
  void Attention_OfManyRanks_IsThatOfOne() {
    QFETCH(int, sequence);
    QFETCH(bool, ring);
    const std::uint64_t seed = GivenSeed();
    qInfo("ONEPIECE_SEED=%llu", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    int hybrids = 0;
    for (int round = 0; round < 25; ++round) {
      const Scene scene =
          RandomScene(sequence, ring ? KeyValueWay::kRing : KeyValueWay::kGather, random);
      const double error = ErrorOf(scene);
      QVERIFY2(error <= 1e-5, (scene.Text() + ": error " + std::to_string(error)).c_str());
      hybrids += scene.plan.ulysses > 1 ? 1 : 0;
    }
    qInfo("%d of 25 with Ulysses", hybrids);
  }

  /// Without the running maximum, such scores overflow.
  void Attention_OfScoresFarApart_IsStable() {
    for (const KeyValueWay way : {KeyValueWay::kGather, KeyValueWay::kRing}) {
      const Scene scene{.plan = {.sequence = 4, .way = way},
                        .work = {.heads = 2, .tokens = 37},
                        .dim = 16,
                        .loudness = 1000};
      QVERIFY2(ErrorOf(scene) <= 1e-5, scene.Text().c_str());
    }
  }

  /// More scores than one slice, whose parts must meet.
  void OnlineAttention_InSlices_IsAttention() {
    const c10::InferenceMode guard;
    const auto generator = at::detail::createCPUGenerator(5);
    const at::Tensor q = at::randn({2, 3, 900, 8}, generator),
                     k = at::randn({2, 3, 5000, 8}, generator),
                     v = at::randn({2, 3, 5000, 8}, generator);
    OnlineAttention online(q, 0.3);
    online.Add(k.narrow(2, 0, 4000), v.narrow(2, 0, 4000));
    online.Add(k.narrow(2, 4000, 1), v.narrow(2, 4000, 1));
    online.Add(k.narrow(2, 4001, 999), v.narrow(2, 4001, 999));
    QVERIFY(RelativeError(online.Result(), Attention(q, k, v, 0.3)) <= 1e-5);
    const auto half = [](const at::Tensor& x) { return x.to(at::kBFloat16); };
    OnlineAttention rounded(half(q), 0.3);
    rounded.Add(half(k), half(v));
    QCOMPARE(rounded.Result().scalar_type(), at::kBFloat16);
    QVERIFY(RelativeError(rounded.Result().to(at::kFloat), Attention(q, k, v, 0.3)) <= 0.02);
  }

  /// The formulas in token_parts.h.
  void Bytes_AreThoseOfTheFormulas_data() {
    QTest::addColumn<int>("cfg");
    QTest::addColumn<int>("sequence");
    QTest::addColumn<int>("ulysses");
    QTest::addColumn<bool>("ring");
    for (const int cfg : {1, 2}) {
      for (const bool ring : {false, true}) {
        for (const int sequence : {1, 2, 3, 4, 8}) {
          for (const int ulysses : CommonDivisors(sequence, 12)) {
            QTest::addRow("cfg %d sequence %d ulysses %d %s", cfg, sequence, ulysses,
                          ring ? "ring" : "gather")
                << cfg << sequence << ulysses << ring;
          }
        }
      }
    }
  }
  void Bytes_AreThoseOfTheFormulas() {
    QFETCH(int, cfg);
    QFETCH(int, sequence);
    QFETCH(int, ulysses);
    QFETCH(bool, ring);
    const Scene scene{.plan = {.cfg = cfg,
                               .sequence = sequence,
                               .ulysses = ulysses,
                               .way = ring ? KeyValueWay::kRing : KeyValueWay::kGather},
                      .work = {.heads = 12, .tokens = 48, .guided = cfg == 2}};
    std::size_t bytes = 0;
    QVERIFY(ErrorOf(scene, &bytes) <= 1e-5);
    const std::size_t all = 48 * 12 * 8 * sizeof(float);  // T · width.
    const auto n = static_cast<std::size_t>(sequence), u = static_cast<std::size_t>(ulysses),
               branches = static_cast<std::size_t>(cfg), r = n / u;
    const std::size_t attention = 2 * (r - 1) * all + 4 * (u - 1) * all / u;
    const std::size_t gather = (branches * n - 1) * all;
    QCOMPARE(bytes, branches * (attention + gather));
  }

  void CheckPlan_SaysWhatWouldFit_data() {
    QTest::addColumn<ParallelPlan>("plan");
    QTest::addColumn<int>("ranks");
    QTest::addColumn<bool>("guided");
    QTest::addColumn<QString>("says");  // Empty when the plan fits 12 heads and 7 tokens.
    using P = ParallelPlan;
    constexpr auto kRing = KeyValueWay::kRing;
    QTest::newRow("one") << P{} << 1 << false << "";
    QTest::newRow("hybrid") << P{2, 6, 3, kRing} << 12 << true << "";
    QTest::newRow("zero") << P{1, 0, 1} << 0 << true << "numbers from 1";
    QTest::newRow("cfg 3") << P{3, 1, 1} << 3 << true << "only two predictions";
    QTest::newRow("no guidance") << P{2, 1, 1} << 2 << false << "use cfg 1";
    QTest::newRow("ranks") << P{2, 2, 1} << 6 << true << "cfg 1, sequence 6, or cfg 2, sequence 3";
    QTest::newRow("odd ranks") << P{2, 2, 1} << 5 << true << "has 5; use cfg 1, sequence 5";
    QTest::newRow("much") << P{2, 2'000'000'000, 1} << 5 << true << "4000000000 ranks";
    QTest::newRow("tokens") << P{1, 8, 1} << 8 << true << "use sequence 7 or less";
    QTest::newRow("heads") << P{1, 5, 5} << 5 << true << "the 12 heads; use 1 (";
    QTest::newRow("neighbours") << P{1, 6, 4} << 6 << true << "use 1, 2, 3, 6 (";
  }
  void CheckPlan_SaysWhatWouldFit() {
    QFETCH(ParallelPlan, plan);
    QFETCH(int, ranks);
    QFETCH(bool, guided);
    QFETCH(QString, says);
    const absl::Status status =
        CheckPlan(plan, ranks, {.heads = 12, .tokens = 7, .guided = guided});
    if (says.isEmpty()) {
      QVERIFY2(status.ok(), base::Message(status).c_str());
      return;
    }
    QCOMPARE(Reason(status), std::string("BAD_PLAN"));
    QVERIFY2(QString::fromStdString(base::Message(status)).contains(says),
             base::Message(status).c_str());
  }

  void DefaultPlan_Fits() {
    for (const bool guided : {false, true}) {
      for (int ranks = 1; ranks <= 9; ++ranks) {
        const ParallelWork work{.heads = 5, .tokens = 9, .guided = guided};
        QCOMPARE(CheckPlan(DefaultPlan(ranks, work), ranks, work), absl::OkStatus());
      }
    }
    QCOMPARE(DefaultPlan(4, {.guided = true}), (ParallelPlan{.cfg = 2, .sequence = 2}));
  }

  void Make_RefusesPartsThatDoNotFit() {
    ThreadWorld world;
    sdk::GroupDescriptor descriptor = FirstWorkers(2);
    const auto make = [&](std::vector<std::int64_t> offsets, ParallelPlan plan) {
      descriptor.offsets = std::move(offsets);
      ThreadGroup group(world, descriptor, 0);
      return TokenParts::Make({&group, plan, Patience}, {.tokens = 8, .guided = true}).status();
    };
    const ParallelPlan sequence{.sequence = 2}, cfg{.cfg = 2};
    QVERIFY(make({}, sequence).ok());
    QVERIFY(make({0, 7, 8}, sequence).ok());
    QVERIFY(make({}, cfg).ok());
    QCOMPARE(Reason(make({0, 8, 8}, sequence)), std::string("BAD_PLAN"));
    QCOMPARE(Reason(make({0, 4, 8}, cfg)), std::string("BAD_PLAN"));
    QCOMPARE(Reason(make({0, 4, 9}, sequence)), std::string("BAD_GROUP"));
  }
};

}  // namespace onepiece::model

ONEPIECE_TEST(onepiece::model::TokenPartsTest)
#include "token_parts_test.moc"
