import Bytes
import Crypto

/// SHA-256 of a token. The hub keeps it in memory in place of the token's text.
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

    /// Adds one word of the digest to the hash. One is sufficient, because the bits of a digest are as good as random.
    func hash(into hasher: inout Hasher) {
        hasher.combine(words[0])
    }
}
