// What the proxies of a set have promised of one pool.
#pragma once

#include <algorithm>

namespace onepiece::admission {

/// The work that was admitted and that the pool has not done yet, in worker seconds: this proxy's
/// own, and what the NodeManager last told of the others.
///
/// It is a model. The pool works on everything that is promised, on each proxy's part in
/// proportion. What is known corrects it: the own part is never more than what the jobs that are in
/// would take.
///
/// Threading: needs external synchronisation.
/// Invariants: all numbers are at least 0.
class Promises {
 public:
  /// Takes a job in that needs `seconds` of the pool.
  void Add(double seconds) {
    own_ += seconds;
    in_ += seconds;
  }
  /// The job is out.
  void End(double seconds) {
    in_ = std::max(0.0, in_ - seconds);
    own_ = std::min(own_, in_);
  }
  /// The pool has worked for this long.
  void Work(double seconds) {
    const double all = total();
    if (all <= 0) return;
    const double left = std::max(0.0, 1 - seconds / all);
    own_ *= left;
    others_ *= left;
  }
  void SetOthers(double seconds) { others_ = seconds; }

  [[nodiscard]] double own() const { return own_; }
  [[nodiscard]] double others() const { return others_; }
  [[nodiscard]] double total() const { return own_ + others_; }

 private:
  double own_ = 0, others_ = 0;
  double in_ = 0;  // The whole cost of the jobs that are in.
};

}  // namespace onepiece::admission
