// Tries everything at the given addresses, from wherever it was started. Prints a line for each
// attack: what was tried, a tab, and the reason or the code of the answer.
//
//   onepiece_stranger UID plaintext ADDRESS…
//   onepiece_stranger UID nobody:ANY_CA_FILE ADDRESS…
//   onepiece_stranger UID FOLDER:NAME ADDRESS…
#include <cstdio>
#include <fstream>
#include <sstream>

#include "cluster/base/clock.h"
#include "cluster/base/status.h"
#include "cluster/rpc/tls.h"
#include "grpcpp/security/credentials.h"
#include "tests/e2e/attacks.h"

namespace {

namespace e2e = onepiece::e2e;

e2e::Credentials CredentialsOf(const std::string& who) {
  if (who == "plaintext") return grpc::InsecureChannelCredentials();
  const std::size_t colon = who.rfind(':');
  if (who.starts_with("nobody:")) {
    std::ostringstream text;
    text << std::ifstream(who.substr(colon + 1)).rdbuf();
    return e2e::Anybody(text.str());
  }
  const auto made = onepiece::rpc::MakeChannelCredentials(
      {.folder = who.substr(0, colon), .name = who.substr(colon + 1), .roles = {}},
      onepiece::base::SystemClock());
  if (made.ok()) return *made;
  std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  onepiece::rpc::RequireTls13();
  if (argc < 4) return 2;
  const e2e::Credentials credentials = CredentialsOf(argv[2]);
  if (credentials == nullptr) return 2;
  const bool connects = std::string(argv[2]) != "plaintext";
  for (const e2e::Tried& one : e2e::TryAttacks({argv + 3, argv + argc}, credentials, argv[1],
                                               connects ? e2e::kAllAttacks : 1)) {
    const std::string reason = onepiece::base::GetReason(one.status).reason;
    std::printf(
        "%s\t%s\n", one.what.c_str(),
        reason.empty() ? absl::StatusCodeToString(one.status.code()).c_str() : reason.c_str());
  }
  return 0;
}
