// What both ends of a connection make of the messages of the other one. It knows nothing of UCX, so
// that any bytes can be given to it. Internal to the backend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "cluster/fabric/fabric.h"
#include "cluster/fabric/ucx/ucx_seal.h"
#include "cluster/fabric/ucx/ucx_wire.h"

namespace onepiece::fabric {

/// The owner's view of one peer. It checks each operation against the region and carries it out.
///
/// Threading: one thread at a time.
class UcxSession {
 public:
  /// Borrows the region's memory.
  UcxSession(UcxAgreement agreement, std::span<std::byte> region, Rights rights)
      : agreement_(std::move(agreement)), region_(region), rights_(rights) {}

  /// The peer is welcome when its hello shows that it knows the agreement. Only one ever is: a
  /// second one could not be fenced without the first. nullopt: no answer, because too many hellos
  /// were wrong.
  std::optional<UcxAnswerToHello> Judge(std::string_view hello);
  [[nodiscard]] bool welcomed() const { return opener_.has_value(); }

  /// What the owner has to do after an operation.
  struct Outcome {
    UcxOp op;
    bool rings = false;    ///< It rings the doorbell.
    bool answers = false;  ///< It answers with `bytes`.
    /// Valid until the next call. Those of a read lie in the region.
    std::span<const std::byte> bytes;
  };
  /// Executes an operation. After the first that breaks the rules it executes nothing more and
  /// answers only ends, so that the peer need not wait for its deadline. A message that is not the
  /// peer's next frame breaks the rules too; it is answered once, and nothing after it.
  Outcome Take(std::span<const std::byte> header, std::span<const std::byte> payload);
  /// The peer has broken the rules outside of its operations.
  void Refuse() { refused_ = true; }
  [[nodiscard]] bool refused() const { return refused_; }
  /// Seals an answer, and encrypts `bytes` in place if the protection says so. Answers must be sent
  /// in the order in which they are sealed. REQUIRES: welcomed().
  UcxSealedHeader Seal(const UcxAnswer& answer, std::span<std::byte> bytes);

 private:
  [[nodiscard]] bool Allowed(const UcxOp& op, std::uint64_t payload_bytes) const;
  Outcome Execute(const UcxOp& op, std::span<const std::byte> payload);
  std::optional<UcxAnswerToHello> RefuseHello(UcxVerdict verdict);

  const UcxAgreement agreement_;
  const std::span<std::byte> region_;
  const Rights rights_;
  int refused_hellos_ = 0;
  std::optional<UcxOpener> opener_;  // Empty until the peer is welcome, as sealer_.
  std::optional<UcxSealer> sealer_;
  bool refused_ = false;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t old_value_ = 0;  // Outcome::bytes of an atomic operation.
};

/// The chain that the dialling end has under way: what it expects of the owner's answers.
///
/// Threading: one thread at a time.
class UcxChain {
 public:
  /// Borrows the operations and the memory to which they refer until the next call.
  void Begin(std::span<const Op> ops);
  /// No answer writes into the memory of a chain that is over.
  void Finish() { ops_ = {}; }
  /// Counts bytes that the owner has been asked for.
  void Expect(std::uint64_t bytes) { missing_bytes_ += bytes; }
  /// The same for a piece of a long read: of operation `index`, from the byte `at` on. REQUIRES: no
  /// bytes are missing, because an answer names its operation and not its piece.
  void ExpectPiece(std::size_t index, std::uint64_t at, std::uint64_t bytes);
  /// Takes an answer. Returns false when it does not answer the chain under way.
  bool Take(std::span<const std::byte> header, std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t number() const { return number_; }
  /// How many bytes the owner has been asked for and has not sent yet.
  [[nodiscard]] std::uint64_t missing_bytes() const { return missing_bytes_; }
  [[nodiscard]] bool ended() const { return ended_; }

 private:
  std::span<const Op> ops_;
  std::uint64_t number_ = 0;
  std::uint64_t missing_bytes_ = 0;
  // The piece of a long read that is under way: of which operation, and where it begins in it.
  std::size_t piece_of_ = 0;
  std::uint64_t piece_at_ = 0;
  bool ended_ = false;  // The owner has executed the chain.
};

}  // namespace onepiece::fabric
