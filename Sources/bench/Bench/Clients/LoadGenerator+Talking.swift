import Bytes
import System
import WebSocket

extension LoadGenerator {
    /// Number of messages that the loop sends before it reads again.
    private static let sentences = 64

    mutating func begin(_ order: Talk.Order) {
        guard order.groups.count == topics.count, order.speakers <= clients.count,
            clients.allSatisfy({ $0.phase == .subscribed })
        else { return answer(WorkerAnswer(failure: "not all have joined a channel for each group")) }
        let first = talk.map { $0.first + $0.order.count } ?? 1
        let talk = Talk(
            order, clients: clients.count, first: first, monotonic: Clock.monotonicNanoseconds(),
            unixMicroseconds: Clock.unixMicroseconds())
        tally = LoadTally(expecting: talk.expected)
        tally.processorAtBegin = Clock.processNanoseconds()
        self.talk = talk
        task = .talking
    }

    mutating func talkOn() {
        let now = Clock.monotonicNanoseconds()
        var left = Self.sentences
        while left > 0, let turn = talk?.nextTurn(at: now) {
            say(turn)
            left -= 1
        }
        // Clients that answer received messages have all begun. If a message is lost, they would wait for ever.
        guard talk?.nextDue == nil else { return }
        task = .awaiting(deadline: now + UInt64(Talk.patienceMilliseconds) * 1_000_000)
    }

    private mutating func say(_ turn: Talk.Turn) {
        // A lost client does not send. The clients that would have received its message report it as missing.
        guard clients[turn.speaker].phase == .subscribed else { return }
        message.removeAll()
        talk?.append(turn, topics[turn.channel], number: firstNumber + turn.speaker, to: &message)
        sendMessage(turn.speaker, .binary)
    }

    mutating func hear(_ index: Int, _ bytes: RawSpan, _ now: Int64) {
        guard
            let verdict = talk?.hear(
                index, bytes, topics: topics, firstNumber: firstNumber, scratch: &message)
        else { return }
        if tally.sample.isEmpty { tally.sample = bytes.copied() }
        switch verdict {
        case .inPlace(let message): hear(index, message, now)
        case .passedOver(let count, let message):
            tally.passedOver(Int64(count))
            hear(index, message, now)
        case .again: tally.heardAgain()
        case .foreign: tally.heardForeign()
        case .malformed: tally.malformed += 1
        }
    }

    private mutating func hear(_ index: Int, _ message: Talk.Message, _ now: Int64) {
        tally.heard(now, sent: message.dueMicroseconds)
        guard message.speaker == index, let turn = talk?.answer(to: message, at: now) else { return }
        say(turn)
    }
}
