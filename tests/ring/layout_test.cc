#include "cluster/ring/layout.h"

#include <QtTest>
#include <algorithm>

#include "cluster/base/status.h"
#include "cluster/ring/grant.h"
#include "cluster/ring/options.h"
#include "tests/test_main.h"

namespace onepiece::ring {

class LayoutTest : public QObject {
  Q_OBJECT
 private Q_SLOTS:
  void Decode_ReturnsWhatEncodeWrote() {
    const Tail tail{.seq = 5, .offset = 640};
    QVERIFY(DecodeTail(EncodeTail(tail)) == tail);
    const Head head{.seq = 4,
                    .offset = 64,
                    .generation = Generation(9),
                    .capacity_bytes = 4096,
                    .slots = 8,
                    .flags = 1};
    QVERIFY(DecodeHead(EncodeHead(head)) == head);
    const Slot slot{.seq = 3,
                    .offset = 128,
                    .length_bytes = 77,
                    .message_id = ~std::uint64_t{0},
                    .generation = Generation(2),
                    .owner = 65535,
                    .state = SlotState::kCommitted,
                    .payload_crc32c = 0xdeadbeef};
    QVERIFY(DecodeSlot(EncodeSlot(slot)) == slot);
    Slot unchecked = slot;
    unchecked.payload_checked = false;
    QVERIFY(DecodeSlot(EncodeSlot(unchecked)) == unchecked);
    QVERIFY(EncodeSlot(unchecked) != EncodeSlot(slot));
  }

  // The check recognises every mix of two valid slots, unless the mix equals one of them.
  void DecodeSlot_RefusesEveryMixOfTwoSlots() {
    const auto old_words = EncodeSlot({.seq = 3,
                                       .offset = 64,
                                       .length_bytes = 9,
                                       .message_id = 1,
                                       .generation = Generation(1),
                                       .owner = 1,
                                       .state = SlotState::kReserved});
    const auto new_words = EncodeSlot({.seq = 11,
                                       .offset = 4160,
                                       .length_bytes = 19,
                                       .message_id = 2,
                                       .generation = Generation(1),
                                       .owner = 2,
                                       .state = SlotState::kCommitted,
                                       .payload_crc32c = 5});
    int refused = 0;
    for (unsigned mask = 0; mask < 256; ++mask) {
      SlotWords mix;
      for (unsigned i = 0; i < 8; ++i) mix[i] = (mask >> i & 1) != 0 ? new_words[i] : old_words[i];
      if (mix == old_words || mix == new_words) continue;
      QVERIFY(!DecodeSlot(mix).has_value());
      ++refused;
    }
    QVERIFY(refused >= 126);  // The generation is the same in both.
  }

  void Decode_RefusesZeroedMemoryAndOtherLines() {
    QVERIFY(!DecodeTail(TailWords{}).has_value());
    QVERIFY(!DecodeHead(HeadWords{}).has_value());
    QVERIFY(!DecodeSlot(SlotWords{}).has_value());
    // The six words of a head with a check that was made like a tail's.
    HeadWords words = EncodeHead({.seq = 1, .offset = 64});
    words[6] = (words[6] & 0xffffffff) | (EncodeTail({})[2] & ~std::uint64_t{0xffffffff});
    QVERIFY(!DecodeHead(words).has_value());
  }

  void DecodeSlot_RefusesStatesThatDoNotExist() {
    for (int state = 0; state < 256; ++state) {
      const auto words = EncodeSlot({.seq = 1, .state = static_cast<SlotState>(state)});
      QCOMPARE(DecodeSlot(words).has_value(), state >= 1 && state <= 3);
    }
  }

  void LockWord_NamesItsOwner() {
    QCOMPARE(LockOwner(LockWord(513, 7)), std::uint16_t{513});
    QVERIFY(LockWord(0, 1) != 0);
    QVERIFY(LockWord(3, 5) != LockWord(3, 6));
  }

  void Layout_KeepsItsPartsApart() {
    const Layout layout{.capacity_bytes = 4096, .slots = 9};
    QVERIFY(layout.Valid());
    QVERIFY(layout.SlotOffset(8) + kLineBytes <= layout.BufferOffset());
    QCOMPARE(layout.SlotOffset(9), layout.SlotOffset(0));
    QCOMPARE(layout.BufferOffset() % kBufferAlignBytes, std::uint64_t{0});
    QCOMPARE(layout.PayloadOffset(4096 + 64), layout.BufferOffset() + 64);
    QCOMPARE(layout.RegionBytes(), layout.BufferOffset() + 4096);
    QCOMPARE(Layout::Footprint(1), std::uint64_t{64});
    QCOMPARE(Layout::Footprint(128), std::uint64_t{128});
  }

  void Valid_RefusesGeometryOutOfBounds() {
    const auto valid = [](std::uint64_t capacity, std::uint32_t slots) {
      return Layout{.capacity_bytes = capacity, .slots = slots}.Valid();
    };
    QVERIFY(!valid(4095, 8));
    QVERIFY(!valid(4096 + 8, 8));
    QVERIFY(!valid(4096, 3));
    QVERIFY(!valid(4096, 65537));
    QVERIFY(!valid(std::uint64_t{1} << 41, 8));
  }

  void Grant_ParsesOnlyItself() {
    const Layout layout{.capacity_bytes = 8192, .slots = 16};
    const ProducerGrant grant{.region = {.backend = "shm",
                                         .address = "/onepiece.c.1-1-1.r",
                                         .length_bytes = layout.RegionBytes(),
                                         .key = 3},
                              .owner = 7,
                              .generation = Generation(12),
                              .capacity_bytes = 8192,
                              .slots = 16};
    const std::string bytes = grant.Serialize();
    auto parsed = ProducerGrant::Parse(bytes);
    QVERIFY(parsed.ok());
    QVERIFY(parsed->region == grant.region);
    QCOMPARE(parsed->owner, grant.owner);
    QCOMPARE(parsed->generation, grant.generation);
    QCOMPARE(parsed->capacity_bytes, grant.capacity_bytes);
    QCOMPARE(parsed->slots, grant.slots);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      QCOMPARE(base::GetReason(ProducerGrant::Parse(bytes.substr(0, size)).status()).reason,
               std::string("MALFORMED_GRANT"));
    }
    auto lying = grant;
    lying.capacity_bytes = 16384;  // More than the region holds.
    QVERIFY(!ProducerGrant::Parse(lying.Serialize()).ok());
    lying = grant;
    lying.slots = 0;
    QVERIFY(!ProducerGrant::Parse(lying.Serialize()).ok());
  }

  void Timeouts_GrowWithLengthAndScale() {
    Timeouts timeouts;
    timeouts.scale = 2;
    QVERIFY(timeouts.Lock() == 2 * timeouts.lock);
    QVERIFY(timeouts.Fill(0) == 2 * timeouts.fill_base);
    QVERIFY(timeouts.Fill(timeouts.fill_floor_bytes_per_second) ==
            2 * (timeouts.fill_base + base::Duration(std::chrono::seconds(1))));
  }
};

}  // namespace onepiece::ring

ONEPIECE_TEST(onepiece::ring::LayoutTest)
#include "layout_test.moc"
