// The sizes in which attention is computed without keeping all scores. Private to stages/model.
#pragma once

#include <algorithm>
#include <cstdint>

namespace onepiece::model {

struct AttentionSlice {
  std::int64_t heads = 1, queries = 1;
};

/// Returns how many heads and queries are computed at a time.
inline AttentionSlice SliceOf(std::int64_t heads, std::int64_t queries, std::int64_t keys) {
  // The scores of one slice: 8 MB of F32, which a processor's caches hold. The number also fixes
  // the order of sums, so it may not depend on the machine.
  constexpr std::int64_t kScores = 2 << 20;
  constexpr std::int64_t kFewestQueries = 64;  // Products of fewer rows are slow.
  const std::int64_t rows = std::clamp(kScores / keys, std::min(kFewestQueries, queries), queries);
  return {std::clamp<std::int64_t>(kScores / (rows * keys), 1, heads), rows};
}

}  // namespace onepiece::model
