import Bytes
import Crypto

/// SHA-256 of a token, by which the hub remembers the token without its text.
struct TokenDigest: Sendable, Hashable {
    private let words: InlineArray<4, UInt64>

    init(of token: RawSpan) {
        let digest = SHA256.digest(of: Span(_bytes: token))
        words = InlineArray { index in
            digest[index * 8..<index * 8 + 8].reduce(0) { $0 << 8 | UInt64($1) }
        }
    }

    static func == (left: TokenDigest, right: TokenDigest) -> Bool {
        left.words.indices.allSatisfy { left.words[$0] == right.words[$0] }
    }

    /// Adds one word of the digest to the hash. The bits are as good as random, so all words would not spread better.
    func hash(into hasher: inout Hasher) {
        hasher.combine(words[0])
    }
}
