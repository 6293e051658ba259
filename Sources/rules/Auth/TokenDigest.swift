import Bytes
import Crypto

/// What a token is remembered by instead of its text: its SHA-256.
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

    /// Its bits are as good as random, so one word of them spreads as well as all.
    func hash(into hasher: inout Hasher) {
        hasher.combine(words[0])
    }
}
