// Compares the capacity model with examples calculated by hand, with the textbooks' formulas
// written another way, and with queues that are simulated job by job.
#include "cluster/capacity/capacity_model.h"

#include <QtTest>
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "tests/test_main.h"

namespace onepiece::capacity {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool Near(double actual, double expected, double relative = 1e-9) {
  if (actual == expected) return true;
  const bool near = std::abs(actual - expected) <= relative * std::abs(expected);
  if (!near) qWarning("%g is not near %g", actual, expected);
  return near;
}

StageDemand Demand(const std::string& pool, double seconds, double variation = 0) {
  return {.stage = pool,
          .pool = pool,
          .seconds_per_job = seconds,
          .variation = variation,
          .samples = 100};
}

Model OnePool(double workers, double arrivals, double seconds, double variation) {
  return {
      .pools = {{"p", workers}},
      .apps = {
          {.id = "a", .arrivals_per_s = arrivals, .stages = {Demand("p", seconds, variation)}}}};
}

// The probability of waiting in M/M/c, calculated as the sum over the states.
double ErlangCBySum(int servers, double erlangs) {
  const auto term = [&](int k) { return std::exp(k * std::log(erlangs) - std::lgamma(k + 1.0)); };
  double sum = 0;
  for (int k = 0; k < servers; ++k) sum += term(k);
  const double all = term(servers) * servers / (servers - erlangs);
  return all / (sum + all);
}

// Simulates `jobs` at `servers`, first come, first served. Returns the mean wait without the first
// tenth of the jobs.
double SimulateWait(int servers, double arrivals, int jobs,
                    const std::function<double(std::mt19937_64&)>& service) {
  std::mt19937_64 random(4711);
  std::exponential_distribution<double> gap(arrivals);
  std::vector<double> free(static_cast<std::size_t>(servers), 0.0);
  double now = 0, waited = 0;
  for (int job = 0; job < jobs; ++job) {
    now += gap(random);
    const auto server = std::ranges::min_element(free);
    const double begin = std::max(now, *server);
    if (job >= jobs / 10) waited += begin - now;
    *server = begin + service(random);
  }
  return waited / (jobs - jobs / 10);
}

// Simulates `jobs` of each application, which come at an even pace and pass their stages one after
// the other. The shared pools have workers that compute one job at a time. Returns the longest wait
// in the last tenth of the jobs.
double SimulateTandem(const Model& model, int jobs) {
  struct Event {
    double at;
    std::size_t app, stage;
    bool late;
  };
  const auto later = [](const Event& a, const Event& b) { return a.at > b.at; };
  std::vector<Event> events;
  for (std::size_t app = 0; app < model.apps.size(); ++app) {
    for (int job = 0; job < jobs; ++job)
      events.push_back({job / model.apps[app].arrivals_per_s, app, 0, job >= jobs * 9 / 10});
  }
  std::ranges::make_heap(events, later);
  std::map<std::string, std::vector<double>> free;
  for (const Pool& pool : model.pools)
    free[pool.id].resize(static_cast<std::size_t>(pool.workers), 0.0);
  double longest = 0;
  while (!events.empty()) {
    std::ranges::pop_heap(events, later);
    Event event = events.back();
    events.pop_back();
    const App& app = model.apps[event.app];
    const auto worker = std::ranges::min_element(free[app.stages[event.stage].pool]);
    const double begin = std::max(event.at, *worker);
    if (event.late) longest = std::max(longest, begin - event.at);
    *worker = begin + app.stages[event.stage].seconds_per_job;
    event.at = *worker;
    if (++event.stage == app.stages.size()) continue;
    events.push_back(event);
    std::ranges::push_heap(events, later);
  }
  return longest;
}

// Two applications over three pools. Both use pool "x".
Model SharedPools() {
  return {
      .pools = {{"x", 2}, {"y", 6}, {"z", 1}},
      .apps = {{.id = "a", .arrivals_per_s = 0.5, .stages = {Demand("x", 1), Demand("y", 3)}},
               {.id = "b", .arrivals_per_s = 0.25, .stages = {Demand("x", 2), Demand("z", 2)}}}};
}

}  // namespace

class CapacityModelTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void theoremOneIsOneOverTheLongestStage() {
    const App app{.id = "a", .arrivals_per_s = 1, .stages = {Demand("x", 1), Demand("y", 3)}};
    Model model{.pools = {{"x", 1}, {"y", 1}}, .apps = {app}};
    QVERIFY(Near(SustainableRate(model, app), 1.0 / 3));
    QCOMPARE(FindNarrowest(model).pool, std::string("y"));
    QVERIFY(Near(FindNarrowest(model).scale, 1.0 / 3));
    model.pools[1].workers = 3;  // ⌈T_Y / T_X⌉ instances: Y keeps up with X.
    QVERIFY(Near(SustainableRate(model, app), 1));
    model.pools[1].workers = 6;
    QCOMPARE(FindNarrowest(model).pool, std::string("x"));
    QVERIFY(Near(SustainableRate(model, app), 1));
  }

  void sharedPoolsAddUp() {
    const Model model = SharedPools();
    QVERIFY(Near(Utilization(model, "x"), (0.5 * 1 + 0.25 * 2) / 2));
    QVERIFY(Near(Utilization(model, "y"), 0.5 * 3 / 6));
    QVERIFY(Near(Utilization(model, "z"), 0.25 * 2 / 1));
    QCOMPARE(Utilizations(model).size(), model.pools.size());
    for (const auto& [pool, utilization] : Utilizations(model)) {
      QVERIFY(Near(utilization, Utilization(model, pool)));
      QVERIFY(Near(Loads(model).at(pool), WorkersFor(model, pool, 1)));
    }
    QCOMPARE(FindNarrowest(model).pool, std::string("x"));
    QVERIFY(Near(FindNarrowest(model).scale, 2));
    QVERIFY(Near(SustainableRate(model, model.apps[0]), 2));
    QVERIFY(Near(SustainableRate(model, model.apps[1]), 0.5));
    QVERIFY(Near(WorkersFor(model, "x", 0.8), 1.25));
    QVERIFY(Near(WorkersFor(model, "nowhere", 0.8), 0));
  }

  void anAppThatPassesAPoolTwicePaysTwice() {
    Model model = OnePool(2, 1, 0.5, 0);
    model.apps[0].stages.push_back(Demand("p", 0.3));
    QVERIFY(Near(Utilization(model, "p"), 0.4));
    QVERIFY(Near(SustainableRate(model, model.apps[0]), 2 / 0.8));
  }

  // Simulated job by job, nothing queues below the narrowest pool's rate, and queues grow above it.
  void theNarrowestPoolIsTheSimulatedOne_data() {
    QTest::addColumn<double>("of_limit");
    QTest::addColumn<bool>("grows");
    QTest::newRow("below") << 0.97 << false;
    QTest::newRow("above") << 1.05 << true;
  }
  void theNarrowestPoolIsTheSimulatedOne() {
    QFETCH(double, of_limit);
    QFETCH(bool, grows);
    Model model = SharedPools();
    const double scale = FindNarrowest(model).scale * of_limit;
    for (App& app : model.apps) app.arrivals_per_s *= scale;
    const double few = SimulateTandem(model, 2000), many = SimulateTandem(model, 8000);
    if (grows) {
      QVERIFY2(many > 2 * few && many > 100, qPrintable(QString::number(many)));
    } else {
      QVERIFY2(many < 10, qPrintable(QString::number(many)));
    }
  }

  void waitOfExponentialJobsIsErlangs_data() {
    QTest::addColumn<int>("servers");
    QTest::addColumn<double>("utilization");
    for (const int servers : {1, 2, 3, 8, 64}) {
      for (const double utilization : {0.1, 0.5, 0.85, 0.99})
        QTest::addRow("M/M/%d at %g", servers, utilization) << servers << utilization;
    }
  }
  void waitOfExponentialJobsIsErlangs() {
    QFETCH(int, servers);
    QFETCH(double, utilization);
    const double seconds = 0.7, arrivals = utilization * servers / seconds;
    const double expected =
        ErlangCBySum(servers, arrivals * seconds) * seconds / (servers * (1 - utilization));
    QVERIFY(Near(MeanWait(OnePool(servers, arrivals, seconds, 1), "p"), expected, 1e-6));
  }

  void tableValues() {
    // M/M/1 waits ρ / (1 − ρ) · E[S], M/D/1 half as long. M/M/2 at ρ = 0.75 waits 9/7 of E[S].
    QVERIFY(Near(MeanWait(OnePool(1, 0.8, 1, 1), "p"), 4));
    QVERIFY(Near(MeanWait(OnePool(1, 0.8, 1, 0), "p"), 2));
    QVERIFY(Near(MeanWait(OnePool(2, 1.5, 1, 1), "p"), 9.0 / 7));
  }

  void waitIsTheSimulatedOne_data() {
    QTest::addColumn<int>("servers");
    QTest::addColumn<double>("variation");
    QTest::addColumn<double>("tolerance");
    QTest::newRow("M/M/1") << 1 << 1.0 << 0.05;
    QTest::newRow("M/M/4") << 4 << 1.0 << 0.05;
    QTest::newRow("M/D/1") << 1 << 0.0 << 0.05;
    QTest::newRow("M/D/4") << 4 << 0.0 << 0.1;  // Only approximate with several servers.
    QTest::newRow("M/H2/3") << 3 << 1.5 << 0.15;
  }
  void waitIsTheSimulatedOne() {
    QFETCH(int, servers);
    QFETCH(double, variation);
    QFETCH(double, tolerance);
    const double arrivals = 0.8 * servers;  // Each server can do one job per second.
    // Two exponential branches with balanced means give any spread above 1.
    const double squared = variation * variation;
    const double p = 0.5 * (1 + std::sqrt(std::max(0.0, (squared - 1) / (squared + 1))));
    std::exponential_distribution<double> unit(1);
    std::uniform_real_distribution<double> choose(0, 1);
    const auto service = [&](std::mt19937_64& random) {
      if (variation == 0) return 1.0;
      const double branch = choose(random) < p ? p : 1 - p;
      return unit(random) / (2 * branch);
    };
    const double simulated = SimulateWait(servers, arrivals, 600'000, service);
    QVERIFY(Near(MeanWait(OnePool(servers, arrivals, 1, variation), "p"), simulated, tolerance));
  }

  void aMixOfShortAndLongJobsHasSpread() {
    Model model = OnePool(1, 0.5, 0.2, 0);
    model.apps.push_back({.id = "b", .arrivals_per_s = 0.1, .stages = {Demand("p", 5)}});
    // Pollaczek and Khinchine: λ E[S²] / (2 (1 − ρ)).
    QVERIFY(Near(MeanWait(model, "p"), (0.5 * 0.04 + 0.1 * 25) / (2 * (1 - 0.6))));
  }

  void manyWorkersAreDoneAtOnce() {
    const double wait = MeanWait(OnePool(1e12, 0.9e12, 1, 1), "p");
    QVERIFY(wait >= 0 && wait < 1e-6);
    // Half a worker is a worker that takes twice as long.
    QVERIFY(Near(MeanWait(OnePool(0.5, 0.4, 1, 1), "p"), MeanWait(OnePool(1, 0.4, 2, 1), "p")));
  }

  void latencyIsTheLongestWay() {
    const auto stage = [](const std::string& name, double seconds, double transfer,
                          std::vector<std::string> after) {
      return StageDemand{.stage = name,
                         .pool = name,
                         .seconds_per_job = seconds,
                         .transfer_s = transfer,
                         .samples = 1,
                         .after = std::move(after)};
    };
    App app{
        .id = "a",
        .stages = {stage("text", 3, 0.1, {}), stage("image", 2, 0.2, {}),
                   stage("vae", 1.5, 0.1, {"image"}), stage("diffusion", 10, 0.5, {"text", "vae"}),
                   stage("preview", 1, 0, {"text"})}};
    QVERIFY(Near(UnloadedLatency(app), 2.2 + 1.6 + 10.5));
    app.stages[0].seconds_per_job = 7;
    QVERIFY(Near(UnloadedLatency(app), 7.1 + 10.5));
    QVERIFY(Near(UnloadedLatency(App{}), 0));
  }

  void cyclesAndUnknownNamesInAfterEnd() {
    App app{.id = "a", .stages = {Demand("x", 1), Demand("y", 2), Demand("z", 4)}};
    app.stages[0].after = {"z", "x"};
    app.stages[1].after = {"x", "nowhere"};
    app.stages[2].after = {"y", "z"};
    QVERIFY(Near(UnloadedLatency(app), 7));
  }

  void withoutWorkersOrWork() {
    QCOMPARE(Utilization(OnePool(0, 1, 1, 0), "p"), kInfinity);
    QCOMPARE(MeanWait(OnePool(0, 1, 1, 0), "p"), kInfinity);
    QCOMPARE(MeanWait(OnePool(1, 1, 1, 0), "p"), kInfinity);
    QCOMPARE(Utilization(OnePool(0, 0, 1, 0), "p"), 0.0);
    QCOMPARE(MeanWait(OnePool(0, 0, 1, 0), "p"), 0.0);
    const Model idle = OnePool(3, 0, 1, 0);
    QCOMPARE(FindNarrowest(idle).pool, std::string());
    QCOMPARE(FindNarrowest(idle).scale, kInfinity);
    const Model nobody = OnePool(0, 1, 1, 0);
    QCOMPARE(FindNarrowest(nobody).pool, std::string("p"));
    QCOMPARE(FindNarrowest(nobody).scale, 0.0);
    QCOMPARE(SustainableRate(nobody, nobody.apps[0]), 0.0);
    QCOMPARE(SustainableRate(idle, App{}), 0.0);
    App elsewhere{.id = "a", .stages = {Demand("p", 1), Demand("nowhere", 1)}};
    QCOMPARE(SustainableRate(idle, elsewhere), 0.0);
  }

  void badNumbersCountAsUnknown_data() {
    QTest::addColumn<double>("bad");
    QTest::newRow("NaN") << kNan;
    QTest::newRow("negative") << -1.0;
    QTest::newRow("infinite") << kInfinity;
  }
  void badNumbersCountAsUnknown() {
    QFETCH(double, bad);
    const std::vector<std::function<void(Model&)>> spoil = {
        [&](Model& m) { m.apps[0].arrivals_per_s = bad; },
        [&](Model& m) { m.apps[0].stages[0].seconds_per_job = bad; },
        [&](Model& m) { m.apps[0].stages[0].variation = bad; },
        [&](Model& m) { m.apps[0].stages[0].transfer_s = bad; },
        [&](Model& m) { m.apps[0].stages[0].pool = "nowhere"; },
        [&](Model& m) { m.apps[0].stages[0].samples = 0; },
    };
    for (const auto& change : spoil) {
      Model model = OnePool(2, 1, 1, 1);
      model.apps.push_back({.id = "good", .arrivals_per_s = 1, .stages = {Demand("p", 0.5)}});
      change(model);
      QVERIFY(Near(Utilization(model, "p"), 0.25));
      QVERIFY(Near(FindNarrowest(model).scale, 4));
      QVERIFY(Near(WorkersFor(model, "p", 0.5), 1));
      QVERIFY(std::isfinite(MeanWait(model, "p")));
      QVERIFY(Near(UtilizationBand(model, "p").high, 0.25));
      QVERIFY(std::isfinite(UnloadedLatency(model.apps[0])));
      QVERIFY(std::isfinite(SustainableRate(model, model.apps[0])));
    }
    Model model = OnePool(bad, 1, 1, 1);
    QCOMPARE(Utilization(model, "p"), kInfinity);
    QCOMPARE(MeanWait(model, "p"), kInfinity);
    if (bad != kInfinity) QCOMPARE(WorkersFor(model, "p", bad), kInfinity);
  }

  void absurdNumbersAreNoNan() {
    const Model model = OnePool(1e300, 1e300, 1e300, 1e300);
    QCOMPARE(Utilization(model, "p"), kInfinity);
    QCOMPARE(MeanWait(model, "p"), kInfinity);
    QVERIFY(!std::isnan(MeanWait(OnePool(1e9, 1, 1e-9, 1e300), "p")));
    QVERIFY(!std::isnan(UtilizationBand(model, "p").low));
    QVERIFY(!std::isnan(SustainableRate(model, model.apps[0])));
  }

  void poolsWithoutDataAreNamed() {
    const auto lacking = [](const Model& model) { return PoolsWithoutData(model); };
    Model model = OnePool(1, 1, 1, 0);
    QVERIFY(lacking(model).empty());
    model.apps[0].stages[0].samples = kMinSamples - 1;
    QCOMPARE(lacking(model), std::vector<std::string>{"p"});
    model.apps[0].arrivals_per_s = 0;  // Nobody asks for the application, so nothing need be known.
    QVERIFY(lacking(model).empty());
    // A rare application without numbers does not matter. A frequent one does.
    model = OnePool(1, 1, 1, 0);
    StageDemand unknown = Demand("p", 0);
    unknown.samples = 0;
    model.apps.push_back({.id = "b", .arrivals_per_s = 0.05, .stages = {unknown}});
    QVERIFY(lacking(model).empty());
    model.apps[1].arrivals_per_s = 0.5;
    QCOMPARE(lacking(model), std::vector<std::string>{"p"});
  }

  void bandNarrowsWithSamples() {
    Model model = OnePool(2, 1, 1, 0.5);
    const Estimate wide = UtilizationBand(model, "p");
    QVERIFY(Near(wide.value, 0.5));
    QVERIFY(Near(wide.high, 0.5 * (1 + 1.96 * 0.5 / 10)));
    QVERIFY(Near(wide.low, 0.5 * (1 - 1.96 * 0.5 / 10)));
    model.apps[0].stages[0].samples = 10'000;
    QVERIFY(Near(UtilizationBand(model, "p").high, 0.5 * (1 + 1.96 * 0.5 / 100)));
    model.apps[0].stages[0].samples = 1;
    model.apps[0].stages[0].variation = 9;
    QCOMPARE(UtilizationBand(model, "p").low, 0.0);
  }
};

}  // namespace onepiece::capacity

ONEPIECE_TEST(onepiece::capacity::CapacityModelTest)
#include "capacity_model_test.moc"
