import Change
import TestSupport
import Testing

@testable import Replication

@Suite(.within(minutes: 10)) struct ContinuityTests {
    static let position: UInt64 = 1000

    struct Case: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var isNew = false
        var system: UInt64 = 7
        var current: UInt64 = 2000
        /// Confirmed position of the slot; nil if there is no slot.
        var confirmed: UInt64?
        var isInvalid = false
        var isBeginning = false
        var hasLineage: Bool?
        var isLineageDamaged = false
        var database: UInt32 = 5
        var branch: ServerState.Branch = .same
        var publication: UInt32? = 3
        var answer: Continuity
    }

    static let ofNewLog: [Case] = [
        Case(
            testDescription: "a new log without a slot makes one", isNew: true,
            answer: .needsSlot(dropFirst: false, gap: nil)),
        Case(
            testDescription: "a new log begins where the slot stands that was made for it", isNew: true, confirmed: 10,
            isBeginning: true, answer: .begins),
        Case(
            testDescription: "a new log begins at a slot that is far ahead", isNew: true, confirmed: 1900,
            isBeginning: true, answer: .begins),
        Case(
            testDescription: "a new log replaces a slot that is invalid", isNew: true, confirmed: 10, isInvalid: true,
            isBeginning: true, answer: .needsSlot(dropFirst: true, gap: nil)),
        Case(
            testDescription: "a new log knows no other database", isNew: true, system: 8, confirmed: 10,
            isBeginning: true, answer: .begins),
        Case(
            testDescription: "a new log knows no older copy", isNew: true, current: 5, confirmed: 5, isBeginning: true,
            answer: .begins),
    ]

    static let ofLostLog: [Case] = [
        Case(
            testDescription: "a slot that is older than its log was another one's", isNew: true, confirmed: 10,
            answer: .broken(.logMissing)),
        Case(
            testDescription: "so was one that is invalid", isNew: true, confirmed: 10, isInvalid: true,
            answer: .needsSlot(dropFirst: true, gap: .logMissing)),
        Case(
            testDescription: "a log of which only the lineage is left", isNew: true, confirmed: 10, isBeginning: true,
            hasLineage: true, answer: .broken(.logMissing)),
        Case(
            testDescription: "the same without a slot", isNew: true, hasLineage: true,
            answer: .needsSlot(dropFirst: false, gap: .logMissing)),
        Case(
            testDescription: "the same with a lineage that cannot be read", isNew: true, isLineageDamaged: true,
            answer: .needsSlot(dropFirst: false, gap: .logMissing)),
        Case(
            testDescription: "a log whose lineage cannot be read may be of another history", confirmed: 10,
            hasLineage: false, isLineageDamaged: true, answer: .broken(.lineageDamaged)),
        Case(
            testDescription: "a log that never had one goes on", confirmed: 10, hasLineage: false, answer: .goesOn),
        Case(
            testDescription: "what is known for sure says more than that", current: 999, confirmed: 10,
            hasLineage: false, isLineageDamaged: true, answer: .broken(.databaseRestored)),
    ]

    static let ofPublications: [Case] = [
        Case(
            testDescription: "a publication that is as it was", confirmed: 10,
            publication: 3, answer: .goesOn),
        Case(
            testDescription: "another publication of its name", confirmed: 10,
            publication: 4, answer: .broken(.publicationRecreated)),
        Case(
            testDescription: "a slot that moved says more", confirmed: 1001,
            publication: 4, answer: .broken(.slotAdvanced)),
    ]

    static let withSlot: [Case] = [
        Case(testDescription: "a slot at the log's end goes on", confirmed: position, answer: .goesOn),
        Case(testDescription: "a slot before the log's end repeats and goes on", confirmed: 1, answer: .goesOn),
        Case(
            testDescription: "a slot behind the log's end has let go of changes", confirmed: 1001,
            answer: .broken(.slotAdvanced)),
        Case(
            testDescription: "a server that ends where the log ends is the same", current: position,
            confirmed: position, answer: .goesOn),
        Case(
            testDescription: "a server that ends before the log is an older copy", current: 999, confirmed: 500,
            answer: .broken(.databaseRestored)),
        Case(
            testDescription: "another server is another database", system: 8, confirmed: position,
            answer: .broken(.otherDatabase)),
        Case(
            testDescription: "another server says more than its shorter WAL", system: 8, current: 999, confirmed: 500,
            answer: .broken(.otherDatabase)),
        Case(
            testDescription: "an older copy says more than where its slot stands", current: 999, confirmed: 1001,
            answer: .broken(.databaseRestored)),
    ]

    static let ofOtherLines: [Case] = [
        Case(
            testDescription: "another database of the same server", confirmed: 1, database: 6,
            answer: .broken(.otherDatabase)),
        Case(
            testDescription: "a timeline that was left after the log's end goes on", confirmed: 1,
            branch: .left(at: LSN(1001)), answer: .goesOn),
        Case(
            testDescription: "a timeline that was left at the log's end goes on", confirmed: 1,
            branch: .left(at: LSN(position)), answer: .goesOn),
        Case(
            testDescription: "a timeline that was left before the log's end is an older copy", confirmed: 1,
            branch: .left(at: LSN(999)), answer: .broken(.databaseRestored)),
        Case(
            testDescription: "a timeline that does not come from the log's", confirmed: position,
            branch: .unrelated, answer: .broken(.databaseRestored)),
        Case(
            testDescription: "a new log follows whatever it meets", isNew: true, confirmed: 10, isBeginning: true,
            database: 6, branch: .unrelated, answer: .begins),
        Case(
            testDescription: "an older line without a slot", branch: .left(at: LSN(999)),
            answer: .needsSlot(dropFirst: false, gap: .databaseRestored)),
    ]

    static let withoutSlot: [Case] = [
        Case(testDescription: "a slot that is gone is a gap", answer: .needsSlot(dropFirst: false, gap: .slotMissing)),
        Case(
            testDescription: "another server has no slot of ours", system: 8,
            answer: .needsSlot(dropFirst: false, gap: .otherDatabase)),
        Case(
            testDescription: "an older copy has no slot of ours", current: 999,
            answer: .needsSlot(dropFirst: false, gap: .databaseRestored)),
        Case(
            testDescription: "an invalid slot is replaced, with a gap", confirmed: position, isInvalid: true,
            answer: .needsSlot(dropFirst: true, gap: .slotInvalidated)),
        Case(
            testDescription: "an invalid slot on another server", system: 8, confirmed: 1, isInvalid: true,
            answer: .needsSlot(dropFirst: true, gap: .otherDatabase)),
        Case(
            testDescription: "an invalid slot on an older copy", current: 999, confirmed: 1, isInvalid: true,
            answer: .needsSlot(dropFirst: true, gap: .databaseRestored)),
    ]

    @Test(arguments: ofNewLog + ofLostLog + withSlot + ofOtherLines + ofPublications + withoutSlot)
    func `is decided by what both sides say`(wanted: Case) {
        let log = LogState(
            isNew: wanted.isNew, systemIdentifier: wanted.isNew ? 0 : 7, position: LSN(Self.position),
            lineage: wanted.hasLineage ?? !wanted.isNew
                ? Lineage(timeline: 1, database: 5, publication: 3)
                : nil,
            isLineageDamaged: wanted.isLineageDamaged, isBeginning: wanted.isBeginning)
        let slot = wanted.confirmed.map { ServerState.Slot(confirmed: LSN($0), isInvalid: wanted.isInvalid) }
        let server = ServerState(
            systemIdentifier: wanted.system, database: wanted.database, branch: wanted.branch,
            current: LSN(wanted.current), slot: slot, publication: wanted.publication)
        #expect(Continuity.decide(log, server) == wanted.answer)
    }

    @Test func `a publication that was made again is found while streaming`() {
        #expect(PublicationWatch.isBroken(3, 4, isSilent: false))
        #expect(!PublicationWatch.isBroken(3, 3, isSilent: false))
        #expect(!PublicationWatch.isBroken(3, nil, isSilent: false), "the stream itself fails")
        #expect(PublicationWatch.isBroken(3, nil, isSilent: true))
    }

    @Test func `a history file says where a timeline was left`() {
        let text = "1\t0/30001C0\tno recovery target specified\n\n2\t1/A0\tbefore 2026-01-01\n"
        #expect(TimelineHistory.branch(from: 1, in: text) == .left(at: LSN(0x30001c0)))
        #expect(TimelineHistory.branch(from: 2, in: text) == .left(at: LSN(0x1_0000_00a0)))
        #expect(TimelineHistory.branch(from: 3, in: text) == .unrelated)
        #expect(TimelineHistory.branch(from: 1, in: "") == .unrelated)
    }

    /// Checks the rule for all small numbers: the stream never continues if changes are missing, and never marks a gap
    /// if none are.
    @Test func `goes on exactly when nothing can be missing`() {
        for (current, confirmed, isInvalid, system) in constellations() {
            let log = LogState(isNew: false, systemIdentifier: 1, position: LSN(2))
            let server = ServerState(
                systemIdentifier: system, current: LSN(current),
                slot: .init(confirmed: LSN(confirmed), isInvalid: isInvalid))
            let isWhole = system == 1 && current >= 2 && confirmed <= 2 && !isInvalid
            #expect((Continuity.decide(log, server) == .goesOn) == isWhole)
        }
    }

    private func constellations() -> [(UInt64, UInt64, Bool, UInt64)] {
        var all: [(UInt64, UInt64, Bool, UInt64)] = []
        for current: UInt64 in 0...4 {
            for confirmed: UInt64 in 0...4 {
                for isInvalid in [false, true] {
                    for system: UInt64 in 1...2 { all.append((current, confirmed, isInvalid, system)) }
                }
            }
        }
        return all
    }
}
