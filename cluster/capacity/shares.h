// How the proxies of a workflow set share its capacity (docs/elasticity.md, "Which share does each
// proxy get?").
#pragma once

#include <span>
#include <vector>

namespace onepiece::capacity {

/// No proxy has less than this part of an even share, so that one which nobody has asked for can
/// take a job at once. All shares together are therefore at most 1 + kIdleShare.
inline constexpr double kIdleShare = 0.05;

/// Returns each proxy's share of the capacity, 0 to 1, in the order of `wanted`.
///
/// `wanted` is what each is asked for, in worker seconds per second. `load` is what they are asked
/// for together of the narrowest pool, where 1 is all that its workers do. As far as the capacity
/// is asked for, and a quarter beyond, proxies share it in the proportion of what they want. They
/// share the rest equally.
///
/// Threading: a pure function.
/// Errors: none. A number that is negative or NaN counts as 0.
std::vector<double> Shares(std::span<const double> wanted, double load);

}  // namespace onepiece::capacity
