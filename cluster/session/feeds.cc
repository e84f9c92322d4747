#include "cluster/session/feeds.h"

#include <algorithm>

#include "cluster/base/mutex.h"

namespace onepiece::session {

std::shared_ptr<grpc::Channel> Channels::To(const std::string& address) {
  const base::MutexLock lock(mutex_);
  if (channels_.size() >= kMax) channels_.clear();
  auto& channel = channels_[address];
  if (channel == nullptr) channel = rpc::MakeChannel(address, {}, user_agent_);
  return channel;
}

bool Same(const google::protobuf::MessageLite& a, const google::protobuf::MessageLite& b) {
  return a.ByteSizeLong() == b.ByteSizeLong() && a.SerializeAsString() == b.SerializeAsString();
}

std::vector<Asked> Processes(const v1::Cluster& cluster, bool (*wanted)(v1::Role)) {
  std::vector<Asked> processes;
  for (const v1::Node& node : cluster.nodes()) {
    if (!wanted(node.role()) || node.address().empty()) continue;
    processes.push_back(
        {node.node_id(), node.incarnation(), node.address(), node.state() != v1::Node::DEAD});
  }
  std::ranges::sort(processes, {}, &Asked::node_id);
  return processes;
}

}  // namespace onepiece::session
