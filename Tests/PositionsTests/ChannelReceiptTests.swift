import TestSupport
import Testing

@testable import Positions

@Suite(.within(minutes: 1)) struct ChannelReceiptTests {
    @Test func `a channel that joins again has acknowledged no more than before`() {
        var receipt = ChannelReceipt(own: 7)
        receipt.begin(at: 9)
        #expect(receipt.own == 7)
        var other = ChannelReceipt()
        other.begin(at: 9)
        #expect(other.own == 9)
    }

    @Test func `an answer settles what the ping asked about, and no more`() {
        var receipt = ChannelReceipt(own: 5)
        receipt.notePing(about: .offset(8), hasItAll: true)
        receipt.noteAnswer()
        #expect(receipt.own == 8 && receipt.pinged == nil)
        receipt.notePing(about: nil, hasItAll: true)
        receipt.noteAnswer()
        #expect(receipt.own == 8, "something was on its way to the client")
        receipt.notePing(about: .socket, hasItAll: true)
        receipt.noteAnswer()
        #expect(receipt.own == nil, "the socket's receipt applies from here on")
    }

    @Test func `an acknowledged offset does not lead back`() {
        var receipt = ChannelReceipt(own: 8)
        receipt.settle(.offset(3))
        #expect(receipt.own == 8)
    }

    @Test func `a channel that leaves its socket's receipt keeps the ping under way`() {
        var receipt = ChannelReceipt()
        receipt.separate(acknowledged: 4, asked: 6)
        #expect(receipt.own == 4 && receipt.pinged == .offset(6))
        receipt.noteAnswer()
        #expect(receipt.own == 6)
        // A channel that is tracked individually already stores the offset to which its own ping refers.
        receipt.notePing(about: .offset(9), hasItAll: true)
        receipt.separate(acknowledged: 1, asked: 12)
        #expect(receipt.own == 6 && receipt.pinged == .offset(9))
    }

    @Test func `a loss is owed until its report is acknowledged`() {
        var receipt = ChannelReceipt()
        receipt.noteLossReport()
        receipt.noteAnswer()
        #expect(!receipt.isFreeOfLoss, "the ping was sent before the report")
        receipt.notePing(about: nil, hasItAll: false)
        receipt.noteAnswer()
        #expect(!receipt.isFreeOfLoss, "rows are still to come")
        receipt.notePing(about: nil, hasItAll: true)
        #expect(!receipt.isFreeOfLoss)
        receipt.noteAnswer()
        #expect(receipt.isFreeOfLoss)
    }
}
