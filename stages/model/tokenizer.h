// T5's tokenizer: text → token ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace onepiece::model {

class SentencePieces;

/// A sentencepiece model with T5's conventions: pad 0, eos 1, unk 2, "</s>" appended. Special
/// tokens spelled out in a prompt are plain text here.
///
/// Threading: const methods may be called from any thread.
class Tokenizer {
 public:
  /// Reads `directory`/spiece.model.
  ///
  /// Errors: NOT_FOUND, INVALID_ARGUMENT (no sentencepiece model, or one with other special ids).
  static absl::StatusOr<Tokenizer> Load(const std::string& directory);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Returns the ids of `text` (cleaned by CleanPrompt where the model wants that), cut to
  /// `max_length` including the eos that ends them.
  ///
  /// REQUIRES: max_length >= 1.
  [[nodiscard]] std::vector<std::int64_t> Encode(std::string_view text, int max_length) const;
  /// Returns the number of ids.
  [[nodiscard]] int size() const;

 private:
  explicit Tokenizer(std::unique_ptr<const SentencePieces> pieces);
  std::unique_ptr<const SentencePieces> pieces_;
};

}  // namespace onepiece::model
