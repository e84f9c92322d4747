// The T5 tokenizer of the Wan models: cleaned prompt → token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::wan {

class SentencePieces;

/// Length that the Wan pipelines pad text embeddings to, in tokens.
inline constexpr int kMaxSequenceLength = 512;

/// A sentencepiece model with T5's conventions: pad 0, eos 1, unk 2, "</s>" appended. Special
/// tokens spelled out in a prompt are plain text here. Movable; const methods are thread-safe.
class Tokenizer {
 public:
  /// Reads `directory`/spiece.model. Errors: NOT_FOUND, INVALID_ARGUMENT (no sentencepiece model,
  /// or one with other special ids).
  static absl::StatusOr<Tokenizer> Load(const std::string& directory);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Cleans `prompt` (CleanPrompt) and returns its ids, cut to `max_length` with the eos that ends
  /// them. REQUIRES: max_length >= 1. Errors: those of CleanPrompt.
  [[nodiscard]] absl::StatusOr<std::vector<std::int64_t>> Encode(
      std::string_view prompt, int max_length = kMaxSequenceLength) const;
  /// Number of ids.
  [[nodiscard]] int size() const;

 private:
  explicit Tokenizer(std::unique_ptr<const SentencePieces> pieces);
  std::unique_ptr<const SentencePieces> pieces_;
};

}  // namespace onepiece::wan
