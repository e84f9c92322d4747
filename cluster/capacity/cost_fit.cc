#include "cluster/capacity/cost_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cluster/capacity/capacity_model.h"

namespace onepiece::capacity {
namespace {

using Vector = std::array<double, kMaxTerms>;
using Matrix = std::array<Vector, kMaxTerms>;

// The least ridge. It makes every system solvable, and bends no fit.
constexpr double kLeastRidge = 1e-9;
// How surprising it is that costs are not those of the one term. With 4, half of a job's time
// counts as one standard deviation.
constexpr double kTrust = 4;

// The problem per job, with every term scaled to a mean square of 1. Terms may differ by ten orders
// of magnitude, and their squares would leave no digits.
struct Scaled {
  int n = 0;
  Matrix xx{};
  Vector xy{}, scale{};  // scale: 0 for a term that no job had.
  double yy = 0;
};

bool IsPossible(const TermSums& sums) {
  const auto possible = [](double value) { return std::isfinite(value) && value >= 0; };
  return sums.terms >= 1 && sums.terms <= kMaxTerms && std::ranges::all_of(sums.xx, possible) &&
         std::ranges::all_of(sums.xy, possible) && possible(sums.yy);
}

Scaled ScaledOf(const TermSums& sums) {
  const int n = sums.terms;
  const auto jobs = static_cast<double>(sums.jobs);
  Scaled scaled{.n = n, .yy = sums.yy / jobs};
  for (int i = 0; i < n; ++i) {
    const double root = std::sqrt(sums.xx[UpperIndex(n, i, i)] / jobs);
    scaled.scale[i] = root > 0 ? 1 / root : 0;
  }
  for (int i = 0; i < n; ++i) {
    scaled.xy[i] = sums.xy[i] / jobs * scaled.scale[i];
    for (int j = i; j < n; ++j) {
      const double value = sums.xx[UpperIndex(n, i, j)] / jobs * scaled.scale[i] * scaled.scale[j];
      scaled.xx[i][j] = scaled.xx[j][i] = value;
    }
  }
  return scaled;
}

// Solves a·w = b for the terms in `set`, by Cholesky. The others are 0. Returns false when `a` is
// not positive definite.
bool Solve(const Matrix& a, const Vector& b, int n, unsigned set, Vector& w) {
  std::array<int, kMaxTerms> index{};
  int m = 0;
  for (int i = 0; i < n; ++i) {
    if ((set >> i & 1U) != 0) index[m++] = i;
  }
  Matrix lower{};
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j <= i; ++j) {
      double sum = a[index[i]][index[j]];
      for (int k = 0; k < j; ++k) sum -= lower[i][k] * lower[j][k];
      if (i == j && !(sum > 0)) return false;
      lower[i][j] = i == j ? std::sqrt(sum) : sum / lower[j][j];
    }
  }
  Vector z{};
  for (int i = 0; i < m; ++i) {
    double sum = b[index[i]];
    for (int k = 0; k < i; ++k) sum -= lower[i][k] * z[k];
    z[i] = sum / lower[i][i];
  }
  w = {};
  for (int i = m - 1; i >= 0; --i) {
    double sum = z[i];
    for (int k = i + 1; k < m; ++k) sum -= lower[k][i] * w[index[k]];
    w[index[i]] = sum / lower[i][i];
  }
  return true;
}

// wᵀ·a·w - 2 bᵀ·w
double Quadratic(const Matrix& a, const Vector& b, int n, const Vector& w) {
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) sum += w[i] * a[i][j] * w[j];
    sum -= 2 * b[i] * w[i];
  }
  return sum;
}

// The best non-negative w. The optimum solves the system of the terms that are above 0, so the best
// of all sets of terms is exact. There are 16 at most.
Vector BestOf(const Scaled& problem, int prior, double ridge) {
  const int n = problem.n;
  Matrix a = problem.xx;
  Vector b = problem.xy;
  for (int i = 0; i < n; ++i) a[i][i] += ridge;
  b[prior] += ridge * problem.xy[prior];  // Alone, a term of mean square 1 would cost this.
  Vector best{}, w{};
  double least = 0;  // That of all costs 0.
  for (unsigned set = 1; set < 1U << n; ++set) {
    if (!Solve(a, b, n, set, w) || std::ranges::any_of(w, [](double one) { return !(one >= 0); }))
      continue;
    const double value = Quadratic(a, b, n, w);
    if (value < least) {
      least = value;
      best = w;
    }
  }
  return best;
}

double SquaredError(const Scaled& problem, const Vector& w) {
  return std::max(0.0, problem.yy + Quadratic(problem.xx, problem.xy, problem.n, w));
}

}  // namespace

void TermSums::Add(const TermSums& more, double sign) {
  if (more.terms == 0) return;
  if (terms == 0) terms = more.terms;
  if (terms != more.terms) return;
  jobs = sign > 0 ? jobs + more.jobs : jobs - std::min(jobs, more.jobs);
  for (std::size_t i = 0; i < xx.size(); ++i) xx[i] += sign * more.xx[i];
  for (std::size_t i = 0; i < xy.size(); ++i) xy[i] += sign * more.xy[i];
  yy += sign * more.yy;
}

std::optional<CostFit> FitCosts(const TermSums& sums, int prior, double mean_s) {
  if (!IsPossible(sums) || sums.jobs < kMinSamples || prior < 0 || prior >= sums.terms ||
      !(mean_s > 0) || !(sums.yy > 0))
    return std::nullopt;
  const Scaled problem = ScaledOf(sums);
  const auto jobs = static_cast<double>(sums.jobs);
  const double spare = std::max(1.0, jobs - problem.n);  // Degrees of freedom.
  const double noise = SquaredError(problem, BestOf(problem, prior, kLeastRidge)) * jobs / spare;
  const double ridge = std::max(kLeastRidge, kTrust * noise / (problem.yy * jobs));
  const Vector w = BestOf(problem, prior, ridge);
  CostFit fit;
  for (int i = 0; i < problem.n; ++i) {
    fit.seconds_per_term.push_back(w[i] * problem.scale[i]);
    if (!std::isfinite(fit.seconds_per_term.back())) return std::nullopt;
  }
  fit.relative_error = std::sqrt(SquaredError(problem, w)) / mean_s;
  return fit;
}

std::optional<double> CostByTerms(std::span<const double> seconds_per_term,
                                  std::span<const double> terms) {
  if (seconds_per_term.empty() || seconds_per_term.size() != terms.size()) return std::nullopt;
  const auto or_zero = [](double value) { return std::isfinite(value) && value > 0 ? value : 0; };
  double seconds = 0;
  for (std::size_t i = 0; i < terms.size(); ++i)
    seconds += or_zero(seconds_per_term[i]) * or_zero(terms[i]);
  return or_zero(seconds);
}

}  // namespace onepiece::capacity
