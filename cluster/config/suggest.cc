#include "cluster/config/suggest.h"

#include <algorithm>
#include <numeric>

#include "cluster/base/utf8.h"

namespace onepiece::config {
namespace {

// Calculates Levenshtein's distance in one row of its table: row[j] is the distance of the first i
// characters of `a` and the first j of `b`.
std::size_t Distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string Quote(std::string_view text) {
  std::string quoted = "'";
  return quoted.append(base::ToUtf8(text, 64)).append("'");
}

std::string Suggest(std::string_view given, const std::vector<std::string>& known) {
  constexpr std::size_t kLongest = 64;
  std::size_t best = std::max<std::size_t>(1, given.size() / 3) + 1;
  std::string nearest;
  std::string all;
  for (const std::string& candidate : known) {
    all.append(all.empty() ? "" : ", ").append(candidate);
    if (given.size() > kLongest) continue;
    if (const std::size_t distance = Distance(given, candidate); distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  if (!nearest.empty()) return "; did you mean " + Quote(nearest) + "?";
  return known.empty() ? "" : "; known: " + all;
}

std::vector<std::string> FieldNames(const google::protobuf::Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

}  // namespace onepiece::config
