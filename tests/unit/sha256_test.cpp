// SPDX-License-Identifier: BSD-3-Clause
// sha256_test.cpp — the examples of FIPS 180-4 and every length around the block, against OpenSSL's
// results.
#include "core/sha256.h"

#include <gtest/gtest.h>

namespace fa3 {
namespace {

std::string sha256(std::string_view bytes) { return hex(Sha256().update(bytes).finish()); }

TEST(Sha256, Examples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// The digest of the digests of messages of 0…299 bytes: every place where padding can fall.
TEST(Sha256, EveryLength) {
  Sha256 all;
  for (int size = 0; size < 300; ++size) {
    std::string message;
    for (int i = 0; i < size; ++i) message += static_cast<char>(i * 7 + size);
    const Sha256::Digest digest = Sha256().update(message).finish();
    all.update({reinterpret_cast<const char*>(digest.data()), digest.size()});
  }
  EXPECT_EQ(hex(all.finish()), "d5238871a46ac4a1a75ac3fb19d645b0b3b9e5f35f5f720e2b240d605c6b694e");
}

TEST(Sha256, Pieces_AreTheWhole) {
  const std::string message(200, 'x');
  for (size_t cut = 0; cut <= message.size(); ++cut) {
    Sha256 hash;
    hash.update(message.substr(0, cut)).update(message.substr(cut));
    EXPECT_EQ(hex(hash.finish()), sha256(message)) << cut;
  }
}

TEST(Sha256, Fields_DoNotRunTogether) {
  const auto fields = [](std::string_view a, std::string_view b) {
    return hex(Sha256().update_field(a).update_field(b).finish());
  };
  EXPECT_NE(fields("ab", "c"), fields("a", "bc"));
  EXPECT_NE(fields("", "a"), fields("a", ""));
}

}  // namespace
}  // namespace fa3
