// Certificates as text and as JSON.
#pragma once

#include <string>

#include "cluster/base/clock.h"
#include "cluster/identity/certificate.h"
#include "cluster/terminal/json.h"

namespace onepiece::cli {

/// What `cert show --json` prints of a certificate. "state" is valid, expired or not_valid_yet at
/// `now`.
terminal::Json CertificateDocument(const identity::Certificate& certificate, base::WallTime now);

/// The same for people: some lines.
std::string CertificateText(const identity::Certificate& certificate, base::WallTime now);

}  // namespace onepiece::cli
