import Bytes
import Change
import TestSupport
import Testing

@testable import Replication

@Suite(.within(minutes: 5)) struct DecoderRefusalTests {
    @Test(arguments: Golden.plain)
    func `every truncation is refused`(message: [UInt8]) {
        for length in 0..<message.count {
            #expect(throws: ByteError.self, "cut to \(length) bytes") { try check(Array(message[..<length])) }
        }
    }

    @Test(arguments: Golden.streamed)
    func `every truncation inside a block is refused`(message: [UInt8]) {
        for length in 0..<message.count {
            #expect(throws: ByteError.self, "cut to \(length) bytes") {
                try check(Array(message[..<length]), inBlock: true)
            }
        }
    }

    @Test(arguments: Golden.plain)
    func `a byte too many is refused`(message: [UInt8]) {
        #expect(throws: ByteError.self) { try check(message + [0]) }
    }

    @Test(arguments: Golden.streamed)
    func `a byte too many inside a block is refused`(message: [UInt8]) {
        #expect(throws: ByteError.self) { try check(message + [0], inBlock: true) }
    }

    @Test func `what is no message is refused`() {
        for kind in UInt8.min...UInt8.max where !"BCOIUDRYTMSEcA".utf8.contains(kind) {
            #expect(throws: ByteError.self) { try check([kind] + [UInt8](repeating: 0, count: 40)) }
        }
    }

    @Test func `unknown marks inside a message are refused`() {
        refuse(PgOutput.insert(1, [nil]), replacing: 5, by: "O", "an insert with an old row")
        refuse(PgOutput.delete(1, .key([nil])), replacing: 5, by: "N", "a delete with a new row")
        refuse(PgOutput.update(1, [nil]), replacing: 5, by: "X", "an update with neither")
        refuse(PgOutput.update(1, old: .key([nil]), [nil]), replacing: 9, by: "K", "an update with two old rows")
        refuse(PgOutput.insert(1, [nil]), replacing: 8, by: "x", "a column of no known kind")
        refuse(PgOutput.relation(1, schema: "s", "t", []), replacing: 9, by: "x", "a replica identity of no known kind")
    }

    @Test func `lengths beyond the message are refused, not believed`() {
        #expect(throws: ByteError.self) { try check(Golden.hex("54 FFFFFFFF 00 00000001")) }
        #expect(throws: ByteError.self) { try check(Golden.hex("49 00004001 4E FFFF 6E")) }
        #expect(throws: ByteError.self) { try check(Golden.hex("49 00004001 4E 0001 74 FFFFFFFF 31")) }
        #expect(throws: ByteError.self) { try check(Golden.hex("49 00004001 4E 0001 74 7FFFFFFF 31")) }
        #expect(throws: ByteError.self) { try check(Golden.hex("4D 00 0000000000000000 00 FFFFFFFF 31")) }
        #expect(throws: ByteError.self) { try check(Golden.hex("52 00004001 00 74 00 64 FFFF 00")) }
    }

    @Test func `a name longer than any name is refused`() throws {
        let name = String(repeating: "n", count: 70_000)
        for message in [
            PgOutput.relation(1, name, []), PgOutput.relation(1, schema: name, "t", []),
            PgOutput.relation(1, "t", [.init(name)]), PgOutput.type(1, name),
        ] {
            #expect(throws: ByteError.self) { try check(message) }
        }
        // The longest name possible in PostgreSQL: 63 characters of four bytes each, in its widest encoding.
        try check(PgOutput.relation(1, String(repeating: "🌊", count: 63), []))
    }

    @Test func `a message outside its block is not read as one inside`() throws {
        try check([Golden.streamStart, Golden.streamedInsert, Golden.streamStop, Golden.insert])
        #expect(throws: ByteError.self) {
            try check([Golden.streamStart, Golden.streamStop, Golden.streamedInsert])
        }
    }

    @Test(arguments: seeds(20))
    func `a mutated message is read or refused`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        for _ in 0..<2000 {
            let isInBlock = Bool.random(using: &random)
            let message = mutated(
                (isInBlock ? Golden.streamed : Golden.plain).randomElement(using: &random) ?? [], &random)
            try? check(message, inBlock: isInBlock)
        }
    }

    // MARK: Asking

    func check(_ message: [UInt8], inBlock: Bool = false) throws {
        try check(inBlock ? [Golden.streamStart, message] : [message])
    }

    func check(_ conversation: [[UInt8]]) throws {
        var decoder = PgOutputDecoder()
        for message in conversation { try decoder.check(message.span.bytes) }
    }

    func refuse(_ message: [UInt8], replacing index: Int, by mark: Character, _ what: Comment) {
        var message = message
        #expect(throws: Never.self, what) { try check(message) }
        message[index] = mark.asciiValue ?? 0
        #expect(throws: ByteError.self, what) { try check(message) }
    }
}

/// Returns the message with a few bytes changed, dropped or doubled.
func mutated(_ message: [UInt8], _ random: inout SeededRandom) -> [UInt8] {
    var bytes = message
    for _ in 0..<Int.random(in: 1...4, using: &random) {
        guard let index = bytes.indices.randomElement(using: &random) else { return bytes }
        switch UInt8.random(in: 0...3, using: &random) {
        case 0: bytes[index] = UInt8.random(in: 0...255, using: &random)
        case 1: bytes[index] ^= 1 << UInt8.random(in: 0...7, using: &random)
        case 2: bytes.remove(at: index)
        default: bytes.insert(bytes[index], at: index)
        }
    }
    return bytes
}
