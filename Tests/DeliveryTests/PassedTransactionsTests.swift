import Diagnostics
import TestSupport
import Testing

@testable import Catalog
@testable import Delivery

/// Tests of which transactions PostgreSQL may not show although the loop has read them.
@Suite(.within(minutes: 1)) struct PassedTransactionsTests {
    private func snapshot(_ text: String) throws -> VisibleTransactions { try #require(VisibleTransactions(text)) }

    @Test func `the first one that an answer lacks is found among the newest`() throws {
        var passed = PassedTransactions()
        for xid: UInt32 in 100..<110 { passed.note(xid) }
        #expect(passed.firstUnseen(in: try snapshot("104:110:104,106")) == 4)
        #expect(passed.firstUnseen(in: try snapshot("110:110:")) == passed.count)
    }

    @Test func `a commit that waits for a standby is known while many others pass it`() throws {
        var passed = PassedTransactions()
        for xid: UInt32 in 100..<200_000 where xid != 120 { passed.note(xid) }
        #expect(passed.firstUnseen(in: try snapshot("200000:200000:")) == passed.count)
        #expect(passed.firstUnseen(in: try snapshot("107:200000:107")) < passed.count - 65_536)
        // A transaction that runs for long and has not reached the log says nothing about those that have.
        #expect(passed.firstUnseen(in: try snapshot("120:200000:120")) == passed.count)
    }

    @Test func `of the older ones, the blocks that got a number last are kept`() {
        var blocks = TransactionBlocks()
        let count = UInt32(Limits.passedTransactionBlocks)
        for block in 0..<count { blocks.insert(block << 16 | 7) }
        #expect(blocks.contains(7) && !blocks.contains(8) && blocks.contains(1 << 16 | 7))
        blocks.insert(9)
        blocks.insert(count << 16)
        #expect(blocks.contains(7) && blocks.contains(9) && blocks.contains(count << 16))
        #expect(!blocks.contains(1 << 16 | 7) && blocks.contains(2 << 16 | 7))
    }
}
