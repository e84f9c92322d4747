// Tests what the policy "utilization" makes of random clusters.
#include "tests/nodemanager/policy/policy_cluster.h"

#include <QtTest>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cluster/base/ids.h"
#include "nodemanager/policy/policy.h"
#include "tests/test_main.h"

namespace onepiece::nodemanager {
namespace {

using std::chrono::seconds;

// A cluster whose jobs flow like water: what the pools let through is what they compute, without
// delay.
struct Fluid {
  Cluster cluster;
  std::vector<base::MonotonicTime> arrived;  // When each instance came to where it is.
  int moves = 0;

  // `scale` multiplies instances and load.
  explicit Fluid(std::mt19937& random, int scale = 1) {
    const auto draw = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(random);
    };
    std::vector<std::pair<std::string, double>> loads;
    const int pools = draw(2, 4);
    int most = 0;
    for (int i = 0; i < pools; ++i) {
      const std::string id(1, static_cast<char>('p' + i));
      const int count = draw(1, 4 * scale);
      cluster.Instances(id, count, 0);
      PoolView& pool = cluster.Pool(id);
      pool.min_instances = draw(0, count);
      pool.max_instances = draw(0, 2) == 0 ? count + draw(0, 3 * scale) : 0;
      pool.load_s = 0.1;
      loads.emplace_back(id, scale * draw(1, 500) / 100.0);
      most += count;
    }
    cluster.Instances("", draw(0, 3 * scale), 0);
    cluster.App("a", loads);
    cluster.Set("s").model.apps[0].arrivals_per_s =
        1000;  // Jobs are short, so drains take no time.
    for (capacity::StageDemand& demand : cluster.Set("s").model.apps[0].stages)
      demand.seconds_per_job /= 1000;
    arrived.assign(cluster.view.instances.size(), base::MonotonicTime::min());
  }
  [[nodiscard]] int Count(const std::string& pool) const {
    return static_cast<int>(std::ranges::count_if(
        cluster.view.instances, [&](const InstanceView& i) { return i.pool == pool; }));
  }
  // The share of the offered work that gets through with `count` instances in each pool.
  [[nodiscard]] double Through(const std::function<int(std::size_t)>& count) const {
    const capacity::App& app = cluster.view.sets[0].model.apps[0];
    double through = 1;
    for (std::size_t i = 0; i < app.stages.size(); ++i)
      through = std::min(through, count(i) / (app.arrivals_per_s * app.stages[i].seconds_per_job));
    return through;
  }
  [[nodiscard]] double ThroughNow() const {
    return Through([&](std::size_t i) { return Count(cluster.view.pools[i].id); });
  }
  // The best share in a large cluster: the narrowest pool gets one after the other.
  [[nodiscard]] double BestOfLarge() const {
    const std::vector<PoolView>& pools = cluster.view.pools;
    const capacity::App& app = cluster.view.sets[0].model.apps[0];
    std::vector<int> counts;
    auto left = static_cast<int>(cluster.view.instances.size());
    for (const PoolView& pool : pools) {
      counts.push_back(pool.min_instances);
      left -= pool.min_instances;
    }
    for (; left > 0; --left) {
      const auto through = [&](std::size_t i) {
        return counts[i] / (app.arrivals_per_s * app.stages[i].seconds_per_job);
      };
      std::size_t narrowest = 0;
      for (std::size_t i = 1; i < counts.size(); ++i)
        if (through(i) < through(narrowest)) narrowest = i;
      const int most = pools[narrowest].max_instances;
      if (most > 0 && counts[narrowest] >= most) break;
      ++counts[narrowest];
    }
    return Through([&](std::size_t i) { return counts[i]; });
  }
  // The best share of all placements of the instances within the limits.
  [[nodiscard]] double Best() const {
    std::vector<int> counts(cluster.view.pools.size());
    double best = 0;
    const std::function<void(std::size_t, int)> place = [&](std::size_t i, int left) {
      if (i == counts.size()) {
        best = std::max(best, Through([&](std::size_t pool) { return counts[pool]; }));
        return;
      }
      const PoolView& pool = cluster.view.pools[i];
      const int most = pool.max_instances > 0 ? std::min(left, pool.max_instances) : left;
      for (counts[i] = pool.min_instances; counts[i] <= most; ++counts[i])
        place(i + 1, left - counts[i]);
    };
    place(0, static_cast<int>(cluster.view.instances.size()));
    return best;
  }
  void Measure(double window) {
    const double through = ThroughNow();
    const capacity::App& app = cluster.view.sets[0].model.apps[0];
    for (std::size_t i = 0; i < cluster.view.instances.size(); ++i) {
      InstanceView& instance = cluster.view.instances[i];
      instance.utilization = 0;
      for (const capacity::StageDemand& demand : app.stages) {
        if (demand.pool != instance.pool) continue;
        const double load = app.arrivals_per_s * demand.seconds_per_job * through;
        instance.utilization = std::min(1.0, load / Count(instance.pool));
      }
      if (arrived[i] != base::MonotonicTime::min()) {
        instance.since = arrived[i];
        if (cluster.view.now - arrived[i] < std::chrono::duration<double>(window / 2))
          instance.utilization = std::nullopt;
      }
    }
  }
  void Apply(const WantedMove& move) {
    for (std::size_t i = 0; i < cluster.view.instances.size(); ++i) {
      InstanceView& instance = cluster.view.instances[i];
      if (instance.node_id != move.node_id) continue;
      for (PoolView& pool : cluster.view.pools) {
        if (pool.id == instance.pool || pool.id == move.to_pool)
          pool.changes.push_back(cluster.view.now);
      }
      cluster.view.past.push_back(
          {cluster.view.now, move.node_id, instance.pool, move.to_pool, "s", "s"});
      instance.pool = move.to_pool;
      arrived[i] = cluster.view.now;
      ++moves;
    }
  }
};

}  // namespace

class PolicyClusterTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void onePolicyRulesACluster_data();
  void onePolicyRulesACluster();
  void noLoadMakesALargeClusterSwing();
};

void PolicyClusterTest::onePolicyRulesACluster_data() {
  QTest::addColumn<int>("max_moves");
  QTest::addColumn<int>("scale");
  QTest::newRow("one move at a time") << 1 << 1;
  QTest::newRow("three moves at a time") << 3 << 1;
  QTest::newRow("each pool by itself") << 0 << 1;
  QTest::newRow("large pools, each by itself") << 0 << 20;
}

// Under constant load, from any beginning, the policy always stays within the limits and at last
// moves nothing. Then no other placement lets more than a twentieth more through.
void PolicyClusterTest::onePolicyRulesACluster() {
  QFETCH(int, max_moves);
  QFETCH(int, scale);
  const v1::ElasticityConfig config = Config(max_moves);
  const auto policy = *MakePolicy(config);
  double worst = 1;
  for (unsigned seed = 0; seed < (scale > 1 ? 10U : 120U); ++seed) {
    std::mt19937 random(seed);
    Fluid fluid(random, scale);
    const auto instances = static_cast<int>(fluid.cluster.view.instances.size());
    int late_moves = 0;
    for (int step = 0; step < 1200; ++step) {
      fluid.cluster.view.now += seconds(30);
      std::erase_if(fluid.cluster.view.past, [&](const PastMove& move) {
        return fluid.cluster.view.now - move.at >
               seconds(static_cast<int>(kWindow) * kFlappingWindows);
      });
      fluid.Measure(kWindow);
      const PolicyDecision decision = policy->Decide(fluid.cluster.view);
      QVERIFY(max_moves == 0 || static_cast<int>(decision.moves.size()) <= max_moves);
      QVERIFY2(!QString::fromStdString(decision.detail).contains("flapping"),
               qPrintable(QString("seed %1: ").arg(seed) + decision.detail.c_str()));
      for (const WantedMove& move : decision.moves) fluid.Apply(move);
      if (step > 900) late_moves += static_cast<int>(decision.moves.size());
      for (const PoolView& pool : fluid.cluster.view.pools) {
        QVERIFY(fluid.Count(pool.id) >= pool.min_instances);
        QVERIFY(pool.max_instances == 0 || fluid.Count(pool.id) <= pool.max_instances);
      }
    }
    QVERIFY2(late_moves == 0, qPrintable(QString("seed %1 never rests").arg(seed)));
    QVERIFY2(
        fluid.moves <= 2 * instances,
        qPrintable(QString("seed %1: %2 moves of %3").arg(seed).arg(fluid.moves).arg(instances)));
    const double best = scale > 1 ? fluid.BestOfLarge() : fluid.Best();
    const double found = fluid.ThroughNow();
    worst = std::min(worst, found / best);
    QVERIFY2(found >= 0.95 * best - 1e-9,
             qPrintable(QString("seed %1: %2 of %3").arg(seed).arg(found).arg(best)));
  }
  qInfo("worst share of the best throughput: %.3f", worst);
}

// The load of two pools changes places again and again, at a pace that is drawn. However it does,
// no pool gives more than its share in a cooldown, no instance that serves moves twice in two
// cooldowns, and the instances that go and come back are soon too many for more.
void PolicyClusterTest::noLoadMakesALargeClusterSwing() {
  const char* given = std::getenv("ONEPIECE_SEED");
  const auto first = static_cast<unsigned>(given != nullptr ? std::strtoul(given, nullptr, 10)
                                                            : base::RandomU64() % 1'000'000);
  qInfo("ONEPIECE_SEED=%u", first);
  const v1::ElasticityConfig config = Config(0);
  const auto policy = *MakePolicy(config);
  const seconds cooldown(static_cast<int>(config.cooldown_s()));
  int moves = 0;
  for (unsigned run = 0; run < 10; ++run) {
    std::mt19937 random(first + run);
    Fluid fluid(random, 20);
    PolicyView& view = fluid.cluster.view;
    auto& stages = fluid.cluster.Set("s").model.apps[0].stages;
    const int pace = std::uniform_int_distribution<int>(2, 60)(random);
    std::map<std::string, base::MonotonicTime> moved;              // By instance.
    std::map<std::string, std::vector<base::MonotonicTime>> gave;  // By pool.
    for (int step = 0; step < 500; ++step) {
      view.now += seconds(30);
      if (step % pace == 0) std::swap(stages[0].seconds_per_job, stages[1].seconds_per_job);
      std::erase_if(view.past, [&](const PastMove& move) {
        return view.now - move.at > kFlappingWindows * seconds(static_cast<int>(kWindow));
      });
      fluid.Measure(kWindow);
      std::map<std::string, int> sizes;
      for (const PoolView& pool : view.pools) sizes[pool.id] = fluid.Count(pool.id);
      const PolicyDecision decision = policy->Decide(view);
      for (const WantedMove& move : decision.moves) {
        const std::string from = fluid.cluster.PoolOf(move.node_id);
        if (!from.empty()) {
          const auto last = moved.find(move.node_id);
          QVERIFY(last == moved.end() || view.now - last->second >= 2 * cooldown);
          std::erase_if(gave[from],
                        [&](base::MonotonicTime at) { return view.now - at >= cooldown; });
          gave[from].push_back(view.now);
          QVERIFY2(static_cast<int>(gave[from].size()) <= MoveShare(config, sizes[from]),
                   qPrintable(QString("%1 of %2").arg(gave[from].size()).arg(sizes[from])));
        }
        moved[move.node_id] = view.now;
        fluid.Apply(move);
        ++moves;
      }
    }
  }
  qInfo("%d moves in 10 runs", moves);
}

}  // namespace onepiece::nodemanager

ONEPIECE_TEST(onepiece::nodemanager::PolicyClusterTest)
#include "policy_cluster_test.moc"
