import Bytes
import Change
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct LedgerCodecTests {
    private static func some(_ random: inout SeededRandom) -> LedgerNote {
        func text() -> [UInt8] {
            (0..<Int(random.next() % 20)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
        }
        var note = LedgerNote(
            random.pick(LedgerNote.Event.allCases), time: Int64(bitPattern: random.next()), session: random.next(),
            channel: UInt32(truncatingIfNeeded: random.next()), offset: random.next(), received: random.next())
        (note.topic, note.bindings, note.role, note.subject) = (text(), text(), text(), text())
        (note.claims, note.otherClaims, note.reason) = (text(), text(), text())
        return note
    }

    private static func encoded(_ notes: [LedgerNote]) -> [UInt8] {
        var writer = ByteWriter()
        LedgerCodec.encode(notes, to: &writer)
        return writer.copied()
    }

    @Test(arguments: seeds(20))
    func `comes back as it was, takes the room it says, and refuses what is cut or longer`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let notes = (0..<Int(random.next() % 5)).map { _ in Self.some(&random) }
        let bytes = Self.encoded(notes)
        #expect(try LedgerCodec.decode(bytes.span.bytes) == notes)
        #expect(bytes.count == Self.encoded([]).count + notes.reduce(0) { $0 + $1.byteCount })
        for count in 0..<bytes.count {
            #expect(throws: ByteError.self) { _ = try LedgerCodec.decode(Array(bytes.prefix(count)).span.bytes) }
        }
        #expect(throws: ByteError.self) { _ = try LedgerCodec.decode((bytes + [0]).span.bytes) }
    }

    @Test(arguments: seeds(20)) func `whatever the bytes are, it answers or refuses`(_ seed: Seed) {
        var random = SeededRandom(seed: seed)
        for _ in 0..<200 {
            var bytes = Self.encoded([Self.some(&random), Self.some(&random)])
            for _ in 0..<3 {
                bytes[Int(random.next() % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: random.next())
            }
            _ = try? LedgerCodec.decode(bytes.span.bytes)
        }
    }

    @Test func `is found by its socket and its user`() {
        var note = LedgerNote(.joined, time: 1, session: 7, channel: 2)
        #expect(note.keys == [RowKey.ledger, RowKey.ledger(session: 7)])
        note.subject = Array("ana".utf8)
        #expect(note.keys.last == RowKey.ledger(subject: Array("ana".utf8)))
        #expect(Set(note.keys).count == 3)
    }
}
