import Bytes
import Change
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct CatalogRecordTests {
    private static func some(_ random: inout SeededRandom) -> CatalogRecord {
        func text() -> String {
            String((0..<Int(random.next() % 12)).map { _ in random.pick(["a", "é", "\"", "\0", "✓"]) }.joined())
        }
        func few<T>(_ make: () -> T) -> [T] { (0..<Int(random.next() % 4)).map { _ in make() } }
        let answers = few {
            CatalogRecord.Answer(
                question: random.next(), failure: random.next() % 3 == 0 ? "42501" : nil,
                rows: few { few { random.next() % 3 == 0 ? nil : text() } })
        }
        return CatalogRecord(
            time: Int64(bitPattern: random.next()), since: random.next(), unknownFrom: random.next(),
            serverVersion: UInt32(truncatingIfNeeded: random.next()), publication: text(),
            awaited: few { UInt32(truncatingIfNeeded: random.next()) }, roles: few(text), answers: answers)
    }

    private static func encoded(_ records: [CatalogRecord]) -> [UInt8] {
        var writer = ByteWriter()
        CatalogRecordCodec.encode(records, to: &writer)
        return writer.copied()
    }

    @Test func `a record with more roles agrees with the one before, one with another policy does not`() {
        func record(_ answers: [(UInt64, String)]) -> CatalogRecord {
            CatalogRecord(
                time: 1, since: 1, unknownFrom: 1, serverVersion: 150_000, publication: "p", awaited: [], roles: [],
                answers: answers.map { CatalogRecord.Answer(question: $0, rows: [[$1]]) })
        }
        let first = record([(1, "policies"), (2, "tables")])
        #expect(first.agrees(with: first))
        #expect(first.agrees(with: record([(1, "policies"), (2, "tables"), (3, "rights of a role")])))
        #expect(!first.agrees(with: record([(1, "others"), (2, "tables"), (3, "rights of a role")])))
        var failed = first
        failed.answers[0].failure = "42501"
        #expect(!first.agrees(with: failed))
    }

    @Test(arguments: seeds(20))
    func `comes back as it was, takes the room it says, and refuses what is cut or longer`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let records = (0..<Int(random.next() % 4)).map { _ in Self.some(&random) }
        let bytes = Self.encoded(records)
        #expect(try CatalogRecordCodec.decode(bytes.span.bytes) == records)
        #expect(bytes.count == Self.encoded([]).count + records.reduce(0) { $0 + $1.byteCount })
        for count in 0..<bytes.count {
            #expect(throws: ByteError.self) { _ = try CatalogRecordCodec.decode(Array(bytes.prefix(count)).span.bytes) }
        }
        #expect(throws: ByteError.self) { _ = try CatalogRecordCodec.decode((bytes + [0]).span.bytes) }
    }

    @Test(arguments: seeds(20)) func `whatever the bytes are, it answers or refuses`(_ seed: Seed) {
        var random = SeededRandom(seed: seed)
        for _ in 0..<200 {
            var bytes = Self.encoded([Self.some(&random), Self.some(&random)])
            for _ in 0..<3 {
                bytes[Int(random.next() % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: random.next())
            }
            _ = try? CatalogRecordCodec.decode(bytes.span.bytes)
        }
    }

    @Test func `when it was made does not make it another`() {
        var random = SeededRandom(seed: 1)
        let record = Self.some(&random)
        var later = record
        (later.time, later.since, later.unknownFrom, later.awaited) = (record.time &+ 1, 7, 7, [1])
        #expect(record.hasSameContent(as: later))
        later.answers.append(CatalogRecord.Answer(question: 1))
        #expect(!record.hasSameContent(as: later))
    }
}
