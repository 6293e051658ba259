import Change
import Diagnostics
import Judging
import TestSupport
import Testing

@testable import Catalog
@testable import Delivery
@testable import Policy

/// Tests of the parts of a membership set: counted keys, filling, validity and progress.
@Suite(.within(minutes: 1)) struct MembershipSetTests {
    private let a = Array("a".utf8)
    private let b = Array("b".utf8)

    // MARK: Counted keys

    @Test func `a key stays for as long as one row gives it`() {
        var keys = CountedKeys(areKeyed: true)
        keys.add(b, 1)
        keys.add(a, 2)
        keys.add(nil, 1)
        #expect(keys.inOrder == [a, b] && keys.count == 2 && keys.rowCount == 4 && keys.nullCount == 1)
        keys.add(a, -1)
        #expect(keys.has(a))
        keys.add(a, -1)
        keys.add(nil, -1)
        #expect(!keys.has(a) && !keys.has(nil) && keys.has(b) && keys.inOrder == [b])
        #expect(keys.asFilled == [FilledMembership.Key(text: b, count: 1)])
        keys.removeAll()
        #expect(keys.isEmpty && !keys.has(b))
    }

    @Test func `a row that was never there makes the counts unsound`() {
        var keys = CountedKeys(areKeyed: true)
        keys.add(a, 1)
        keys.add(b, -1)
        #expect(!keys.areSound && !keys.isSound(at: b) && keys.isSound(at: a))
        var unkeyed = CountedKeys(areKeyed: false)
        unkeyed.add(nil, -1)
        #expect(!unkeyed.areSound && !unkeyed.isSound(at: nil))
    }

    @Test func `without a key only the rows count`() {
        var keys = CountedKeys(areKeyed: false)
        #expect(!keys.has(nil))
        keys.add(nil, 2)
        #expect(keys.has(nil) && keys.nullCount == 0 && keys.inOrder == [])
        #expect(keys.asFilled == [FilledMembership.Key(text: nil, count: 2)])
    }

    // MARK: Filling

    private func rows(
        _ keys: [UInt8]?..., seeing snapshot: String = "10:10:", at position: UInt64 = 100
    ) throws
        -> FilledMembership
    {
        FilledMembership(
            keys: keys.map { FilledMembership.Key(text: $0, count: 1) },
            snapshot: try #require(VisibleTransactions(snapshot)), position: LSN(position))
    }

    @Test func `what the log shows meanwhile is counted unless the answer has it`() throws {
        var pending = PendingFill(passed: 3)
        #expect(pending.isComplete(firstUnseen: 3) && !pending.isComplete(firstUnseen: 2))
        pending.add(a, 1, xid: 9)
        pending.add(b, 1, xid: 10)
        var keys = CountedKeys(areKeyed: true)
        pending.count(try rows(a), in: &keys)
        #expect(keys.inOrder == [a, b] && keys.rowCount == 2)
        // Each change of a transaction counts once.
        var again = CountedKeys(areKeyed: true)
        pending.count(try rows(), in: &again)
        #expect(again.isEmpty)
    }

    @Test func `a question is under way once`() {
        var pending = PendingFill()
        #expect(pending.ask() == true)
        #expect(pending.ask() == false && pending.isAsked)
        pending.isUnanswered()
        #expect(pending.ask() == true)
    }

    @Test func `an answer is unwound by what the log has ahead of it`() throws {
        var pending = PendingFill()
        #expect(!pending.isAnswered && !pending.mayUnwind(coveredUpTo: .max))
        pending.keep(try rows(a), at: 5)
        #expect(pending.isAnswered && !pending.mayUnwind(coveredUpTo: 99) && pending.mayUnwind(coveredUpTo: 100))
        let patience = Limits.membershipUnwindPatience.wholeNanoseconds
        #expect(!pending.isTiredOfUnwinding(5 + patience) && pending.isTiredOfUnwinding(6 + patience))
        pending.unwind((b, 1), xid: 9)
        pending.beginUnwinding()
        pending.unwind((a, 1), xid: 9)
        // Transactions that PostgreSQL's answer does not include are not removed from it.
        pending.unwind((b, -1), xid: 10)
        pending.unwind(nil, xid: 11)
        let answer = pending.takeAnswer()
        #expect(answer?.ahead?.map(\.key) == [a] && answer?.ahead?.map(\.change) == [-1])
        #expect(pending.takeAnswer() == nil && !pending.isAnswered)
    }

    @Test func `a change without its old row leaves what is ahead unknown until the next look`() throws {
        var pending = PendingFill()
        pending.keep(try rows(a), at: 0)
        pending.unwind(nil, xid: 9)
        pending.beginUnwinding()
        var other = pending
        other.unwind(nil, xid: 9)
        let (known, unknown) = (pending.takeAnswer(), other.takeAnswer())
        #expect(known?.ahead?.isEmpty == true)
        #expect(unknown != nil && unknown?.ahead == nil)
    }

    // MARK: Validity

    private func validity(_ unknownPast: UnknownPast = .none) throws -> MembershipValidity {
        var validity = MembershipValidity(followedSince: 50, unknownPast: unknownPast)
        validity.filled(SeenTransactions(visible: try #require(VisibleTransactions("10:10:")), end: 100))
        return validity
    }

    @Test func `rows that are newer than a transaction do not say who was a member then`() throws {
        var validity = try validity()
        #expect(validity.mayBeAhead && validity.contains(xid: 9, at: 60) && !validity.contains(xid: 10, at: 60))
        #expect(validity.begin(xid: 10, at: 60, isOwed: true) == false)
        #expect(validity.measure == .exact)
        #expect(validity.begin(xid: 9, at: 60, isOwed: true) == false)
        #expect(validity.measure == .tooNew)
        #expect(validity.begin(xid: 11, at: 100, isOwed: true) == true)
        #expect(validity.measure == .exact && !validity.mayBeAhead && !validity.contains(xid: 9, at: 60))
        // The hub has read the log beyond all of these positions.
        #expect(validity.begin(xid: 9, at: 60, isOwed: true) == false)
        #expect(validity.measure == .exact)
    }

    @Test func `before the table was followed PostgreSQL decides, for channels that are promised it`() throws {
        var validity = try validity()
        _ = validity.begin(xid: 9, at: 49, isOwed: true)
        #expect(validity.measure == .notYetFollowed)
        _ = validity.begin(xid: 9, at: 49, isOwed: false)
        #expect(validity.measure == .tooNew)
    }

    @Test func `rows hold for later transactions only until they are unwound or the log has passed them`() throws {
        var validity = try validity()
        #expect(validity.isOfLaterOnly)
        var unwound = validity
        unwound.unwound()
        #expect(!unwound.isOfLaterOnly)
        unwound.forget()
        #expect(!unwound.isOfLaterOnly && !unwound.mayBeAhead)
        validity.pass(99)
        #expect(validity.isOfLaterOnly)
        validity.pass(100)
        #expect(!validity.isOfLaterOnly)
    }

    // MARK: Progress

    private let info = TransactionInfo(xid: 7, commitLSN: LSN(5), endLSN: LSN(6), commitTime: 0)

    @Test func `later parts are applied with the first, and no second time`() {
        var progress = MembershipProgress()
        #expect(progress.begin(info) == true)
        #expect(progress.hasApplied && progress.begun?.xid == 7)
        progress.applyLaterParts()
        progress.finishEntry(endsTransaction: false)
        #expect(!progress.hasApplied && progress.begun == nil && progress.isAheadOfParts)
        #expect(progress.begin(info) == false)
        progress.finishEntry(endsTransaction: true)
        #expect(progress.begin(info) == true)
    }

    @Test func `an entry whose later parts cannot be applied is applied again`() {
        var progress = MembershipProgress()
        _ = progress.begin(info)
        progress.applyLaterParts()
        progress.partsAreLost()
        #expect(!progress.hasApplied && progress.begin(info) == true)
    }
}
