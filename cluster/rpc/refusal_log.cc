#include "cluster/rpc/refusal_log.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace onepiece::rpc {
namespace {

/// One word that stays one word.
std::string Word(std::string_view text) {
  std::string word(text.substr(0, RefusalLog::kMaxText));
  std::ranges::replace_if(
      word, [](unsigned char c) { return !absl::ascii_isgraph(c) || c == '"' || c == '='; }, '?');
  return word;
}

}  // namespace

std::optional<std::string> RefusalLog::Line(std::string_view caller, std::string_view path,
                                            std::string_view reason, base::MonotonicTime now) {
  const base::MutexLock lock(mutex_);
  if (lines_.Take(kLinesPerS, kBurst, now) > base::Duration::zero()) {
    ++left_out_;
    return std::nullopt;
  }
  std::string line = absl::StrCat("op=refuse caller=", Word(caller), " method=", Word(path),
                                  " reason=", Word(reason));
  if (left_out_ > 0) absl::StrAppend(&line, " left_out=", left_out_);
  left_out_ = 0;
  return line;
}

}  // namespace onepiece::rpc
