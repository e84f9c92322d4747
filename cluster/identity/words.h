// Sets of an enum as words, which Scope and Role share.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cluster/base/status.h"
#include "cluster/identity/enum_set.h"

namespace onepiece::identity {

/// What the values of an enum are called: `words[value]` is the word of `value`.
struct Words {
  std::string_view kind;    ///< "scope", for messages.
  std::string_view reason;  ///< Of the error that a wrong word gives.
  std::span<const std::string_view> words;
};

template <typename Enum>
absl::StatusOr<Enum> ParseWord(const Words& words, std::string_view text) {
  std::string known;
  for (std::size_t i = 0; i < words.words.size(); ++i) {
    if (words.words[i] == text) return static_cast<Enum>(i);
    known += (i == 0 ? "" : ", ") + std::string(words.words[i]);
  }
  return base::MakeError(absl::StatusCode::kInvalidArgument, words.reason,
                         "\"" + std::string(text.substr(0, 64)) + "\" is no " +
                             std::string(words.kind) + ": there are " + known);
}

/// Adds the word's value to `set`. Refuses a value that is there already.
template <typename Enum>
absl::Status AddWord(const Words& words, std::string_view text, EnumSet<Enum>& set) {
  ONEPIECE_ASSIGN_OR_RETURN(const Enum value, ParseWord<Enum>(words, text));
  if (set.Has(value)) {
    return base::MakeError(
        absl::StatusCode::kInvalidArgument, words.reason,
        "the " + std::string(words.kind) + " " + std::string(text) + " stands there twice");
  }
  set.Add(value);
  return absl::OkStatus();
}

/// Parses "a,b". At least one word; the order does not matter.
template <typename Enum>
absl::StatusOr<EnumSet<Enum>> ParseWords(const Words& words, std::string_view text) {
  EnumSet<Enum> set;
  for (const auto& word : absl::StrSplit(base::AbslView(text), ','))
    ONEPIECE_RETURN_IF_ERROR(AddWord(words, base::View(word), set));
  return set;
}

/// The words of a set, in the order of the enum.
template <typename Enum>
std::vector<std::string> WordsOf(const Words& words, EnumSet<Enum> set) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < words.words.size(); ++i)
    if (set.Has(static_cast<Enum>(i))) found.emplace_back(words.words[i]);
  return found;
}

}  // namespace onepiece::identity
