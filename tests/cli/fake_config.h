// A NodeManager that keeps revisions of a configuration in memory, and whose cluster a test sets.
#pragma once

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "cluster/base/mutex.h"
#include "cluster/base/status.h"
#include "cluster/config/config_changes.h"
#include "cluster/rpc/status.h"
#include "onepiece/v1/cluster_config.grpc.pb.h"
#include "onepiece/v1/elasticity.grpc.pb.h"
#include "onepiece/v1/node_manager.grpc.pb.h"

namespace onepiece::cli {

/// Threading: may be used from any thread.
class FakeConfig final : public v1::ConfigService::Service,
                         public v1::ElasticityService::Service,
                         public v1::NodeManagerService::Service {
 public:
  FakeConfig() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(static_cast<v1::ConfigService::Service*>(this));
    builder.RegisterService(static_cast<v1::ElasticityService::Service*>(this));
    builder.RegisterService(static_cast<v1::NodeManagerService::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  ~FakeConfig() override { server_->Shutdown(gpr_inf_past(GPR_CLOCK_MONOTONIC)); }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  /// Makes a revision as if somebody had applied it.
  void Set(const v1::ClusterConfig& config, const std::string& author, const std::string& reason) {
    const base::MutexLock lock(mutex_);
    Append(config, author, reason);
  }
  /// The clusters that calls of GetCluster get, one after the other; the last one stays.
  void SetClusters(std::deque<v1::Cluster> clusters) {
    const base::MutexLock lock(mutex_);
    clusters_ = std::move(clusters);
  }
  /// Makes every call of ApplyConfig fail, but those that only ask.
  void Refuse(absl::Status status) {
    const base::MutexLock lock(mutex_);
    refusal_ = std::move(status);
  }
  /// Somebody else makes a revision before the next call of ApplyConfig is answered.
  void ChangeBeforeNextApply(const v1::ClusterConfig& config) {
    const base::MutexLock lock(mutex_);
    before_apply_ = std::make_unique<v1::ClusterConfig>(config);
  }
  std::vector<v1::ApplyConfigRequest> applied() {
    const base::MutexLock lock(mutex_);
    return applied_;
  }
  v1::ConfigRevision present() {
    const base::MutexLock lock(mutex_);
    return revisions_.empty() ? v1::ConfigRevision() : revisions_.back();
  }

  grpc::Status GetConfig(grpc::ServerContext*, const v1::GetConfigRequest* request,
                         v1::ConfigRevision* response) override {
    const base::MutexLock lock(mutex_);
    const std::uint64_t number = request->revision() == 0 ? revisions_.size() : request->revision();
    if (number > revisions_.size()) {
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kNotFound, "REVISION_UNKNOWN",
                                         "there is no such revision"));
    }
    if (number > 0) *response = revisions_[number - 1];
    return grpc::Status::OK;
  }
  grpc::Status ListConfigRevisions(grpc::ServerContext*,
                                   const v1::ListConfigRevisionsRequest* request,
                                   v1::ListConfigRevisionsResponse* response) override {
    const base::MutexLock lock(mutex_);
    std::size_t left =
        request->page_token().empty() ? revisions_.size() : std::stoul(request->page_token());
    // Two on a page, however many were asked for: clients must go on.
    for (int n = 0; n < std::min(2, request->page_size()) && left > 0; ++n) {
      *response->add_revisions() = revisions_[--left];
      response->mutable_revisions()->rbegin()->clear_config();
    }
    if (left > 0) response->set_next_page_token(std::to_string(left));
    return grpc::Status::OK;
  }
  grpc::Status ApplyConfig(grpc::ServerContext*, const v1::ApplyConfigRequest* request,
                           v1::ApplyConfigResponse* response) override {
    const base::MutexLock lock(mutex_);
    applied_.push_back(*request);
    if (before_apply_ != nullptr)
      Append(*std::exchange(before_apply_, nullptr), "operator:eve", "");
    if (!refusal_.ok() && !request->validate_only()) return rpc::ToGrpc(refusal_);
    if (request->base_revision() != 0 && request->base_revision() != revisions_.size()) {
      return rpc::ToGrpc(base::MakeError(absl::StatusCode::kAborted, "STALE_REVISION",
                                         "the configuration has changed"));
    }
    v1::ClusterConfig next = Present();
    const std::vector<std::string> sections(request->sections().begin(), request->sections().end());
    const absl::Status replaced =
        Replace(request->config(),
                sections.empty() ? config::SectionsOf(request->config()) : sections, next);
    if (!replaced.ok()) return rpc::ToGrpc(replaced);
    for (auto& change : config::ConfigChanges(Present(), next)) *response->add_changes() = change;
    if (!request->validate_only() && !response->changes().empty())
      Append(next, request->actor(), request->reason());
    response->set_revision(revisions_.size());
    return grpc::Status::OK;
  }
  grpc::Status GetCluster(grpc::ServerContext*, const v1::GetClusterRequest*,
                          v1::Cluster* response) override {
    const base::MutexLock lock(mutex_);
    if (!clusters_.empty()) *response = clusters_.front();
    if (clusters_.size() > 1) clusters_.pop_front();
    response->set_config_revision(revisions_.size());
    return grpc::Status::OK;
  }
  grpc::Status GetElasticity(grpc::ServerContext*, const v1::GetElasticityRequest*,
                             v1::Elasticity*) override {
    return grpc::Status::OK;
  }

 private:
  // A section that `from` lacks is emptied.
  static absl::Status Replace(const v1::ClusterConfig& from,
                              const std::vector<std::string>& sections, v1::ClusterConfig& config) {
    for (const std::string& section : sections) {
      const auto* field = v1::ClusterConfig::descriptor()->FindFieldByName(section);
      if (field == nullptr)
        return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_CONFIG", section);
      v1::ClusterConfig only = from;
      for (const std::string& other : config::ConfigSections()) {
        if (other != section) {
          only.GetReflection()->ClearField(&only,
                                           v1::ClusterConfig::descriptor()->FindFieldByName(other));
        }
      }
      config.GetReflection()->ClearField(&config, field);
      config.MergeFrom(only);
    }
    return absl::OkStatus();
  }

  v1::ClusterConfig Present() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return revisions_.empty() ? v1::ClusterConfig() : revisions_.back().config();
  }
  void Append(const v1::ClusterConfig& config, const std::string& author, const std::string& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    v1::ConfigRevision revision;
    for (auto& change : config::ConfigChanges(Present(), config)) *revision.add_changes() = change;
    revision.set_revision(revisions_.size() + 1);
    revision.set_time_unix_ms(1'700'000'000'000 +
                              1000 * static_cast<std::int64_t>(revisions_.size()));
    revision.set_author(author);
    revision.set_reason(reason);
    *revision.mutable_config() = config;
    revisions_.push_back(std::move(revision));
  }

  int port_ = 0;
  base::Mutex mutex_;
  std::vector<v1::ConfigRevision> revisions_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::Cluster> clusters_ ABSL_GUARDED_BY(mutex_);
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<v1::ClusterConfig> before_apply_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ApplyConfigRequest> applied_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Server> server_;  // Last: no call comes before the rest is there.
};

}  // namespace onepiece::cli
