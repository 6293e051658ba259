import Bytes
import System
import WebSocket

/// State of a task in which clients track or leave a presence.
struct PresenceTask {
    enum Deed {
        case tracking(ClientText)
        case leaving
    }

    let deed: Deed
    /// Index of the next client to act.
    var next: Int
    let end: Int
    /// True if each client acts only after all clients have seen the previous action.
    let isOneByOne: Bool
    let deadline: UInt64

    func mayGoOn(_ watch: PresenceWatch?) -> Bool {
        next < end && (!isOneByOne || watch?.isSettled == true)
    }
}

extension LoadGenerator {
    private static let presencePatience: UInt64 = 60_000_000_000
    /// Number of messages that the loop sends before it reads again.
    private static let presenceStep = 64

    mutating func beginTracking(_ count: Int, _ isTogether: Bool, _ payload: ClientText) {
        guard count <= clients.count else { return answer(WorkerAnswer(failure: "there are not so many clients")) }
        if isTogether { for client in 0..<count { presence?.expect(client) } }
        begin(.tracking(payload), 0..<count, isOneByOne: !isTogether, watching: clients.count)
    }

    mutating func beginDeparting(_ count: Int) {
        guard count < clients.count else { return answer(WorkerAnswer(failure: "somebody must see it")) }
        let leaving = clients.count - count..<clients.count
        for client in leaving { presence?.expectNoMore(client) }
        begin(.leaving, leaving, isOneByOne: false, watching: leaving.lowerBound)
    }

    private mutating func begin(_ deed: PresenceTask.Deed, _ who: Range<Int>, isOneByOne: Bool, watching: Int) {
        guard presence != nil, !topics.isEmpty, clients.allSatisfy({ $0.phase == .subscribed }) else {
            return answer(WorkerAnswer(failure: "not all have joined, or nobody watches"))
        }
        presence?.settle(watching: watching)
        tally = LoadTally(expecting: 0)
        tally.processorAtBegin = Clock.processNanoseconds()
        task = .tracking(
            PresenceTask(
                deed: deed, next: who.lowerBound, end: who.upperBound, isOneByOne: isOneByOne,
                deadline: begun + Self.presencePatience))
    }

    mutating func goOn(_ given: PresenceTask) {
        var step = given
        var left = Self.presenceStep
        while left > 0, step.mayGoOn(presence) {
            if step.isOneByOne {
                presence?.expect(step.next)
                presence?.settle(watching: clients.count)
            }
            perform(step.deed, step.next)
            step.next += 1
            left -= 1
        }
        task = .tracking(step)
        let isDone = step.next == step.end && presence?.isSettled == true
        if isDone || Clock.monotonicNanoseconds() >= step.deadline { finishPresence() }
    }

    private mutating func perform(_ deed: PresenceTask.Deed, _ client: Int) {
        guard clients[client].phase == .subscribed, let topic = topics.last else { return }
        message.removeAll()
        message.append("[\"\(topics.count)\",null,\"")
        topic.append(client: firstNumber + client, to: &message)
        switch deed {
        case .tracking(let payload):
            message.append("\",\"presence\",{\"type\":\"presence\",\"event\":\"track\",\"payload\":")
            payload.append(client: firstNumber + client, to: &message)
            message.append("}]")
        case .leaving:
            message.append("\",\"phx_leave\",{}]")
            clients[client].phase = .open
        }
        sendMessage(client, .text)
    }

    private mutating func finishPresence() {
        task = .idle
        var done = report.answer
        done.numbers["ns"] = Int64(Clock.monotonicNanoseconds() - begun)
        done.numbers["unsettled"] = Int64(presence?.unsettled ?? 0)
        done.numbers["differing"] = Int64(presence?.differing ?? 0)
        answer(done)
    }

    mutating func see(_ index: Int, _ kind: PresenceWatch.Kind, _ bytes: RawSpan, _ now: Int64) {
        guard presence != nil else { return }
        if presence?.see(index, kind, bytes) == true { tally.heard(now) } else { tally.malformed += 1 }
    }
}
