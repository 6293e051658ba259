import Diagnostics
import Synchronization
import TestSupport
import Testing

@testable import Asking

@Suite(.serialized, .within(minutes: 2)) struct ReplyTests {
    private func broken() -> UInt64 { Impossible.states[.asking].value }

    private final class Heard: Sendable {
        private let list = Mutex<[Bool?]>([])
        var all: [Bool?] { list.withLock { $0 } }
        func hear(_ answer: Bool?) { list.withLock { $0.append(answer) } }
    }

    @Test func `the first answer is the only one`() {
        let (heard, before) = (Heard(), broken())
        let reply = Reply<Bool?>(in: .asking, unanswered: nil) { heard.hear($0) }
        reply.give(false)
        #expect(broken() == before)
        reply.give(true)
        reply.giveUp()
        #expect(heard.all == [false])
        #expect(broken() == before + 2)
    }

    @Test func `what is given up has no answer`() {
        let (heard, before) = (Heard(), broken())
        Reply<Bool?>(in: .asking, unanswered: nil) { heard.hear($0) }.giveUp()
        #expect(heard.all == [nil] && broken() == before)
    }

    @Test func `what is forgotten is given up`() {
        let (heard, before) = (Heard(), broken())
        do { _ = Reply<Bool?>(in: .asking, unanswered: nil) { heard.hear($0) } }
        #expect(heard.all == [nil] && broken() == before + 1)
    }
}

@Suite(.within(minutes: 2)) struct LastTroubleTests {
    @Test func `the same is said again after a while, another at once`() {
        let second: UInt64 = 1_000_000_000
        let reminder = Limits.troubleReminderInterval.wholeNanoseconds
        var trouble = LastComplaint()
        let news = [
            trouble.isNews("away", at: second), trouble.isNews("away", at: second + reminder - 1),
            trouble.isNews("gone", at: second + 1), trouble.isNews("gone", at: 2 * second),
            trouble.isNews("gone", at: second + 1 + reminder),
        ]
        #expect(news == [true, false, true, false, true])
    }
}
