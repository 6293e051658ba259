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
        note.isRecorded = random.next() % 3 == 0
        (note.isPrivate, note.isDeaf) = (random.next() % 3 == 0, random.next() % 3 == 0)
        if random.next() % 3 == 0 { note.deliveries = text() }
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

    @Test func `only notes are passed over that are not wanted`() throws {
        var random = SeededRandom(seed: 7)
        var notes = (0..<40).map { _ in Self.some(&random) }
        notes[7].event = .delivered
        let bytes = Self.encoded(notes)
        let found = try LedgerCodec.decode(bytes.span.bytes) { $0 != .delivered }
        #expect(found == notes.filter { $0.event != .delivered } && found.count < notes.count)
    }

    /// Checks the format without recorded deliveries (version 1) and the current format (version 2).
    @Test func `an entry of version 1 stays what it is, and one of version 2 will`() throws {
        let first = """
            01 01000000 01 e803000000000000 0700000000000000 02000000 6400000000000000 0000000000000000
            04000000 726f6f6d 02000000 5b5d 04000000 616e6f6e 03000000 616e61 02000000 7b7d 00000000 00000000
            """
        var note = LedgerNote(.joined, time: 1000, session: 7, channel: 2, offset: 100)
        (note.topic, note.bindings, note.role) = (Array("room".utf8), Array("[]".utf8), Array("anon".utf8))
        (note.subject, note.claims) = (Array("ana".utf8), Array("{}".utf8))
        let ofFirst = try #require(Self.bytes(first))
        #expect(try LedgerCodec.decode(ofFirst.span.bytes) == [note])
        #expect(Self.encoded([note]) == ofFirst)
        note.isRecorded = true
        let second = "02" + first.dropFirst(2).replacing(" 01 e803", with: " 81 e803") + "01 00000000"
        let ofSecond = try #require(Self.bytes(second))
        #expect(try LedgerCodec.decode(ofSecond.span.bytes) == [note])
        #expect(Self.encoded([note]) == ofSecond)
        // An entry of one version is not accepted as an entry of the other.
        for mixed in [[2] + ofFirst.dropFirst(), [1] + ofSecond.dropFirst()] {
            #expect(throws: ByteError.self) { _ = try LedgerCodec.decode(mixed.span.bytes) }
        }
    }

    private static func bytes(_ hex: String) -> [UInt8]? {
        let digits = hex.filter(\.isHexDigit)
        return stride(from: 0, to: digits.count, by: 2).map { place in
            let start = digits.index(digits.startIndex, offsetBy: place)
            return UInt8(digits[start..<digits.index(start, offsetBy: 2)], radix: 16) ?? 0
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
