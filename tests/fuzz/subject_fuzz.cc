// Gives any text to the parsers of subjects, scopes and tokens. What one accepts has exactly one
// text, so it is written back as it was.
#include <cstdint>
#include <string_view>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "cluster/identity/subject.h"
#include "cluster/identity/token.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace onepiece::identity;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto subject = ParseSubject(text); subject.ok()) {
    ONEPIECE_CHECK(*FormatSubject(*subject) == text);
    ONEPIECE_CHECK(CheckClusterId(ClusterOf(*subject)).ok());
  } else {
    ONEPIECE_CHECK(!onepiece::base::GetReason(subject.status()).reason.empty());
  }
  if (const auto scopes = ParseScopes(text); scopes.ok())
    ONEPIECE_CHECK(*ParseScopes(FormatScopes(*scopes)) == *scopes);
  if (const auto token = JoinToken::Parse(text); token.ok())
    ONEPIECE_CHECK(token->Format() == text);
  if (const auto token = BearerToken::Parse(text); token.ok())
    ONEPIECE_CHECK(token->Format() == text);
  return 0;
}
