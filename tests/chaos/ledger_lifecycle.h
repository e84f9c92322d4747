// Certificates and tokens come and go while the cluster works, as administrators do it with
// `onepiece cert` and `onepiece token`. Nobody who should be served may notice.
#pragma once

#include <memory>

#include "tests/chaos/ledger_faults.h"

namespace onepiece::ledger {

/// The cluster changes to a new CA, with all steps: every node renews, and so does the admin whose
/// certificate the load shows, with the steps that it takes.
///
/// Blocking: until the old CA is forgotten, at most 90 s, scaled.
std::unique_ptr<Fault> MakeRotateAuthority();
/// A bystander gets a token, is served by every process, and is refused by every one of them within
/// 5 s of the revocation. Until the CA changes, the same happens with a certificate.
std::unique_ptr<Fault> MakeRevokeBystander();

}  // namespace onepiece::ledger
