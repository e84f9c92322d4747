// The NodeManager of a simulated cluster: hears its nodes, declares dead what is silent, and gives
// routing tables, which may be late.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cluster/node/cluster_view.h"
#include "cluster/node/routing.h"
#include "onepiece/v1/node_manager.pb.h"
#include "tests/database/simulation/ledger.h"
#include "tests/database/simulation/world.h"

namespace onepiece::simulation {

inline constexpr char kNodeManager[] = "nm";
inline constexpr char kChain[] = "chain";  // The application encode → paint.
inline constexpr char kGraph[] = "graph";  // encode → paint, and sound, which merge joins.
/// Returns the stages of both applications.
const std::vector<std::string>& Stages();
/// Returns what the application makes of this input.
std::string ResultOf(const std::string& app, const std::string& input);

using Table = std::shared_ptr<const node::Routing>;

/// Its process is always there.
class NodeManager {
 public:
  using Take = std::function<void(const Table&)>;

  NodeManager(World& world, Ledger& ledger) : world_(world), ledger_(ledger) {}

  void Start();
  /// A node reports. `stage` is empty for nodes that are no instances. Returns false when this
  /// incarnation was declared dead: the node begins another one.
  bool Report(const std::string& node, std::uint64_t incarnation, const std::string& address,
              const std::string& stage);
  /// Gives this node the tables from now on. It is called at the node.
  void Subscribe(const std::string& node, Take take) { takers_[node] = std::move(take); }
  /// Tables take this long to the node from now on.
  void Delay(const std::string& node, Duration delay) { delays_[node] = delay; }
  [[nodiscard]] const Table& table() const { return table_; }

 private:
  struct Known {
    std::uint64_t incarnation = 0;
    std::string address, stage;
    base::MonotonicTime heard{};
    bool alive = false;
  };

  void Look();
  void Publish();
  void Give(const std::string& node);

  World& world_;
  Ledger& ledger_;
  std::map<std::string, Known> nodes_;
  std::map<std::string, Take> takers_;
  std::map<std::string, Duration> delays_;
  Table table_ = std::make_shared<const node::Routing>();
};

}  // namespace onepiece::simulation
