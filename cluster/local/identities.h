// The identities of an embedded cluster: its CA, one certificate for each node, and the admin's.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "cluster/base/clock.h"
#include "cluster/local/data_dir.h"
#include "cluster/local/plan.h"

namespace onepiece::local {

/// Makes what is missing of the cluster's CA, of the admin's identity in dir.Identity(), and of the
/// nodes' identities in folders below it, and renews those that are due. What is good stays, so
/// that a cluster that is started again is the same to others. The first NodeManager gets the CA's
/// key too, to seal it into the replicated state.
///
/// Blocking: waits for the disk.
/// Errors: those of identity::EnsureSecretFolder(), LoadAuthority() and SaveIdentity(): also when a
/// file is there and others may read it.
absl::Status PrepareIdentities(const ClusterPlan& plan, const DataDir& dir, base::WallTime now);

/// Prepares a program of people for calls to clusters: TLS 1.3 alone, and gRPC writes nothing to
/// stderr, because the program says itself what went wrong. Call it before the program's threads
/// start.
void PrepareCalls();

/// Makes this process show the identity in `folder` to the cluster; an empty one: nothing.
///
/// Blocking: reads three files.
/// Errors: those of identity::LoadIdentity().
absl::Status ShowIdentity(const std::string& folder);

}  // namespace onepiece::local
