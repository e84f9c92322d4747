#include "cluster/identity/scope.h"

#include "cluster/identity/words.h"

namespace onepiece::identity {
namespace {

constexpr std::string_view kScopeNames[] = {"submit",     "read-own", "read",
                                            "cancel-own", "operate",  "admin"};
constexpr Words kScopeWords{.kind = "scope", .reason = "BAD_SCOPE", .words = kScopeNames};

}  // namespace

ScopeSet WithImplied(ScopeSet granted) {
  if (granted.Has(Scope::kAdmin)) {
    granted.Add({Scope::kSubmit, Scope::kReadOwn, Scope::kRead, Scope::kCancelOwn, Scope::kOperate,
                 Scope::kAdmin});
  }
  if (granted.Has(Scope::kOperate)) granted.Add({Scope::kRead, Scope::kCancelOwn});
  if (granted.Has(Scope::kRead)) granted.Add(Scope::kReadOwn);
  return granted;
}

std::string WordOf(Scope scope) {
  return std::string(kScopeNames[static_cast<std::size_t>(scope)]);
}

std::vector<std::string> WordsOf(ScopeSet scopes) { return WordsOf(kScopeWords, scopes); }

std::string FormatScopes(ScopeSet scopes) { return absl::StrJoin(WordsOf(scopes), ","); }

absl::StatusOr<ScopeSet> ParseScopes(std::string_view text) {
  return ParseWords<Scope>(kScopeWords, text);
}

absl::StatusOr<Scope> ParseScope(std::string_view word) {
  return ParseWord<Scope>(kScopeWords, word);
}

}  // namespace onepiece::identity
