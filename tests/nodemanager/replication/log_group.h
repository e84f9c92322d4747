// Whole replicas in one process that form a group.
#pragma once

#include <QTemporaryDir>
#include <QtTest>
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/nodemanager/replication/log_node.h"

namespace onepiece::nodemanager {

/// The second base of a test of groups. The test makes dir_, and clears nodes_ before it goes.
class LogGroup {
 protected:
  [[nodiscard]] ReplicatedLogOptions OptionsOf(const std::string& name) const {
    ReplicatedLogOptions options{
        .data_dir = dir_->filePath(QString::fromStdString(name)).toStdString(), .name = name};
    options.paxos.version = kCommandVersion;
    return options;
  }
  Node& Add(const std::string& name) {
    nodes_.push_back(std::make_unique<Node>(OptionsOf(name)));
    return *nodes_.back();
  }
  // Gives all nodes seats that name each other, and addresses that stay. None is started.
  void MakeConfigured() {
    std::vector<paxos::Seat> seats;
    for (const auto& node : nodes_) {
      QVERIFY(node->Open().ok());  // This draws a port.
      seats.push_back(node->seat());
    }
    for (const auto& node : nodes_) {
      node->End();
      node->options().seats = seats;
    }
  }
  // Tries until one of the running nodes does it. The leader may change at any time, and only the
  // leader does what it is asked for.
  bool AtTheLeader(const std::function<bool(Node&)>& attempt) {
    return testing::Eventually(kNodeLimit, [&] {
      return std::any_of(nodes_.begin(), nodes_.end(),
                         [&](const auto& node) { return node->Leads() && attempt(*node); });
    });
  }

  std::unique_ptr<QTemporaryDir> dir_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace onepiece::nodemanager
