// Fits what each of a stage's cost terms takes to the times that its jobs took (docs/elasticity.md,
// "Costs that are a sum").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace onepiece::capacity {

inline constexpr int kMaxTerms = 4;

/// Sums over jobs: x is the vector of a job's n terms, y its time in seconds. Sums of several
/// instances may be added, and an earlier sum subtracted from a later one.
struct TermSums {
  int terms = 0;
  std::uint64_t jobs = 0;
  std::array<double, kMaxTerms*(kMaxTerms + 1) / 2> xx{};  ///< The upper triangle of Σ x·xᵀ.
  std::array<double, kMaxTerms> xy{};                      ///< Σ x·y.
  double yy = 0;                                           ///< Σ y².

  /// Adds `more`, `sign` times. Sums of another number of terms are of another formula, and are
  /// left out.
  void Add(const TermSums& more, double sign = 1);
};

/// The place in TermSums::xx of row i and column j >= i, with n terms.
constexpr std::size_t UpperIndex(int n, int i, int j) {
  return static_cast<std::size_t>(i * n - i * (i - 1) / 2 + (j - i));
}

struct CostFit {
  std::vector<double> seconds_per_term;  ///< None is negative.
  double relative_error = 0;  ///< The root of the mean squared error over the jobs' mean time.
};

/// Returns the non-negative costs of the terms with the least squared error. `mean_s` is the jobs'
/// mean time.
///
/// Jobs that are too few or too much alike do not tell the terms apart. As far as they do not, the
/// answer is the cost that goes by the term `prior` alone: a ridge draws the costs there, as hard
/// as the noise of so many jobs demands.
///
/// It is nullopt for fewer than kMinSamples jobs, and for sums that cannot be.
///
/// Threading: a pure function.
std::optional<CostFit> FitCosts(const TermSums& sums, int prior, double mean_s);

/// Returns what jobs cost, in seconds of one worker: Σ seconds_per_term × terms. `terms` is a job's
/// terms, or their sum over many jobs. Numbers that are negative or not finite count as 0.
///
/// It is nullopt when there are no costs, or when `terms` are of another formula.
///
/// Threading: a pure function.
std::optional<double> CostByTerms(std::span<const double> seconds_per_term,
                                  std::span<const double> terms);

}  // namespace onepiece::capacity
