// A job store behind its gRPC service, with a clock that tests move.
#pragma once

#include <memory>
#include <string>

#include "cluster/database/database_service.h"
#include "cluster/rpc/channel.h"
#include "cluster/rpc/server.h"
#include "tests/database/job_store_fixture.h"

namespace onepiece::database {

/// One database's service without peers, and a client of it.
struct ServedStore {
  explicit ServedStore(rpc::StreamGuardOptions fetches = {},
                       std::int64_t budget_bytes = std::int64_t{1} << 30,
                       std::size_t watches = DatabaseService::kWatchPlaces,
                       const rpc::ServerOptions& served = {})
      : f(JobStoreOptions{.budget_bytes = budget_bytes}), server(served) {
    auto opened = fabric::Fabric::Open("shm://test-" + base::Uid::GenerateRandom().ToString());
    StoreFixture::RequireOk(opened);
    fabric = *std::move(opened);
    auto created = ValueAccess::Create(*fabric, {});
    StoreFixture::RequireOk(created);
    values = *std::move(created);
    service = std::make_unique<DatabaseService>("db", f.store, replicator, anti_entropy, *values,
                                                ValueAccess::Store{}, f.clock, fetches,
                                                /*read_only=*/false, watches);
    service->Open();
    server.AddService(*service);
    StoreFixture::RequireOk(server.Start());
    stub = v1::DatabaseService::NewStub(rpc::MakeChannel(server.address()));
  }
  ~ServedStore() {
    service->Stop();
    server.Shutdown(base::Duration::zero());
  }

  std::string Keep(const std::string& bytes) {
    const std::string uid = f.Create();
    f.Store(uid, bytes);
    return uid;
  }

  StoreFixture f;
  node::ClusterView view;
  Replicator replicator{view, {}, f.clock};  // Not started: there are no peers.
  AntiEntropy anti_entropy{view, {}, f.store, replicator, f.clock};
  std::unique_ptr<fabric::Fabric> fabric;
  std::unique_ptr<ValueAccess> values;
  std::unique_ptr<DatabaseService> service;
  rpc::Server server;
  std::unique_ptr<v1::DatabaseService::Stub> stub;
};

}  // namespace onepiece::database
