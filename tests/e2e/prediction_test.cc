// Compares the simulator's prediction with a real cluster. Arrivals are the same, and stages take
// as long in the simulator as they took in the cluster.
#include <algorithm>
#include <cmath>

#include "cluster/base/clock.h"
#include "nodemanager/simulator/simulation.h"
#include "tests/e2e/calibrated_cluster.h"
#include "tests/e2e/job_load.h"
#include "tests/test_main.h"

namespace onepiece::e2e {
namespace {

/// The requested times. Both stages and all services share a few cores and together keep fewer than
/// one and a half of them busy.
constexpr double kSecondsX = 0.05, kSecondsY = 0.15;

struct Spread {
  double mean = 0, p95 = 0, variation = 0;
};

Spread SpreadOf(std::vector<double> values) {
  Spread spread;
  if (values.empty()) return spread;
  const auto count = static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) {
    spread.mean += value / count;
    squares += value * value / count;
  }
  const double variance = std::max(0.0, squares - spread.mean * spread.mean);
  spread.variation = std::sqrt(variance) / spread.mean;
  std::ranges::sort(values);
  spread.p95 = values[(values.size() * 95 + 99) / 100 - 1];
  return spread;
}

/// A stage whose jobs took that long, and the transfer from it to the next one or to the database.
void AddStage(v1::SimulatedApp& app, const std::string& name, const Spread& took,
              double transfer_s) {
  v1::SimulatedStage& stage = *app.add_stages();
  stage.set_stage(name);
  stage.set_seconds_per_unit(took.mean);
  stage.set_variation(took.variation);
  stage.set_transfer_s(std::max(0.0, transfer_s));
}

v1::SimulationConfig SettingsFor(double duration_s) {
  v1::SimulationConfig settings;
  settings.set_duration_s(duration_s);
  settings.set_devices(2);
  settings.set_placement("x=1,y=1");
  settings.set_retry_s(0);  // Clients ask once.
  settings.mutable_elasticity()->set_window_s(10);
  return settings;
}

/// The result of a cluster, or a prediction of it.
struct Outcomes {
  double throughput = 0, mean_s = 0, p95_s = 0;
  int rejected = 0;
};

double ErrorOf(double predicted, double measured) { return predicted / measured - 1; }

}  // namespace

class PredictionTest : public ClusterFixture {
  Q_OBJECT
 private Q_SLOTS:
  void initTestCase() {
    QVERIFY(UpCalibrated(cluster_, kChainCluster, {{"chain.yaml", kChainWorkflow}}));
    proxy_ = cluster_.ProxyAddress();
    QVERIFY(!proxy_.empty());
    // Else the proxy begins slowly.
    QVERIFY(LearnCosts(proxy_));
  }

  void Simulator_PredictsTheCluster_data() {
    QTest::addColumn<double>("share");
    QTest::newRow("50 %") << 0.5;
    QTest::newRow("90 %") << 0.9;
    QTest::newRow("200 %") << 2.0;
  }
  void Simulator_PredictsTheCluster() {
    QFETCH(double, share);
    Run run;
    // Other work on the machine lengthens times in spells, but the simulator draws each time by
    // itself. So a run that such work disturbed is repeated. The last one counts whatever it is.
    for (int attempt = 0; attempt < 3 && (attempt == 0 || run.disturbed); ++attempt) {
      if (attempt > 0) qWarning("the stages had to wait for a processor: once more");
      run = RunOnce(share);
      QVERIFY2(run.failure.empty(), run.failure.c_str());
    }
    QVERIFY2(std::abs(ErrorOf(run.predicted.throughput, run.measured.throughput)) <= 0.1,
             "throughput");
    // Above the capacity of the stages, a job's time depends on when the load ended.
    if (share > 1) return;
    // Near the capacity, a few percent more time for a job doubles its wait.
    QVERIFY2(
        std::abs(ErrorOf(run.predicted.mean_s, run.measured.mean_s)) <= (share > 0.5 ? 0.5 : 0.25),
        "mean latency");
  }

 private:
  using Trace = std::vector<simulator::Arrival>;

  struct Run {
    std::string failure;  ///< Why there is no result.
    Outcomes measured, predicted;
    bool disturbed = false;  ///< The stages took longer than they were asked to.
  };

  /// Offers the load to the cluster, measures what its stages took, and predicts the rest.
  Run RunOnce(double share) const {
    const double duration_s = qEnvironmentVariableIsSet("ONEPIECE_LONG") ? 60 : 8;
    JobLoad load(proxy_);
    const auto arrivals = Offer(load, share, duration_s);
    if (!load.Await(std::chrono::seconds(60))) return {.failure = "jobs have not ended"};
    if (load.Counts().size() != 1 || !load.Counts().contains("SUCCEEDED"))
      return {.failure = Told(load)};
    const double horizon_s = std::max(duration_s, arrivals.back().time_s + 0.001);
    const v1::SimulationProfile profile = Measure(load);
    Run run{.measured = OutcomesOf(load, horizon_s),
            .predicted = Predict(profile, arrivals, horizon_s)};
    Tell(share, profile, run.predicted, run.measured, static_cast<int>(arrivals.size()));
    const v1::SimulatedStage& y = profile.apps(0).stages(1);
    run.disturbed = y.seconds_per_unit() > 1.1 * kSecondsY || y.variation() > 0.15;
    return run;
  }

  /// Offers a few jobs first, so that the simulator knows the costs too, and then a Poisson
  /// process. Returns when the jobs were really offered.
  Trace Offer(JobLoad& load, double share, double duration_s) const {
    constexpr double kWarmUp = 2;
    Trace plan = {{.time_s = 0}, {.time_s = 0.5}, {.time_s = 1}};
    simulator::System system;
    system.apps.push_back({.id = "chain"});
    v1::SimulationConfig settings = SettingsFor(duration_s - kWarmUp);
    settings.set_rate(share / kSecondsY);
    settings.set_seed(7);
    const auto made = simulator::MakeWorkload("poisson", system, settings);
    for (const simulator::Arrival& arrival : made.ok() ? *made : Trace())
      plan.push_back({.time_s = kWarmUp + arrival.time_s});
    const auto begun = base::SystemClock().Now();
    Trace offered;
    for (const simulator::Arrival& arrival : plan) {
      const auto at = begun + std::chrono::duration_cast<base::Duration>(
                                  std::chrono::duration<double>(arrival.time_s));
      testing::Pause(
          std::max(base::Duration::zero(), base::Duration(at - base::SystemClock().Now())));
      const OfferedJob& job =
          load.Offer("chain", {{"seconds_x", kSecondsX}, {"seconds_y", kSecondsY}});
      offered.push_back({.time_s = std::chrono::duration<double>(job.at - begun).count()});
    }
    return offered;
  }

  /// Returns how long the stages and the transfers between them took.
  static v1::SimulationProfile Measure(const JobLoad& load) {
    std::vector<double> x, y, to_y, to_end;
    for (const OfferedJob& job : load.jobs()) {
      if (job.uid.empty()) continue;
      x.push_back(ComputedOf(job.job, "x"));
      y.push_back(ComputedOf(job.job, "y"));
      to_y.push_back(TransferOf(job.job));
      to_end.push_back(LatencyOf(job.job) - QueuedOf(job.job) - x.back() - y.back() - to_y.back());
    }
    v1::SimulationProfile profile;
    v1::SimulatedApp& app = *profile.add_apps();
    app.set_app_id("chain");
    AddStage(app, "x", SpreadOf(x), SpreadOf(to_y).mean);
    AddStage(app, "y", SpreadOf(y), SpreadOf(to_end).mean);
    return profile;
  }

  static Outcomes OutcomesOf(const JobLoad& load, double horizon_s) {
    Outcomes outcomes;
    std::vector<double> latencies;
    const auto begun = load.jobs().front().at;
    for (const OfferedJob& job : load.jobs()) {
      if (job.uid.empty()) {
        ++outcomes.rejected;
        continue;
      }
      latencies.push_back(LatencyOf(job.job));
      const double asked_s = std::chrono::duration<double>(job.at - begun).count();
      if (asked_s + latencies.back() <= horizon_s) outcomes.throughput += 1 / horizon_s;
    }
    const Spread latency = SpreadOf(latencies);
    outcomes.mean_s = latency.mean;
    outcomes.p95_s = latency.p95;
    return outcomes;
  }

  static Outcomes Predict(const v1::SimulationProfile& profile, const Trace& arrivals,
                          double duration_s) {
    const auto settings = simulator::CompleteSettings(SettingsFor(duration_s));
    if (!settings.ok()) return {};
    const auto system = simulator::MakeDisaggregated(profile, *settings);
    if (!system.ok()) return {};
    const auto result = simulator::Simulate(*system, *settings, arrivals, {.placement = {1, 1}});
    if (!result.ok()) return {};
    return {.throughput = result->throughput,
            .mean_s = result->latency.mean,
            .p95_s = result->latency.p95,
            .rejected = static_cast<int>(result->rejected)};
  }

  static void Tell(double share, const v1::SimulationProfile& profile, const Outcomes& predicted,
                   const Outcomes& measured, int offered) {
    const v1::SimulatedApp& app = profile.apps(0);
    qInfo("load %.0f %%, %d jobs: T_X %.1f ms, T_Y %.1f ms (variation %.2f)", 100 * share, offered,
          1e3 * app.stages(0).seconds_per_unit(), 1e3 * app.stages(1).seconds_per_unit(),
          app.stages(1).variation());
    const auto line = [](const char* what, double theirs, double ours) {
      qInfo("  %-18s predicted %8.3f  measured %8.3f  error %+6.1f %%", what, theirs, ours,
            100 * ErrorOf(theirs, ours));
    };
    line("throughput, 1/s", predicted.throughput, measured.throughput);
    line("mean latency, s", predicted.mean_s, measured.mean_s);
    line("p95 latency, s", predicted.p95_s, measured.p95_s);
    qInfo("  %-18s predicted %8d  measured %8d", "rejected", predicted.rejected, measured.rejected);
  }

  static std::string Told(const JobLoad& load) {
    std::string text;
    for (const auto& [state, count] : load.Counts())
      text += state + " " + std::to_string(count) + " ";
    return text;
  }

  std::string proxy_;
};

}  // namespace onepiece::e2e

ONEPIECE_TEST(onepiece::e2e::PredictionTest)
#include "prediction_test.moc"
