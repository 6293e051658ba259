import Change
import Diagnostics
import Judging
import System
import TestSupport
import Testing

@testable import Catalog
@testable import Delivery
@testable import Policy

/// Tests of the registry of membership sets: PostgreSQL's answer must reach the set that needed it.
@Suite(.within(minutes: 5)) struct LiveMembershipsTests {
    private let table = CatalogTable(
        oid: 9, schema: "public", name: "members",
        columns: [
            CatalogColumn(
                facts: ColumnFacts(name: "room", type: TypeFacts(oid: 23, name: "integer"), collation: .none),
                number: 1,
                typeOID: 23, typeName: "int4", declaredType: "integer", rendering: .scalar(oid: 23))
        ],
        primaryKey: [], identity: .full, hasRowSecurity: false, forcesRowSecurity: false, hasPolicies: false,
        operations: .all)
    private let held = HeldMembership(
        membership: Membership(table: 9, keySlot: 0, condition: .undecided, reader: .caller, fillSQL: "SELECT"),
        rows: .always)

    private func set(of sub: String, as role: String = "reader", on desk: inout LiveMemberships) -> MembershipSet {
        desk.take(
            held, PolicySubject(role: role, claims: #"{"sub":"\#(sub)"}"#, identity: 0), table, followedSince: .zero)
    }

    private func rooms(_ rooms: String...) throws -> MembershipFill {
        .filled(
            FilledMembership(
                keys: rooms.map { FilledMembership.Key(text: Array($0.utf8), count: 1) },
                snapshot: try #require(VisibleTransactions("10:10:")), position: .zero))
    }

    private func asked(_ desk: inout LiveMemberships, _ set: MembershipSet) throws -> MembershipFilling {
        desk.want(set)
        return try #require(desk.takeUnfilled().first { $0 === set }?.filling)
    }

    /// Checks that the hub asks PostgreSQL again about refused sets, and only about these, when the catalog has
    /// changed.
    @Test(arguments: [MembershipFill.failed(sqlState: "42501"), .unreadable])
    func `a refusal holds until the catalog changes`(refusal: MembershipFill) throws {
        var desk = LiveMemberships(ProjectMetrics())
        let (one, two) = (set(of: "ana", on: &desk), set(of: "cem", as: "staff", on: &desk))
        let ofOne = try asked(&desk, one)
        let ofTwo = try asked(&desk, two)
        let settled = desk.fill([(ofOne, refusal), (ofTwo, try rooms("7"))], at: 0)
        #expect(settled.count == 2 && one.isRefused)
        desk.catalogHasChanged()
        let asked = desk.takeUnfilled()
        #expect(asked.map(\.number) == [one.number] && !one.isSettled && two.isSettled)
        #expect(desk.takeChanged().map(\.number) == [one.number])
        let filling = try #require(one.filling)
        #expect(desk.fill([(ofOne, refusal)], at: 0).isEmpty)
        #expect(desk.fill([(filling, try rooms("8"))], at: 0).count == 1)
        #expect(one.keys.keys == [Array("8".utf8)])
    }

    /// Checks a set that is removed before PostgreSQL has answered. Its number is free, and the next set gets the
    /// number.
    @Test func `what was asked for somebody who left is not taken for who comes next`() throws {
        var desk = LiveMemberships(ProjectMetrics())
        let first = set(of: "ana", on: &desk)
        let ofFirst = try asked(&desk, first)
        desk.release(first)
        let second = set(of: "cem", on: &desk)
        let ofSecond = try asked(&desk, second)
        try #require(second.number == first.number)

        #expect(desk.fill([(ofFirst, try rooms("7"))], at: 0).isEmpty)
        #expect(second.keys.isUnknown && second.keys.keys.isEmpty)
        let isAwaited = desk.unanswered(ofFirst) != nil
        #expect(!isAwaited)

        #expect(desk.fill([(ofSecond, try rooms("8"))], at: 0).count == 1)
        #expect(second.keys.keys == [Array("8".utf8)])
        // An answer is used only once.
        #expect(desk.fill([(ofSecond, try rooms("7"))], at: 0).isEmpty)
        #expect(second.keys.keys == [Array("8".utf8)])
    }

    /// Checks two gaps in one turn: the hub asks about a discarded set once, after both gaps.
    @Test func `a set that is discarded twice is asked for once`() throws {
        var desk = LiveMemberships(ProjectMetrics())
        let set = set(of: "ana", on: &desk)
        desk.discardAll()
        desk.discardAll()
        let asked = desk.takeUnfilled()
        #expect(asked.count == 1 && asked.first === set)
        #expect(desk.takeUnfilled().isEmpty)
    }

    /// Checks a set that was filled for a new channel, which does not need earlier changes. A returning channel then
    /// needs them.
    @Test func `who comes back to a set that was filled for later is judged by who was a member then`() throws {
        var desk = LiveMemberships(ProjectMetrics())
        let set = set(of: "ana", on: &desk)
        var rows = FilledMembership(
            keys: ["7", "8"].map { FilledMembership.Key(text: Array($0.utf8), count: 1) },
            snapshot: try #require(VisibleTransactions("10:10:")), position: LSN(100))
        rows.keys.append(FilledMembership.Key(text: nil, count: 2))
        let filling = try asked(&desk, set)
        #expect(desk.fill([(filling, .filled(rows))], at: 0).count == 1)
        #expect(set.isOfLaterOnly)

        desk.reopen(set, for: 3, at: 0)
        #expect(!set.isSettled && set.isOwed(3) && set.keys.isUnknown)
        // The search of the log starts at the set's position. In these changes, a user joined room 7, and a row without
        // a room was removed.
        set.unwind((Array("7".utf8), 1), xid: 8, at: 50)
        set.unwind((nil, -1), xid: 9, at: 60)
        set.unwind((Array("8".utf8), 1), xid: 12, at: 70)
        #expect(desk.unwound(coveredUpTo: LSN(99), 1, isLost: false).isEmpty)
        #expect(desk.unwound(coveredUpTo: LSN(100), 1, isLost: false).count == 1)
        #expect(set.keys.keys == [Array("8".utf8)] && set.keys.hasNull)
        #expect(!set.begin(xid: 8, at: 50) && !set.isTooNew)
        #expect(set.apply(Array("7".utf8), 1, xid: 8, at: 50))
        #expect(!set.apply(nil, -1, xid: 9, at: 60))
        #expect(set.keys.keys == [Array("7".utf8), Array("8".utf8)] && set.keys.hasNull)
        // The search happens only once: members that cannot be determined now are not searched again at each return.
        #expect(!set.isOfLaterOnly)
    }

    /// Returns a set that waits since the time zero until the log covers position 100.
    private func waiting(on desk: inout LiveMemberships) throws -> MembershipSet {
        let set = set(of: "ana", on: &desk)
        let rows = FilledMembership(
            keys: [FilledMembership.Key(text: Array("7".utf8), count: 1)],
            snapshot: try #require(VisibleTransactions("10:10:")), position: LSN(100))
        let filling = try asked(&desk, set)
        _ = desk.fill([(filling, .filled(rows))], at: 0)
        desk.reopen(set, for: 3, at: 0)
        return set
    }

    /// Returns the second in which the wait for a log ends without what it waited for, by how far the log has come in
    /// each second.
    private func end(delaysOthers: Bool = false, _ covered: (UInt64) -> UInt64) throws -> UInt64? {
        var desk = LiveMemberships(ProjectMetrics())
        let set = try waiting(on: &desk)
        for tick in 0...400 {
            let now = UInt64(tick) * 100_000_000
            desk.watchLog(
                coveredUpTo: LSN(covered(now / 1_000_000_000)), now, delaysOthers: delaysOthers)
            if desk.isTiredOfUnwinding(now) {
                #expect(desk.unwound(coveredUpTo: LSN(50), now, isLost: true).count == 1 && set.isSettled)
                _ = set.begin(xid: 9, at: 50)
                // Nobody is judged by later members.
                #expect(set.isTooNew && set.keys.hasFailed)
                return now / 1_000_000_000
            }
        }
        return nil
    }

    /// Checks a cluster without a feeder: nothing reaches the log, so nobody is told of a loss only for that.
    @Test func `an answer waits longer for a log that stands`() throws {
        // A log that moves, and does not come to the answer.
        #expect(try end { $0 } == 5)
        // Nobody feeds the log for 12 s.
        #expect(try end { $0 < 12 ? 0 : $0 } == 16)
        #expect(try end { _ in 0 } == 30)
        // The log has entries that others wait for.
        #expect(try end(delaysOthers: true) { _ in 0 } == 5)
    }

    @Test func `bindings that wait for a log that stands are not given up meanwhile`() throws {
        var desk = LiveMemberships(ProjectMetrics())
        _ = try waiting(on: &desk)
        var stands = [desk.awaitStandingLog]
        let looks: [(UInt64, UInt64)] = [(9, 0), (9, 1_000_000_000), (9, 1_000_000_001), (10, 1_100_000_000)]
        for (covered, now) in looks {
            desk.watchLog(coveredUpTo: LSN(covered), now, delaysOthers: false)
            stands.append(desk.awaitStandingLog)
        }
        #expect(stands == [false, false, false, true, false])
    }
}
