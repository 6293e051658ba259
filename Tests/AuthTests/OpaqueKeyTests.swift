import Bytes
import TestSupport
import Testing

@testable import Auth

@Suite(.within(minutes: 5)) struct OpaqueKeyTests {
    private let verifier = TokenVerifier(opaqueKeys: [
        "sb_publishable_x": .role("anon"), "sb_secret_y": OpaqueKey("service_role"),
        "sb_secret_z": OpaqueKey(Token.signed(Token.user)), "sb_secret_bad": .token("a.b.c"),
    ])

    @Test func `a key that stands for a role has claims of its own and no end`() throws {
        let claims = try verifier.verify("sb_publishable_x")
        #expect(claims.roleText == "anon")
        #expect(claims.jsonText == #"{"role":"anon","exp":253402300799}"#)
        #expect(claims.expiry == Claims.latestExpiry)
        #expect(try verifier.verify("sb_secret_y").roleText == "service_role")
    }

    @Test func `a key that stands for a token is good as long as the token is`() throws {
        #expect(try verifier.verify("sb_secret_z").jsonText == Token.user)
        #expect(verifier.refusal("sb_secret_z", at: 1_800_000_700) == .expired(secondsAgo: 100))
        #expect(verifier.refusal("sb_secret_bad") == .malformed)
    }

    @Test(arguments: ["sb_publishable_", "sb_publishable_xx", "SB_publishable_x", "sb_other", "sb_publishable_x "])
    func `an unknown key is no token`(key: String) {
        #expect(verifier.refusal(key) == .malformed)
    }

    @Test(arguments: [("sb_x", true), ("sb_", true), ("sb", false), ("", false), ("eyJ", false), ("SB_x", false)])
    func `is known by its first letters`(text: String, isOne: Bool) {
        let bytes = Array(text.utf8)
        let found = OpaqueKey.isOne(bytes.span.bytes)
        #expect(found == isOne)
    }
}

@Suite(.within(minutes: 5)) struct TokenCacheTests {
    @Test func `remembers what is good and still looks at its end`() throws {
        var cache = TokenCache(TokenVerifier(), capacity: 4)
        let token = Array(Token.signed(Token.user).utf8)
        let first = try cache.verify(token.span.bytes, at: now)
        let second = try cache.verify(token.span.bytes, at: now + 1)
        #expect(cache.count == 1)
        #expect(first.jsonText == second.jsonText)
        #expect(first.areFromText(token) && !first.areFromText(token + [32]))
        #expect(refusal(&cache, token, at: 1_800_000_600) == .expired(secondsAgo: 0))
        #expect(refusal(&cache, token, at: 1_800_000_599) == nil)
    }

    @Test func `remembers nothing that is refused`() {
        var cache = TokenCache(TokenVerifier(), capacity: 4)
        for number in 0..<10 {
            #expect(refusal(&cache, Array("a.b.\(number)".utf8), at: now) == .malformed)
        }
        let long = [UInt8](repeating: 97, count: tokenLimit + 1)
        #expect(refusal(&cache, long, at: now) == .malformed)
        #expect(cache.count == 0)
    }

    @Test func `keeps to its size and to what is used`() throws {
        var cache = TokenCache(TokenVerifier(), capacity: 4)
        let used = Array(Token.signed(Token.user).utf8)
        _ = try cache.verify(used.span.bytes, at: now)
        for number in 0..<100 {
            let token = Array(Token.signed("{\"role\":\"r\(number)\",\"exp\":1800000600}").utf8)
            _ = try cache.verify(token.span.bytes, at: now)
            _ = try cache.verify(used.span.bytes, at: now)
            #expect(cache.count <= 8)
        }
        #expect(cache.count >= 4)
        let remembersUsed = cache.remembers(used)
        let remembersOld = cache.remembers(Array(Token.signed(#"{"role":"r0","exp":1800000600}"#).utf8))
        #expect(remembersUsed && !remembersOld)
    }

    private func refusal(_ cache: inout TokenCache, _ token: [UInt8], at moment: Int64) -> TokenError? {
        do throws(TokenError) {
            _ = try cache.verify(token.span.bytes, at: moment)
            return nil
        } catch {
            return error
        }
    }
}

extension Claims {
    fileprivate func areFromText(_ token: [UInt8]) -> Bool { areFrom(token.span.bytes) }
}

extension TokenCache {
    fileprivate func remembers(_ token: [UInt8]) -> Bool {
        holds(TokenDigest(of: token.span.bytes))
    }
}
