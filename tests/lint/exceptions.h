// Where the tree may break the rule on clocks, and why. lint_test also fails when a place has
// become better than its entry says, so that the entry goes with its reason.
#pragma once

#include <QString>
#include <QVector>

namespace onepiece::lint {

struct RealTime {
  QString path;  ///< A file, or a folder with a slash behind it.
  int places;    ///< So many lines of the file; 0 for a folder, where every line may.
  QString why;
};

/// What waits in real time or reads a clock of the system itself.
inline const QVector<RealTime>& RealTimes() {
  static const QVector<RealTime> places = {
      {"cluster/session/fan_out.h", 1, "gRPC waits for a queue by the system's clock"},

      {"tests/bench/", 0, "a benchmark measures real time and offers its load at a pace"},
      {"tests/chaos/", 0, "what is killed and cut is made of processes, which live in real time"},
      {"tests/client/failover_test.cc", 1, "the time for which nobody leads"},
      {"tests/client/fake_cluster.h", 1, "the time between two heartbeats of a fake server"},
      {"tests/database/kill_anywhere.h", 1, "a process is killed after a random time"},
      {"tests/e2e/branch_plugin.cc", 1, "a stage in another process that takes its time"},
      {"tests/e2e/failover_test.cc", 1, "the time between two kills of a process"},
      {"tests/e2e/job_load.cc", 1, "a load that is offered to processes at a pace"},
      {"tests/e2e/large_plugin.cc", 1, "a stage in another process that takes its time"},
      {"tests/e2e/netns_test.cc", 2, "a cable stays cut for longer than timeouts of processes"},
      {"tests/e2e/prediction_test.cc", 1, "a load that is offered to processes at a pace"},
      {"tests/history/recorder_crash_test.cc", 1, "a process is killed after a random time"},
      {"tests/instance/idle_work_test.cc", 2, "a child process gets the time to begin too early"},
      {"tests/rdma_vm/produce.cc", 2, "a ring that another machine empties was full"},
      {"tests/ring/process_test.cc", 1, "a ring that another process empties was full"},
      {"tests/ring/recovery_time_test.cc", 3, "measures the real time until processes recover"},
      {"tests/session/fake_state.h", 1,
       "looks whether gRPC has cancelled a call, which tells nobody"},
  };
  return places;
}

}  // namespace onepiece::lint
