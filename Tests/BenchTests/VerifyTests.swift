import Bytes
import TestSupport
import Testing

@testable import Bench

/// Tests of the errors that the verifier must find. The histories are written by hand, each with one error.
@Suite(.within(minutes: 5)) struct VerifyLedgerTests {
    private static let second: UInt64 = 1_000_000_000
    private static let seen = 1
    private static let hidden = 2

    /// Rows 1 to 40, one in each transaction. The client may not see every tenth row.
    private static let journal: Journal = {
        var journal = Journal(seats: [[seen]])
        for number in 1...40 {
            journal.add(
                JournalLine(
                    sequence: Int64(number), mark: mark(number), table: "t",
                    shownTo: number % 10 == 0 ? [hidden] : [hidden, seen], isPublished: true))
        }
        return journal
    }()

    private static func mark(_ number: Int) -> ChangeMark { ChangeMark(operation: .insert, number: Int64(number)) }

    /// Returns the findings for a history with a note every tenth of a second. `first` was committed at the first note,
    /// `committed` at the others.
    private func findings(
        _ kind: ClientLedger.Kind, _ notes: [ClientLedger.Note], causes: [ClientLedger.Cause] = [], first: Int64 = 0,
        committed: Int64 = 0
    ) -> [Finding.Kind] {
        var ledger = ClientLedger(kind)
        let found = notes.enumerated().flatMap { index, note in
            ledger.take(
                note, at: 10 * Self.second + UInt64(index) * Self.second / 10,
                committed: index == 0 ? first : committed,
                causes: causes, journal: Self.journal, seat: 0)
        }
        return (found + ledger.takeUntold()).map(\.kind)
    }

    private func heard(_ numbers: [Int]) -> [ClientLedger.Note] { numbers.map { .heard(Self.mark($0)) } }

    private func heard(_ numbers: ClosedRange<Int>) -> [ClientLedger.Note] { heard(numbers.filter { $0 % 10 != 0 }) }

    private let cause = ClientLedger.Cause(begin: 0, end: 20 * second)

    @Test(arguments: ClientLedger.Kind.allCases)
    func `finds nothing in what is as it has to be`(kind: ClientLedger.Kind) {
        #expect(findings(kind, [.began(.joined)] + heard(1...40)) == [])
    }

    @Test(arguments: ClientLedger.Kind.allCases)
    func `finds an event that is dropped, doubled, exchanged, hidden or of no commit`(kind: ClientLedger.Kind) {
        func found(_ change: (inout [ClientLedger.Note]) -> Void) -> [Finding.Kind] {
            var notes = [.began(.joined)] + heard(1...40)
            change(&notes)
            return findings(kind, notes)
        }
        #expect(found { $0.remove(at: 7) } == [.missing])
        #expect(found { $0.insert($0[7], at: 8) } == [.twice])
        #expect(found { $0.swapAt(7, 8) } == [.disorder, .missing])
        #expect(found { $0.insert(.heard(Self.mark(10)), at: 10) } == [.wronglyVisible])
        #expect(found { $0.insert(.heard(Self.mark(99)), at: 10) } == [.unknown])
        #expect(found { $0.insert(.garbled("x"), at: 10) } == [.wrongValue])
        #expect(found { $0.insert(.told("x"), at: 10) } == [.unfoundedTelling])
        #expect(found { $0.removeFirst(3) } == [.missing, .missing])
    }

    @Test func `what was between two joins is for a plain client nothing, and for the others a loss`() {
        let notes = [.began(.joined)] + heard(1...5) + [.began(.joined)] + heard(9...12)
        #expect(findings(.plain, notes, committed: 8) == [])
        #expect(findings(.plain, notes, committed: 7) == [.missing])
        // The history also has the first join, after which nothing may be missing.
        let later = [.began(.joined)] + heard(9...9) + [.began(.joined)] + heard(12...12)
        #expect(findings(.catchUp, later, first: 8) == [.missing])
        #expect(findings(.real, later, first: 8) == [.missing])
        let explicit = [.began(.joined)] + heard(9...9) + [.began(.recovered(true))] + heard(12...12)
        #expect(findings(.explicit, explicit, first: 8) == [.missing])
    }

    @Test func `what was shortly before a cut may come again, in order, and not to those who said where they were`() {
        let notes = [.began(.joined)] + heard(1...9) + [.began(.joined)] + heard(6...15)
        #expect(findings(.catchUp, notes) == [])
        #expect(findings(.real, notes) == [])
        let explicit = [.began(.joined)] + heard(1...9) + [.began(.recovered(true))] + heard(8...15)
        #expect(findings(.explicit, explicit) == [.twice, .twice])
        let disorder = [.began(.joined)] + heard(1...9) + [.began(.joined)] + heard([8, 7, 9]) + heard(11...15)
        #expect(findings(.catchUp, disorder) == [.disorder])
        let twice = [.began(.joined)] + heard(1...9) + [.began(.joined)] + heard([8, 8, 9]) + heard(11...15)
        #expect(findings(.catchUp, twice) == [.twice])
    }

    @Test(arguments: [(ClientLedger.Kind.catchUp, 3), (.real, 6)] as [(ClientLedger.Kind, UInt64)])
    func `what was long before a cut may not come again`(_ kind: ClientLedger.Kind, seconds: UInt64) {
        var ledger = ClientLedger(kind)
        var found: [Finding] = []
        var at = 100 * Self.second
        func take(_ note: ClientLedger.Note) {
            found += ledger.take(note, at: at, committed: 0, causes: [], journal: Self.journal, seat: 0)
        }
        take(.began(.joined))
        for number in 1...4 {
            take(.heard(Self.mark(number)))
            at += seconds * Self.second
        }
        take(.began(.joined))
        take(.heard(Self.mark(2)))
        #expect(found.map(\.kind) == [.twice])
        take(.heard(Self.mark(3)))
        #expect(found.map(\.kind) == [.twice])
        #expect(ledger.repeated == 1)
    }

    @Test func `what had yet to come again when it was cut may come again later`() {
        for (again, kinds) in [(1...2, []), (1...4, [Finding.Kind.twice, .twice])] {
            var ledger = ClientLedger(.catchUp)
            var found: [Finding] = []
            func take(_ note: ClientLedger.Note, _ at: UInt64) {
                found += ledger.take(
                    note, at: at * Self.second, committed: 0, causes: [], journal: Self.journal, seat: 0)
            }
            take(.began(.joined), 100)
            for number in 1...4 { take(.heard(Self.mark(number)), 100) }
            take(.began(.joined), 101)
            for number in again { take(.heard(Self.mark(number)), 101) }
            // This join receives nothing.
            take(.began(.joined), 102)
            take(.began(.joined), 103)
            if again.upperBound == 4 { take(.heard(Self.mark(5)), 108) } else { take(.heard(Self.mark(2)), 108) }
            take(.began(.joined), 109)
            for number in 3...6 { take(.heard(Self.mark(number)), 109) }
            #expect(found.map(\.kind) == kinds, "\(again)")
        }
    }

    @Test func `who stood still acknowledged nothing meanwhile`() {
        for stands in [true, false] {
            var ledger = ClientLedger(.catchUp)
            var found: [Finding] = []
            func take(_ note: ClientLedger.Note, _ at: UInt64) {
                found += ledger.take(
                    note, at: at * Self.second, committed: 0, causes: [], journal: Self.journal, seat: 0)
            }
            take(.began(.joined), 100)
            take(.heard(Self.mark(1)), 100)
            if stands { take(.stands, 101) }
            take(.heard(Self.mark(2)), 109)
            take(.began(.joined), 110)
            take(.heard(Self.mark(1)), 110)
            #expect(found.map(\.kind) == (stands ? [] : [.twice]))
        }
    }

    @Test func `where nothing was acknowledged, what was before it may come again`() {
        func found(_ silence: (begin: UInt64, end: UInt64)?) -> [Finding.Kind] {
            var ledger = ClientLedger(.catchUp)
            var found: [Finding] = []
            let causes = silence.map {
                ClientLedger.Cause(begin: $0.begin * Self.second, end: $0.end * Self.second, effect: .silence)
            }
            func take(_ note: ClientLedger.Note, _ at: UInt64) {
                found += ledger.take(
                    note, at: at * Self.second, committed: 0, causes: causes.map { [$0] } ?? [], journal: Self.journal,
                    seat: 0)
            }
            take(.began(.joined), 100)
            take(.heard(Self.mark(1)), 100)
            take(.heard(Self.mark(2)), 109)
            take(.began(.joined), 111)
            take(.heard(Self.mark(1)), 111)
            return found.map(\.kind)
        }
        #expect(found(nil) == [.twice])
        #expect(found((102, 105)) == [])
        // The cause is long before the cut, or after it.
        #expect(found((90, 102)) == [.twice])
        #expect(found((110, 111)) == [.twice])
    }

    @Test func `the client for Python joins again when it is told of an error, and what it is told of goes as far`() {
        let notes = [.began(.joined)] + heard(1...3) + [.told("ChangesMissing"), .began(.joined)] + heard(7...9)
        #expect(findings(.real, notes, causes: [cause], committed: 6) == [])
        #expect(findings(.real, notes, causes: [cause], committed: 5) == [.missing])
    }

    @Test func `a client for Python may hear changes again before the reply to its join, if it was interrupted`() {
        let notes = [.began(.joined)] + heard(1...3) + [.interrupted] + heard(2...4) + [.began(.joined)] + heard(3...5)
        #expect(findings(.real, notes) == [])
        #expect(findings(.real, notes.filter { $0 != .interrupted }) == [.disorder, .twice])
        let missing = [.began(.joined)] + heard(1...3) + [.interrupted] + heard(5...5)
        #expect(findings(.real, missing) == [.missing])
    }

    @Test func `a loss may be told up to three seconds after a later change`() {
        let notes = [.began(.joined)] + heard(1...5) + heard(9...9) + [.told("ChangesMissing")]
        #expect(findings(.catchUp, notes, causes: [cause], committed: 8) == [])
        #expect(findings(.catchUp, notes, causes: [cause], committed: 7) == [.missing])
        let late = [.began(.joined)] + heard(1...2) + heard(6...40) + [.told("ChangesMissing")]
        #expect(findings(.catchUp, late, causes: [cause], committed: 40) == [.missing, .missing, .missing])
        // The time limit begins anew when the client returns. A known silence does not count.
        let returning = [.began(.joined)] + heard(1...2) + heard(6...40) + [.began(.joined), .told("ChangesMissing")]
        #expect(findings(.catchUp, returning, causes: [cause], committed: 40) == [])
        let silence = ClientLedger.Cause(begin: 11 * Self.second, end: 12 * Self.second, effect: .silence)
        #expect(findings(.catchUp, late, causes: [cause, silence], committed: 40) == [])
        let short = ClientLedger.Cause(begin: 11 * Self.second, end: 11 * Self.second + 1, effect: .silence)
        #expect(findings(.catchUp, late, causes: [cause, short], committed: 40) == [.missing, .missing, .missing])
    }

    @Test func `time with silence is counted once`() {
        func audible(_ silences: [Range<UInt64>], from begin: UInt64 = 10, to end: UInt64 = 20) -> UInt64 {
            let causes = silences.map { ClientLedger.Cause(begin: $0.lowerBound, end: $0.upperBound, effect: .silence) }
            return ClientLedger.audible(from: begin, to: end, causes + [cause])
        }
        #expect(audible([]) == 10)
        #expect(audible([12..<14]) == 8)
        #expect(audible([13..<15, 12..<14]) == 7)
        #expect(audible([0..<11, 19..<30]) == 8)
        #expect(audible([0..<30]) == 0)
        #expect(audible([0..<5, 25..<30]) == 10)
        #expect(audible([12..<20, 13..<14]) == 2)
    }

    @Test func `a loss is accounted for where it is told and something forced it, and nowhere else`() {
        let notes = [.began(.joined)] + heard(1...5) + [.told("ChangesMissing")] + heard(9...12)
        #expect(findings(.catchUp, notes, causes: [cause], committed: 8) == [])
        let untold = [.began(.joined)] + heard(1...1) + heard(9...9)
        #expect(findings(.catchUp, untold, causes: [cause]).count == 7)
        #expect(findings(.catchUp, notes).contains(.unfoundedTelling))
        let refused = [.began(.joined)] + heard(1...5) + [.began(.recovered(false))] + heard(9...12)
        #expect(findings(.explicit, refused, causes: [cause], committed: 8) == [])
        #expect(findings(.explicit, refused, committed: 8) == [.unfoundedTelling])
        #expect(findings(.explicit, refused) == [.unfoundedTelling, .missing, .missing, .missing])
        let silence = ClientLedger.Cause(begin: 0, end: 20 * Self.second, effect: .silence)
        #expect(findings(.catchUp, notes, causes: [silence], committed: 8) == [.unfoundedTelling])
    }

    @Test func `what is committed while a table is not published is for nobody`() {
        var journal = Journal(seats: [[Self.seen]])
        let line = JournalLine(
            sequence: 1, mark: Self.mark(1), table: "t", shownTo: [Self.seen], isPublished: false)
        journal.add(line)
        var ledger = ClientLedger(.plain)
        let found = ledger.take(
            .heard(Self.mark(1)), at: 1, committed: 0, causes: [], journal: journal, seat: 0)
        #expect(found.map(\.kind) == [.wronglyVisible])
    }

    @Test func `a schedule is the seed's, and has every fault of its lane`() {
        for lane in Fault.Lane.allCases {
            func entries(_ seed: UInt64) -> [FaultSchedule.Entry] {
                guard var schedule = FaultSchedule(seed: seed, lane: lane) else { return [] }
                return (0..<500).map { _ in schedule.next() }
            }
            #expect(entries(7) == entries(7))
            #expect(entries(7) != entries(8))
            #expect(Set(entries(7).map(\.fault)) == Set(Fault.allCases.filter { $0.lane == lane }))
        }
        #expect(FaultSchedule(seed: 1, lane: .behind, of: [.socketsCut]) == nil)
    }

    @Test func `a change is known by the version of its row, and a deleted one by its key`() {
        func note(_ text: String) -> ClientLedger.Note {
            var writer = ByteWriter()
            writer.append(text)
            return OwnClient.change(writer.bytes)
        }
        let columns = #""columns":[{"name":"id","type":"int8"},{"name":"v","type":"int8"}]"#
        let insert = #"{"data":{\#(columns),"record":{"id":3,"n":1,"note":"v17","v":17},"type":"INSERT"}}"#
        #expect(note(insert) == .heard(ChangeMark(operation: .insert, number: 17)))
        let update =
            #"{"data":{"old_record":{"id":3,"note":"v17","v":17},"record":{"id":3,"note":"v18","v":18},"type":"UPDATE"}}"#
        #expect(note(update) == .heard(ChangeMark(operation: .update, number: 18)))
        let delete = #"{"data":{"old_record":{"id":3,"note":"v18","v":18},"type":"DELETE"}}"#
        #expect(note(delete) == .heard(ChangeMark(operation: .delete, number: 3)))
        guard case .garbled = note(#"{"data":{"record":{"id":3,"note":"v16","v":17},"type":"INSERT"}}"#) else {
            Issue.record("a record of two rows passes for one")
            return
        }
    }
}
