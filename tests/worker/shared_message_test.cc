#include "stages/worker/shared_message.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "tests/reason.h"
#include "tests/test_main.h"

namespace onepiece::worker {

class SharedMessageTest : public QObject {
  Q_OBJECT

  static message::Message Work() {
    message::Message work;
    work.header.uid = base::Uid::GenerateRandom();
    work.parameters = {{"steps", std::int64_t{4}}, {"prompt", std::string("a cat")}};
    work.artifacts = {message::BytesArtifact("in", "text/plain", "hello"),
                      {.name = "latents",
                       .dtype = message::DType::kF32,
                       .shape = {2, 3},
                       .data = message::Buffer::FromString(std::string(24, '\1'))}};
    return work;
  }
  static base::MonotonicTime Now() { return base::SystemClock().Now(); }

 private Q_SLOTS:
  void AMessage_IsTheSameAtItsReaders() {
    const message::Message work = Work();
    auto shared = Share(work, Now());
    QVERIFY2(shared.ok(), shared.status().ToString().c_str());
    for (int reader = 0; reader < 2; ++reader) {
      const auto got = Map(shared->memory, shared->bytes, Now());
      QVERIFY2(got.ok(), got.status().ToString().c_str());
      QVERIFY(got->header.uid == work.header.uid);
      QVERIFY(got->parameters == work.parameters);
      QCOMPARE(got->artifacts.size(), std::size_t{2});
      QCOMPARE(got->artifacts[1].data.text(), work.artifacts[1].data.text());
    }
  }

  void Artifacts_KeepTheMemory() {
    message::Artifact artifact;
    {
      auto shared = Share(Work(), Now());
      QVERIFY(shared.ok());
      artifact = Map(shared->memory, shared->bytes, Now())->artifacts[0];
    }
    QCOMPARE(artifact.data.text(), std::string_view("hello"));
  }

  void MemoryThatMayChange_IsRefused() {
    auto shared = Share(Work(), Now());
    QVERIFY(shared.ok());
    QVERIFY(::write(shared->memory.get(), "x", 1) < 0);
    QVERIFY(::ftruncate(shared->memory.get(), 1) < 0);
    std::string copy(shared->bytes, '\0');
    QCOMPARE(::pread(shared->memory.get(), copy.data(), copy.size(), 0), ssize_t(copy.size()));
    const FileDescriptor open(::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    QCOMPARE(::write(open.get(), copy.data(), copy.size()), ssize_t(copy.size()));
    QCOMPARE(Reason(Map(open, copy.size(), Now()).status()), std::string("MALFORMED_MESSAGE"));
  }

  void WrongSizes_AreRefused() {
    auto shared = Share(Work(), Now());
    QVERIFY(shared.ok());
    for (const std::uint64_t bytes : {std::uint64_t{0}, shared->bytes / 2, shared->bytes + 1}) {
      QCOMPARE(Reason(Map(shared->memory, bytes, Now()).status()),
               std::string("MALFORMED_MESSAGE"));
    }
    QCOMPARE(Reason(Map(FileDescriptor(), 10, Now()).status()), std::string("MALFORMED_MESSAGE"));
  }
};

}  // namespace onepiece::worker

ONEPIECE_TEST(onepiece::worker::SharedMessageTest)
#include "shared_message_test.moc"
