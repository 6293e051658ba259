import Auth
import Bytes
import Crypto
import System
import TestSupport
import Testing

@testable import Gateway

@Suite(.within(minutes: 5)) struct BlocklistTests {
    private func claims(_ text: String) throws -> Claims {
        let json = Array("{\"role\":\"authenticated\",\"exp\":4000000000\(text)}".utf8)
        let token = Array(JWT.sign(claims: json.span, secret: Array("s".utf8).span).utf8)
        return try TokenVerifier(secret: "s", maximumBytes: 4096).verify(token.rawBytes, at: 1)
    }

    private func block(_ target: CutOffTarget, until: Int64 = 200) -> Blocklist.Block {
        Blocklist.Block(target, until: until, by: "ana@ops", reason: "ticket 17")
    }

    @Test func `a user or a login is blocked until the end, and nobody else`() throws {
        let list = Blocklist()
        try list.add(block(.user("7")), at: 100)
        try list.add(block(.login("s1"), until: 300), at: 100)
        #expect(list.end(for: try claims(#","sub":"7""#), at: 100) == 200)
        #expect(list.end(for: try claims(#","sub":"7""#), at: 200) == nil)
        #expect(list.end(for: try claims(#","sub":"8","session_id":"s1""#), at: 100) == 300)
        #expect(list.end(for: try claims(#","sub":"s1","session_id":"7""#), at: 100) == nil)
        #expect(list.end(for: try claims(""), at: 100) == nil)
        #expect(list.current(at: 100).map(\.target) == [.user("7"), .login("s1")])
        #expect(try list.remove(.user("7"), at: 100) && list.end(for: try claims(#","sub":"7""#), at: 100) == nil)
        #expect(try !list.remove(.user("7"), at: 100))
        // An ended block is forgotten, and ending it again is nothing.
        #expect(list.current(at: 300).isEmpty)
    }

    @Test func `blocks survive a restart, and a damaged record is not an empty list`() throws {
        let directory = MemoryDirectory()
        try Blocklist(in: directory).add(block(.user("é\"7")), at: 100)
        let restarted = try Blocklist(in: directory)
        #expect(restarted.current(at: 100) == [block(.user("é\"7"))])
        _ = try restarted.remove(.user("é\"7"), at: 100)
        #expect(try Blocklist(in: directory).current(at: 100).isEmpty)
        var bytes = Blocklist.encode([block(.login("s"))])
        bytes[bytes.count / 2] ^= 1
        try directory.replace(Blocklist.fileName, with: bytes.rawBytes)
        #expect(throws: (any Error).self) { try Blocklist(in: directory) }
        for count in 0..<bytes.count {
            try directory.replace(Blocklist.fileName, with: Array(bytes.prefix(count)).rawBytes)
            #expect(throws: (any Error).self) { try Blocklist(in: directory) }
        }
    }

    @Test func `a full list takes no more, and forgets nobody`() throws {
        let list = Blocklist()
        for number in 0..<Blocklist.maximumBlocks { try list.add(block(.user("\(number)")), at: 100) }
        #expect(throws: Blocklist.Failure.full) { try list.add(block(.user("more")), at: 100) }
        // One that is there may be prolonged.
        try list.add(block(.user("0"), until: 500), at: 100)
        #expect(list.end(for: try claims(#","sub":"0""#), at: 400) == 500)
        #expect(list.end(for: try claims(#","sub":"9999""#), at: 100) == 200)
        // After their end there is room again.
        try list.add(block(.user("more"), until: 500), at: 200)
    }
}
