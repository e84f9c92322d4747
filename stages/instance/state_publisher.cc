#include "stages/instance/state_publisher.h"

#include <utility>

#include "cluster/base/status.h"
#include "spdlog/spdlog.h"

namespace onepiece::instance {

StatePublisher::StatePublisher(std::string workflow_set, const node::ClusterView& view,
                               const Drain& drain, const std::atomic<bool>& leaving, Tell tell)
    : view_(view),
      drain_(drain),
      leaving_(leaving),
      tell_(std::move(tell)),
      workflow_set_(std::move(workflow_set)) {}

void StatePublisher::Publish() {
  const base::MutexLock lock(mutex_);
  // The flag is set before PublishLeaving takes the lock. So no status follows "leaving" and brings
  // the instance back into the routes.
  if (leaving_) return;
  tell_(Compose());
}

void StatePublisher::StatusChanged(const runtime::TaskStatus& status) {
  if (!status.error.ok()) spdlog::error("loading failed: {}", base::Message(status.error));
  {
    const base::MutexLock lock(mutex_);
    tasks_ = status;
  }
  Publish();
}

void StatePublisher::PublishLeaving() {
  const base::MutexLock lock(mutex_);
  tell_({.detail = "leaving", .assignment_epoch = tasks_.epoch});
}

std::string StatePublisher::workflow_set() const {
  const base::MutexLock lock(mutex_);
  return workflow_set_;
}

void StatePublisher::SetWorkflowSet(const std::string& workflow_set) {
  const base::MutexLock lock(mutex_);
  workflow_set_ = workflow_set;
}

void StatePublisher::SetLeavingSet(bool leaving_set) {
  const base::MutexLock lock(mutex_);
  leaving_set_ = leaving_set;
}

node::NodeStatus StatePublisher::Compose() const {
  node::NodeStatus said{.assignment_epoch = tasks_.epoch};
  if (!tasks_.error.ok()) said.detail = "loading failed: " + base::Message(tasks_.error);
  said.load_failed = !tasks_.error.ok();
  if (leaving_set_) {
    // Neither assignment is served now. That the drain of the old set is done does not mean that
    // the new assignment is drained, so `drained` stays false.
    said.detail = "leaves workflow set " + workflow_set_;
    return said;
  }
  switch (tasks_.state) {
    case runtime::TaskState::kServing:
      // Until the instance has its set's routing it does not know where results go, so it must get
      // no work.
      if (view_.routing()->table().workflow_set() == workflow_set_) {
        said.state = v1::Node::READY;
        said.served_apps = tasks_.apps;
      } else if (said.detail.empty()) {
        said.detail = "waits for the routing of workflow set " + workflow_set_;
      }
      break;
    case runtime::TaskState::kFailed:
      break;
    case runtime::TaskState::kLoading:
      said.detail = "loading";
      break;
    case runtime::TaskState::kIdle:
      said.detail = "idle";
      break;
  }
  if (const auto drained = drain_.drained()) {
    said.drained = true;
    // The drain knows the newest epoch. The tasks still tell the earlier one while they load.
    said.assignment_epoch = *drained;
  }
  return said;
}

}  // namespace onepiece::instance
