// The sizes in which attention is computed without keeping all scores. Private to stages/model.
#pragma once

#include <algorithm>
#include <cstdint>

namespace onepiece::model {

struct AttentionSlice {
  std::int64_t heads = 1, queries = 1;
};

/// The scores of one slice: 8 MB of F32, which a processor's caches hold. The number also fixes the
/// order of sums, so it may not depend on the machine.
inline constexpr std::int64_t kScoresPerSlice = 2 << 20;
/// For OnlineAttention, which passes over the scores more often: half a megabyte.
inline constexpr std::int64_t kScoresPerOnlineSlice = 1 << 17;

/// Returns how many heads and queries are computed at a time, for `most` scores.
inline AttentionSlice SliceOf(std::int64_t heads, std::int64_t queries, std::int64_t keys,
                              std::int64_t most) {
  constexpr std::int64_t kFewestQueries = 64;  // Products of fewer rows are slow.
  const std::int64_t rows = std::clamp(most / keys, std::min(kFewestQueries, queries), queries);
  return {std::clamp<std::int64_t>(most / (rows * keys), 1, heads), rows};
}

}  // namespace onepiece::model
