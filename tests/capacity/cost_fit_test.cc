// Tests the fit of a stage's cost terms.
#include "cluster/capacity/cost_fit.h"

#include <QtTest>
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/test_main.h"

namespace onepiece::capacity {
namespace {

using Terms = std::vector<double>;

struct Jobs {
  TermSums sums;
  double seconds = 0;

  void Add(const Terms& terms, double time_s) {
    const int n = static_cast<int>(terms.size());
    TermSums one{.terms = n, .jobs = 1, .yy = time_s * time_s};
    for (int i = 0; i < n; ++i) {
      one.xy[i] = terms[i] * time_s;
      for (int j = i; j < n; ++j) one.xx[UpperIndex(n, i, j)] = terms[i] * terms[j];
    }
    sums.Add(one);
    seconds += time_s;
  }
  [[nodiscard]] double Mean() const { return seconds / static_cast<double>(sums.jobs); }
  [[nodiscard]] std::optional<CostFit> Fit(int prior = 0) const {
    return FitCosts(sums, prior, Mean());
  }
};

double Price(const CostFit& fit, const Terms& terms) {
  double price = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) price += fit.seconds_per_term[i] * terms[i];
  return price;
}

bool IsNear(double actual, double expected, double relative) {
  const bool is = std::abs(actual - expected) <= relative * std::abs(expected);
  if (!is) qWarning("%g is not near %g", actual, expected);
  return is;
}

// A diffusion transformer: a fixed cost, one by tokens and steps, and one by their square. At 480p
// the last two are equal.
constexpr double k480p = 81.0 * 832 * 480, k720p = 81.0 * 1280 * 720;
Terms Dit(double pixels, double steps) { return {1, steps * pixels, steps * pixels * pixels}; }
double DitSeconds(const Terms& terms) { return 3 + terms[1] / k480p + terms[2] / (k480p * k480p); }

// Least squares by coordinate descent, which needs no insight.
double LeastError(const TermSums& sums) {
  const int n = sums.terms;
  const auto xx = [&](int i, int j) {
    return sums.xx[UpperIndex(n, std::min(i, j), std::max(i, j))];
  };
  std::vector<double> w(n, 0);
  for (int round = 0; round < 200'000; ++round) {
    for (int i = 0; i < n; ++i) {
      double rest = sums.xy[i];
      for (int j = 0; j < n; ++j) rest -= j == i ? 0 : xx(i, j) * w[j];
      w[i] = std::max(0.0, rest / xx(i, i));
    }
  }
  double error = sums.yy;
  for (int i = 0; i < n; ++i) {
    error -= 2 * sums.xy[i] * w[i];
    for (int j = 0; j < n; ++j) error += w[i] * w[j] * xx(i, j);
  }
  return std::sqrt(std::max(0.0, error) / static_cast<double>(sums.jobs));
}

}  // namespace

class CostFitTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void aVideoOf720pIsPricedAsItIsAndNotByItsPixels() {
    const std::uint32_t seed = QRandomGenerator::global()->generate();
    qInfo("seed %u", seed);
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(1, 0.03);
    std::uniform_int_distribution<int> steps(20, 50);
    Jobs jobs;
    double units = 0;
    for (int i = 0; i < 300; ++i) {
      const double pixels = i % 10 == 0 ? k720p : i % 3 == 0 ? k480p / 2 : k480p;
      const Terms terms = Dit(pixels, steps(random));
      jobs.Add(terms, DitSeconds(terms) * noise(random));
      units += terms[1];
    }
    const CostFit fit = jobs.Fit(1).value();
    for (const double pixels : {k480p / 2, k480p, k720p}) {
      const Terms terms = Dit(pixels, 40);
      QVERIFY(IsNear(Price(fit, terms), DitSeconds(terms), 0.05));
    }
    QVERIFY2(fit.relative_error > 0.02 && fit.relative_error < 0.07,
             QByteArray::number(fit.relative_error));
    // One price for a pixel is a third too low.
    const Terms large = Dit(k720p, 40);
    QVERIFY(jobs.seconds / units * large[1] < 0.75 * DitSeconds(large));
  }

  void theBestCostsAreFound() {
    const std::uint32_t seed = QRandomGenerator::global()->generate();
    qInfo("seed %u", seed);
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> size(0.2, 3), cost(-1, 1), noise(-0.3, 0.3);
    for (int run = 0; run < 100; ++run) {
      const int n = 1 + run % kMaxTerms;
      Terms costs(n);
      for (double& one : costs) one = cost(random);  // What is negative must become 0.
      Jobs jobs;
      for (int i = 0; i < 20'000; ++i) {
        Terms terms(n);
        double time_s = noise(random);
        for (int k = 0; k < n; ++k) time_s += costs[k] * (terms[k] = size(random));
        jobs.Add(terms, std::max(0.01, time_s));
      }
      const auto fit = jobs.Fit(run % n);
      QVERIFY(fit.has_value());
      for (const double one : fit->seconds_per_term) QVERIFY(one >= 0);
      const double error = fit->relative_error * jobs.Mean(), least = LeastError(jobs.sums);
      QVERIFY2(error <= least * 1.001 + 1e-6 && error >= least * 0.999 - 1e-6,
               qPrintable(QString("run %1: %2 %3").arg(run).arg(error).arg(least)));
    }
  }

  // Nobody knows which of the terms it was.
  void jobsThatAreAlikeArePricedByTheOneTerm() {
    Jobs jobs;
    for (int i = 0; i < 50; ++i) jobs.Add({1, 10, 100}, 5 + 0.1 * (i % 3));
    const CostFit fit = jobs.Fit(1).value();
    QVERIFY(IsNear(Price(fit, {1, 10, 100}), jobs.Mean(), 1e-6));
    QVERIFY(IsNear(Price(fit, {1, 20, 400}), 2 * jobs.Mean(), 0.01));
  }

  // A few jobs that are nearly alike, and noise: the terms could be anything.
  void fewNoisyJobsDoNotInventACost() {
    Jobs jobs;
    for (int i = 0; i < 6; ++i) {
      const double x = 10 + 0.1 * i;
      jobs.Add({1, x, x * x}, i < 3 ? 5 : 5.5);  // By chance the larger ones.
    }
    const double price = Price(jobs.Fit(1).value(), {1, 20, 400});
    QVERIFY2(price < 15, QByteArray::number(price));  // 10.3 by the one term, 21 by the square.
  }

  void termsOfAllSizesKeepTheirDigits() {
    Jobs jobs;
    for (int i = 1; i <= 100; ++i) {
      const double x = 1e6 * i;
      jobs.Add({1e-3, x, x * x, 1e-6 * (i % 7)}, 2 + 3e-8 * x + 5e-15 * x * x);
    }
    const CostFit fit = jobs.Fit(1).value();
    QVERIFY(IsNear(fit.seconds_per_term[0], 2e3, 1e-3));
    QVERIFY(IsNear(fit.seconds_per_term[1], 3e-8, 1e-3));
    QVERIFY(IsNear(fit.seconds_per_term[2], 5e-15, 1e-3));
    QVERIFY(fit.relative_error < 1e-3);
  }

  void sumsOfInstancesAddUpAndLaterOnesMinusEarlierOnesAreTheRest() {
    Jobs all, one, other;
    for (int i = 1; i <= 20; ++i) {
      all.Add({1, 1.0 * i}, 1 + 2.0 * i);
      (i % 2 == 0 ? one : other).Add({1, 1.0 * i}, 1 + 2.0 * i);
    }
    TermSums both = one.sums;
    both.Add(other.sums);
    QCOMPARE(both.jobs, all.sums.jobs);
    QCOMPARE(both.xx, all.sums.xx);
    both.Add(one.sums, -1);
    QCOMPARE(both.jobs, other.sums.jobs);
    QCOMPARE(both.xy, other.sums.xy);
    Jobs three;
    three.Add({1, 2, 3}, 1);
    both.Add(three.sums);  // Of another formula.
    QCOMPARE(both.jobs, other.sums.jobs);
  }

  void nothingIsFittedToTooLittleOrToNonsense() {
    Jobs jobs;
    for (int i = 0; i < 4; ++i) jobs.Add({1, 2.0 + i}, 3);
    QVERIFY(!jobs.Fit().has_value());
    jobs.Add({1, 9}, 3);
    QVERIFY(jobs.Fit().has_value());
    QVERIFY(!jobs.Fit(2).has_value() && !jobs.Fit(-1).has_value());
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), -1.0}) {
      Jobs spoilt = jobs;
      spoilt.sums.xx[1] = bad;
      QVERIFY(!spoilt.Fit().has_value());
      QVERIFY(!FitCosts(jobs.sums, 0, bad).has_value());
    }
    QVERIFY(!FitCosts({}, 0, 1).has_value());
    Jobs absent;  // No job has any of the second term.
    for (int i = 0; i < 9; ++i) absent.Add({1, 0}, 3);
    QVERIFY(IsNear(absent.Fit().value().seconds_per_term[0], 3, 1e-6));
    QCOMPARE(absent.Fit().value().seconds_per_term[1], 0.0);
  }

  void CostByTerms_IsTheSumOrNothing() {
    const std::vector<double> costs = {0.1, 0.02}, terms = {3, 100};
    QCOMPARE(*CostByTerms(costs, terms), 0.1 * 3 + 0.02 * 100);
    QVERIFY(!CostByTerms({}, {}).has_value());
    QVERIFY(!CostByTerms(costs, std::vector<double>{1}).has_value());
    const std::vector<double> odd = {std::nan(""), -5};
    QCOMPARE(*CostByTerms(costs, odd), 0.0);
  }
};

}  // namespace onepiece::capacity

ONEPIECE_TEST(onepiece::capacity::CostFitTest)
#include "cost_fit_test.moc"
