// What goes wrong in a history.
#pragma once

#include <map>
#include <string>

#include "tests/database/simulation/node.h"

namespace onepiece::simulation {

/// Strikes until the time of faults is over, and mends all that it did.
class Nemesis {
 public:
  explicit Nemesis(Cluster& cluster) : cluster_(cluster), world_(cluster.world) {}

  /// Begins to strike, for so long.
  void Begin(Duration lasts);
  [[nodiscard]] const std::map<std::string, int>& faults() const { return faults_; }

 private:
  void StrikeDatabase();
  void StrikeInstance();
  void StrikeProxy();
  void StrikeLink();
  void PartFor(Duration lasts);
  void DelayTables();
  void KillFor(const std::string& node, Duration lasts);
  void PauseFor(const std::string& node, Duration lasts);
  void Start(const std::string& node);
  void Again(Duration pause, void (Nemesis::*strike)());
  [[nodiscard]] bool IsOver() const { return world_.Passed() > until_; }
  std::string AnyDatabase() const;
  std::string AnyInstance() const;
  std::string AnyProxy() const;

  Cluster& cluster_;
  World& world_;
  Duration until_{};
  bool splits_ = false;  ///< Databases are cut off from each other at times.
  std::map<std::string, int> faults_;
};

}  // namespace onepiece::simulation
