import Bytes
import Delivery
import Messages
import Protocol
import TestSupport
import Testing

@testable import Gateway

@Suite(.within(minutes: 1)) struct PastMessagesTests {
    private func batch(_ offsets: UInt64...) throws -> TurnBroadcasts {
        var gathering = BroadcastGathering()
        let empty: [UInt8] = []
        for offset in offsets {
            gathering.add(
                Broadcast(.json, event: empty.rawBytes, payload: empty.rawBytes), topic: empty.rawBytes,
                isPrivate: false, offset: offset)
        }
        let batch = gathering.take()
        return try #require(batch)
    }

    @Test func `messages wait for an answer, which counts for those that follow up to its end`() throws {
        var past = PastMessages()
        let first = try batch(10, 12)
        #expect(past.isReady(for: first) == false)
        #expect(past.take(MessageRevisions(of: 10..<30, knownFrom: 12, [20: .deleted])) === first)
        #expect(past.fate(of: 10) == .unknown && past.fate(of: 12) == .unchanged)
        let second = try batch(20, 29)
        #expect(past.isReady(for: second) == true)
        #expect(past.fate(of: 20) == .deleted && past.fate(of: 29) == .unchanged)
        let third = try batch(29, 30)
        #expect(past.isReady(for: third) == false)
        #expect(past.take(MessageRevisions(of: 29..<31, knownFrom: 29, [:])) === third)
        #expect(past.take(nil) == nil, "an answer that nobody waits for")
        #expect(past.fate(of: 30) == .unchanged)
    }

    @Test func `without an answer, or with one that ends too early, nothing is known of the messages`() throws {
        for answer in [nil, MessageRevisions(of: 10..<12, knownFrom: 10, [:])] {
            var past = PastMessages()
            #expect(past.isReady(for: try batch(10, 12)) == false)
            #expect(past.take(answer) != nil)
            #expect(past.fate(of: 10) == .unknown && past.fate(of: 12) == .unknown)
            #expect(past.isReady(for: try batch(13)) == false)
        }
    }
}
