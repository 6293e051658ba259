import Catalog
import TestSupport
import Testing

@testable import Snapshots

/// Where in the log what a snapshot does not show begins, and what of the rest it shows, for every way in which commits may
/// come to the log before or after they are seen.
@Suite(.within(minutes: 1)) struct RecentCommitsTests {
    /// One transaction: where its commit stands in PostgreSQL's log, and when others begin to see it.
    private struct Committed {
        let xid: UInt32
        let lsn: UInt64
        let offset: UInt64
        let isSeen: Bool
    }

    private func visible(_ all: [Committed], running: [UInt32]) throws -> VisibleTransactions {
        let unseen = (all.filter { !$0.isSeen }.map(\.xid) + running).sorted()
        let next = (all.filter(\.isSeen).map(\.xid).max() ?? 99) + 1
        let first = unseen.first { $0 < next } ?? next
        let list = unseen.filter { $0 < next }.map { "\($0)" }.joined(separator: ",")
        return try #require(VisibleTransactions("\(first):\(next):\(list)"))
    }

    /// Commits in an order of chance; what is seen is any of them, as the order in which they are shown is another.
    private func history(_ random: inout SeededRandom) -> [Committed] {
        var offset: UInt64 = 0
        let xids = Array(UInt32(100)..<112).shuffled(using: &random)
        return xids.enumerated().map { place, xid in
            defer { offset += UInt64.random(in: 1...5, using: &random) }
            // The later its commit, the likelier that it is not shown.
            let isSeen = Int.random(in: 0..<xids.count, using: &random) >= place / 2
            return Committed(xid: xid, lsn: UInt64(place + 1) * 10, offset: offset, isSeen: isSeen)
        }
    }

    @Test(arguments: seeds(20))
    func `each transaction is in the rows or behind them, and none in both`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        for _ in 0..<200 {
            let history = history(&random)
            let running = [UInt32(90), 113].filter { _ in Bool.random(using: &random) }
            let visible = try visible(history, running: running)
            let end = (history.filter(\.isSeen).map(\.lsn).max() ?? 0) + UInt64.random(in: 1...30, using: &random)
            // The log has come to some of them.
            let logged = Int.random(in: 0...history.count, using: &random)
            var recent = RecentCommits(maximum: 64)
            for committed in history.prefix(logged) { recent.note(committed.xid, at: committed.offset) }
            let logEnd = logged < history.count ? history[logged].offset : .max
            let start = recent.firstUnseen(by: visible) ?? logEnd
            let seen = SeenTransactions(visible: visible, end: end)
            for committed in history {
                let isTold = committed.offset >= start && !seen.has(committed.xid, at: committed.lsn)
                #expect(isTold != committed.isSeen, "xid \(committed.xid) at \(committed.offset), from \(start)")
            }
        }
    }

    @Test func `what is remembered is the last of them, and nothing from before a gap`() throws {
        var recent = RecentCommits(maximum: 3)
        for xid in UInt32(1)...5 { recent.note(xid, at: UInt64(xid) * 10) }
        let none = try #require(VisibleTransactions("1:1:"))
        #expect(recent.count == 3 && recent.firstUnseen(by: none) == 30)
        recent.forgetAll()
        #expect(recent.firstUnseen(by: none) == nil)
        recent.note(6, at: 60)
        #expect(recent.firstUnseen(by: none) == 60)
    }

    @Test func `a number that has come round is told from the one before`() throws {
        let visible = try #require(VisibleTransactions("4294967290:4294967300:4294967295,4294967298"))
        let seen = SeenTransactions(visible: visible, end: 100)
        #expect(seen.has(4_294_967_289, at: 1) && !seen.has(4_294_967_295, at: 1))
        #expect(seen.has(3, at: 1) && !seen.has(2, at: 1) && !seen.has(4, at: 1))
        #expect(!seen.has(3, at: 100))
    }
}
