import Foundation
import TestSupport
import Testing

@testable import TidewireClient

/// Row whose column `origin` only some servers keep.
private struct Entry: LiveRow, Equatable {
    static let table = "entries"
    let id: String
    var origin: String?
    var text: String
}

/// Server with one table. It applies writes in the order of their arrival and reports every change in order. The answer
/// to each write arrives at a random time.
private struct Server {
    enum Write {
        case insert(Entry, asID: String)
        case update(String, Entry)
        case delete(String)
    }

    let keepsOrigins: Bool
    private(set) var rows: [String: Entry] = [:]
    private(set) var events: [LiveChange<Entry>] = []

    init(keepsOrigins: Bool) { self.keepsOrigins = keepsOrigins }

    /// Returns the row as stored; nil if the server refuses the write.
    mutating func take(_ write: Write) -> Entry? {
        switch write {
        case .insert(let row, let id):
            guard rows[id] == nil else { return nil }
            return put(row, at: id, isNew: true)
        case .update(let id, let row):
            guard rows[id] != nil else { return nil }
            return put(row, at: id, isNew: false)
        case .delete(let id):
            guard let old = rows.removeValue(forKey: id) else { return nil }
            events.append(.deleted(id, was: old))
            return old
        }
    }

    private mutating func put(_ row: Entry, at id: String, isNew: Bool) -> Entry {
        let stored = Entry(id: id, origin: keepsOrigins ? row.origin : nil, text: row.text)
        rows[id] = stored
        events.append(isNew ? .inserted(stored) : .updated(stored, was: nil))
        return stored
    }

    mutating func nextEvent() -> LiveChange<Entry>? { events.isEmpty ? nil : events.removeFirst() }
}

/// Tests of the client's own writes with other clients' writes, events and answers in any order. The final rows must be
/// the server's rows.
@Suite(.within(minutes: 5)) struct OptimisticHistoryTests {
    private struct Sent {
        let origin: String
        let write: Server.Write
    }

    @Test(arguments: seeds(300)) func `rows are in the end what the server has`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        var server = Server(keepsOrigins: Bool.random(using: &random))
        var shown = OptimisticRows<Entry> { $0.origin }
        var (sent, answers): ([Sent], [(String, Entry?)]) = ([], [])
        for step in 0..<120 {
            let (origin, text) = ("o\(step)", "t\(step)")
            switch Int.random(in: 0..<7, using: &random) {
            case 0:
                let hasOwnID = Bool.random(using: &random)
                let row = Entry(id: hasOwnID ? "r\(step)" : "temporary\(step)", origin: origin, text: text)
                shown.write(row, origin: origin)
                sent.append(Sent(origin: origin, write: .insert(row, asID: "r\(step)")))
            case 1:
                guard let id = shown.all.map(\.id).filter({ $0.hasPrefix("r") }).randomElement(using: &random) else {
                    break
                }
                let row = Entry(id: id, origin: origin, text: text)
                shown.write(row, origin: origin)
                sent.append(Sent(origin: origin, write: .update(id, row)))
            case 2:
                let others: Server.Write = .insert(Entry(id: "", origin: nil, text: text), asID: "r\(step)")
                _ = server.take(others)
            case 3:
                guard let id = server.rows.keys.sorted().randomElement(using: &random) else { break }
                let isDelete = Bool.random(using: &random)
                _ = server.take(isDelete ? .delete(id) : .update(id, Entry(id: id, origin: nil, text: text)))
            case 4:
                guard !sent.isEmpty else { break }
                let next = sent.removeFirst()
                let isRefused = Int.random(in: 0..<5, using: &random) == 0
                answers.append((next.origin, isRefused ? nil : server.take(next.write)))
            case 5: if let event = server.nextEvent() { shown.apply(event) }
            default:
                guard let index = answers.indices.randomElement(using: &random) else { break }
                answer(answers.remove(at: index), &shown)
            }
        }
        for write in sent { answers.append((write.origin, server.take(write.write))) }
        while !answers.isEmpty || !server.events.isEmpty {
            if Bool.random(using: &random), !answers.isEmpty { answer(answers.removeFirst(), &shown) }
            if Bool.random(using: &random), let event = server.nextEvent() { shown.apply(event) }
        }
        #expect(shown.pendingOrigins.isEmpty)
        #expect(shown.all.sorted { $0.id < $1.id } == server.rows.values.sorted { $0.id < $1.id })
    }

    private func answer(_ answer: (origin: String, row: Entry?), _ shown: inout OptimisticRows<Entry>) {
        if let row = answer.row {
            shown.confirmWrite(origin: answer.origin, as: row)
        } else {
            shown.revertWrite(origin: answer.origin)
        }
    }

    @Test(arguments: seeds(300)) func `likes are in the end what the server has`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        var (server, events): (Set<Int>, [(key: Int, isThere: Bool)]) = ([], [])
        var shown = OptimisticKeys<Int, Int> { $0 % 3 }
        var (sent, answers): ([(key: Int, isThere: Bool)], [(key: Int, isTaken: Bool)]) = ([], [])
        func take(_ key: Int, _ isThere: Bool) {
            guard server.contains(key) != isThere else { return }
            if isThere { server.insert(key) } else { server.remove(key) }
            events.append((key, isThere))
        }
        /// Applies an answer as an app's model does: only if no other write of the same key waits for its answer.
        func answer(_ index: Int) {
            let (key, isTaken) = answers.remove(at: index)
            guard !sent.contains(where: { $0.key == key }), !answers.contains(where: { $0.key == key }) else { return }
            if isTaken { shown.confirmWrite(key) } else { shown.revertWrite(key) }
        }
        for _ in 0..<150 {
            let key = Int.random(in: 0..<6, using: &random)
            switch Int.random(in: 0..<5, using: &random) {
            case 0:
                let isThere = !shown.contains(key)
                shown.write(key, isThere: isThere)
                sent.append((key, isThere))
            case 1: take(key, Bool.random(using: &random))
            case 2:
                guard !sent.isEmpty else { break }
                let next = sent.removeFirst()
                let isTaken = Int.random(in: 0..<5, using: &random) > 0
                if isTaken { take(next.key, next.isThere) }
                answers.append((next.key, isTaken))
            case 3:
                guard !events.isEmpty else { break }
                let event = events.removeFirst()
                shown.apply(event.key, isThere: event.isThere)
            default: if !answers.isEmpty { answer(0) }
            }
        }
        for next in sent {
            take(next.key, next.isThere)
            answers.append((next.key, true))
        }
        sent = []
        while !answers.isEmpty || !events.isEmpty {
            if !answers.isEmpty, Bool.random(using: &random) { answer(0) }
            guard !events.isEmpty else { continue }
            let event = events.removeFirst()
            shown.apply(event.key, isThere: event.isThere)
        }
        for key in 0..<6 { #expect(shown.contains(key) == server.contains(key), "\(key)") }
        for group in 0..<3 { #expect(shown.count(in: group) == server.count { $0 % 3 == group }) }
    }

    @Test func `a write that waits for another does not keep the queue awake`() throws {
        var queue = WriteQueue()
        let now = Date(timeIntervalSince1970: 1000)
        try queue.add(PendingWrite(id: "1", table: "t", row: "a", kind: .update, date: now))
        #expect(queue.takeReady(at: now).map(\.id) == ["1"])
        try queue.add(PendingWrite(id: "2", table: "t", row: "a", kind: .update, date: now))
        try queue.add(PendingWrite(id: "3", table: "t", row: "b", kind: .insert, parent: "t/a", date: now))
        #expect(queue.nextMoment == nil)
        queue.failed("1", at: now, seed: 1)
        #expect(queue.takeReady(at: now).isEmpty)
        let next = try #require(queue.nextMoment)
        #expect(next > now)
    }
}
