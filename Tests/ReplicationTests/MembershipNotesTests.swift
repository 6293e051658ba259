import Bytes
import Change
import TestSupport
import Testing

@testable import Replication

/// Tests of the stored knowledge about followed tables.
@Suite(.within(minutes: 5)) struct MembershipNotesTests {
    private static func notes(_ random: inout SeededRandom) -> MembershipNotes {
        var notes = Bool.random(using: &random) ? MembershipNotes.ofNewLog : .unknown
        var position: UInt64 = 100
        for _ in 0..<Int.random(in: 0...6, using: &random) {
            if Bool.random(using: &random) {
                notes.publication = MembershipNotes.Publication(
                    number: .random(in: 1...3, using: &random), since: LSN(position))
            } else if Bool.random(using: &random) {
                notes.publication = nil
            }
            position += 10
            var published: [MembershipNotes.Entry: MembershipNotes.Mark] = [:]
            for table in UInt32(1)...4 where Bool.random(using: &random) {
                let entry = MembershipNotes.Entry(table: table, isOwn: Bool.random(using: &random))
                published[entry] = "7:\(Int.random(in: 1...2, using: &random)):9,10"
            }
            notes.take(published, settled: Set(published.keys), at: LSN(position))
        }
        return notes
    }

    @Test(arguments: seeds(50)) func `what was written is read as it was, and nothing else is`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let notes = Self.notes(&random)
        let bytes = notes.encoded().copied()
        #expect(Self.read(bytes) == notes)
        #expect(Self.read(Array(bytes.dropLast())) == nil)
        var damaged = bytes
        damaged[Int.random(in: 0..<bytes.count, using: &random)] ^= 1 << UInt8.random(in: 0..<8, using: &random)
        #expect(Self.read(damaged) == nil)
    }

    private static func read(_ bytes: [UInt8]) -> MembershipNotes? {
        let span = bytes.span
        return MembershipNotes(encoded: span.bytes)
    }

    private let entry = MembershipNotes.Entry(table: 5, isOwn: true)

    private func followed() -> MembershipNotes {
        var notes = MembershipNotes.ofNewLog
        notes.publication = MembershipNotes.Publication(number: 1, since: LSN(100))
        notes.take([entry: "a"], settled: [entry], at: LSN(110))
        return notes
    }

    @Test func `a table that stays published as it was stays followed from where it was`() {
        var notes = followed()
        notes.take([entry: "a"], settled: [], at: LSN(300))
        #expect(notes.tables == [5: LSN(110)])
        #expect(!notes.unknownPasts.of(5).contains(LSN(200)))
    }

    @Test func `a table that was away is followed anew, and what was before that is not known`() {
        var notes = followed()
        notes.take([entry: "b"], settled: [entry], at: LSN(300))
        #expect(notes.tables == [5: LSN(300)])
        #expect([110, 299].allSatisfy { notes.unknownPasts.of(5).contains(LSN($0)) })
        // The past before the table was followed is never unknown.
        #expect([109, 300].allSatisfy { !notes.unknownPasts.of(5).contains(LSN($0)) })
        #expect(!notes.unknownPasts.of(6).contains(LSN(200)))
    }

    @Test func `a stream that was without the hub's publication ends what was followed by it`() {
        var notes = followed()
        notes.publication = nil
        notes.take([:], settled: [], at: LSN(200))
        notes.publication = MembershipNotes.Publication(number: 1, since: LSN(250))
        notes.take([entry: "a"], settled: [entry], at: LSN(300))
        #expect(notes.tables == [5: LSN(300)])
        #expect(notes.unknownPasts.of(5).contains(LSN(199)) && !notes.unknownPasts.of(5).contains(LSN(200)))
    }

    @Test func `where nothing is known nothing before the first look is`() {
        var notes = MembershipNotes.unknown
        #expect(notes.unknownPasts.of(5).contains(LSN(1 << 60)))
        notes.take([:], settled: [], at: LSN(200))
        #expect(notes.unknownPasts.of(5).contains(LSN(199)) && !notes.unknownPasts.of(5).contains(LSN(200)))
    }
}
