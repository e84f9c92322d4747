#include "stages/model/tokenizer.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "cluster/base/check.h"
#include "cluster/base/status.h"
#include "stages/model/sentence_pieces.h"

namespace onepiece::model {
namespace {

constexpr int kPadId = 0, kEosId = 1, kUnknownId = 2;
constexpr std::uintmax_t kMaxModelBytes = std::uintmax_t{256} << 20;

absl::Status BadTokenizer(const std::string& path, const std::string& why) {
  return base::MakeError(absl::StatusCode::kInvalidArgument, "BAD_TOKENIZER", path + ": " + why);
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const SentencePieces> pieces) : pieces_(std::move(pieces)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

absl::StatusOr<Tokenizer> Tokenizer::Load(const std::string& directory) {
  const std::string path = directory + "/spiece.model";
  std::error_code no_size;
  const std::uintmax_t bytes = std::filesystem::file_size(path, no_size);
  std::ifstream file(path, std::ios::binary);
  if (no_size || !file) {
    return base::MakeError(absl::StatusCode::kNotFound, "TOKENIZER_NOT_FOUND",
                           "cannot read " + path);
  }
  if (bytes > kMaxModelBytes) return BadTokenizer(path, "too large for a sentencepiece model");
  const std::string model{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};

  auto pieces = SentencePieces::Parse(model);
  if (!pieces.ok()) return base::Annotate(pieces.status(), path);
  using Type = SentencePieces::Type;
  if (pieces->size() <= kUnknownId || pieces->type(kPadId) != Type::kControl ||
      pieces->type(kEosId) != Type::kControl || pieces->piece(kEosId) != "</s>" ||
      pieces->type(kUnknownId) != Type::kUnknown) {
    return BadTokenizer(path, "pad, </s> and unk are not pieces 0, 1 and 2, as T5 has them");
  }
  return Tokenizer(std::make_unique<const SentencePieces>(std::move(*pieces)));
}

std::vector<std::int64_t> Tokenizer::Encode(std::string_view text, int max_length) const {
  ONEPIECE_CHECK(max_length >= 1);
  std::vector<int> pieces = pieces_->Encode(text);
  if (pieces.size() >= static_cast<std::size_t>(max_length))
    pieces.resize(static_cast<std::size_t>(max_length) - 1);
  std::vector<std::int64_t> ids(pieces.begin(), pieces.end());
  ids.push_back(kEosId);
  return ids;
}

int Tokenizer::size() const { return pieces_->size(); }

}  // namespace onepiece::model
