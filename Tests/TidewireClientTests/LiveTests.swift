import Foundation
import TestSupport
import Testing
import TidewireClientTesting

@testable import TidewireClient

struct Note: LiveRow, Equatable {
    static let table = "notes"
    let id: Int
    let owner: String
    let text: String

    struct Columns: Sendable {
        let owner = LiveColumn<String>("owner")
        let text = LiveColumn<String>("text")
    }
    static let columns = Columns()
}

func note(_ id: Int, _ text: String = "", owner: String = "ana") -> [String: JSONValue] {
    ["id": .number("\(id)"), "owner": .string(owner), "text": .string(text)]
}

/// Client of an app, with a hub in memory and a clock that does not move by itself.
struct Stage {
    let hub: MemoryHub
    let clock = ManualClock()
    let storage = Tidewire.MemoryStorage()
    let tidewire: Tidewire

    init(hub: MemoryHub = MemoryHub(), token: String? = "ana", waiting: Int = 10_000) {
        self.hub = hub
        tidewire = Tidewire(
            hub: hub, token: token, storage: storage, clock: clock, maximumWaitingChanges: waiting, seed: 1)
    }

    /// Returns a new client, as after a restart of the same app.
    func launchedAgain() -> Tidewire {
        Tidewire(hub: hub, token: "ana", storage: storage, clock: clock, seed: 2)
    }
}

extension LiveChanges.Iterator {
    /// Returns the changes of the next batch that has any.
    mutating func changes() async -> [LiveChange<Row>] {
        while let batch = await next() {
            if !batch.changes.isEmpty { return batch.changes }
        }
        return []
    }
}

@Suite(.within(minutes: 5)) struct LiveTests {
    @Test func `changes come as rows, in batches, with a position`() async throws {
        let stage = Stage()
        var batches = stage.tidewire.live(Note.self).makeAsyncIterator()
        #expect(stage.tidewire.state == .live)
        stage.hub.insert("notes", note(1, "a"))
        stage.hub.insert("notes", note(2, "b"))
        stage.clock.advance(by: .milliseconds(300))
        var changed: LiveBatch<Note>?
        repeat { changed = await batches.next() } while changed?.changes.isEmpty == true
        #expect(changed?.changes.map(\.row?.text) == ["a", "b"])
        #expect(changed?.position == LogPosition("e1.2"))
    }

    @Test func `a filter, an update, a row that leaves and one that is deleted`() async {
        let stage = Stage()
        var batches = stage.tidewire.live(Note.self, where: \.owner == "ana", window: .immediate).makeAsyncIterator()
        stage.hub.insert("notes", note(1, owner: "ben"))
        stage.hub.insert("notes", note(2, "a"))
        stage.hub.update("notes", from: note(2, "a"), to: note(2, "b"))
        stage.hub.update("notes", from: note(2, "b"), to: note(2, "b", owner: "ben"))
        stage.hub.insert("notes", note(3))
        stage.hub.delete("notes", note(3))
        var changes: [String] = []
        while changes.count < 5 {
            for change in await batches.changes() {
                switch change {
                case .inserted(let row): changes.append("inserted \(row.id)")
                case .updated(let row, let was): changes.append("updated \(was?.text ?? "?") \(row.text)")
                case .deleted(let id, _): changes.append("deleted \(id)")
                case .left(let id, let was): changes.append("left \(id) \(was?.owner ?? "?")")
                }
            }
        }
        #expect(changes == ["inserted 2", "updated a b", "left 2 ana", "inserted 3", "deleted 3"])
    }

    @Test func `what was missed while the connection was away comes, once and in order`() async {
        let stage = Stage()
        var batches = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        stage.hub.insert("notes", note(1))
        stage.hub.cut(code: 1012)
        stage.hub.insert("notes", note(2))
        stage.clock.advance(by: .milliseconds(500))
        stage.hub.insert("notes", note(3))
        var ids: [Int] = []
        while ids.count < 3 { ids += await batches.changes().map(\.id) }
        #expect(ids == [1, 2, 3])
        #expect(stage.hub.connections == 2)
    }

    @Test func `an app that was killed goes on where it had saved`() async {
        let stage = Stage()
        var position: LogPosition?
        do {
            var batches = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
            stage.hub.insert("notes", note(1))
            while position?.offset != 1 { position = await batches.next()?.position }
        }
        #expect(stage.hub.openChannels == 0)
        stage.hub.insert("notes", note(2))
        var again = stage.launchedAgain().live(Note.self, after: position, window: .immediate).makeAsyncIterator()
        #expect(await again.changes().map(\.id) == [2])
    }

    @Test func `the client keeps the position for apps that save nothing with it`() async {
        let stage = Stage()
        do {
            var batches = stage.tidewire.live(Note.self, keptAs: "notes", window: .immediate).makeAsyncIterator()
            stage.hub.insert("notes", note(1))
            _ = await batches.changes()
            stage.hub.insert("notes", note(2))
            // When the app asks for the next batch, it confirms that it has processed the previous one.
            _ = await batches.changes()
        }
        var again = stage.launchedAgain().live(Note.self, keptAs: "notes", window: .immediate).makeAsyncIterator()
        #expect(await again.changes().map(\.id) == [2])
    }

    @Test func `what cannot be told any more is fetched, and changes come behind it`() async {
        let stage = Stage()
        var batches = stage.tidewire.live(Note.self, window: .immediate) {
            [Note(id: 100, owner: "ana", text: "fetched")]
        }.makeAsyncIterator()
        #expect(await batches.next()?.rows?.map(\.id) == [100])
        stage.hub.loseHistory()
        stage.clock.advance(by: .milliseconds(500))
        stage.hub.insert("notes", note(7))
        var seen: [String] = []
        while seen.last != "7" {
            guard let batch = await batches.next() else { break }
            if batch.rows != nil { seen.append("fetched") }
            seen += batch.changes.map { "\($0.id)" }
        }
        #expect(seen == ["fetched", "7"])
    }

    @Test func `against a server without positions each rejoin fetches, and live events are kept meanwhile`() async {
        let stage = Stage()
        stage.hub.forgetPositions()
        var batches = stage.tidewire.live(Note.self, window: .immediate) { [] }.makeAsyncIterator()
        #expect(await batches.next()?.rows != nil)
        stage.hub.cut()
        stage.clock.advance(by: .milliseconds(500))
        stage.hub.insert("notes", note(1))
        var seen: [String] = []
        while seen.last != "1" {
            guard let batch = await batches.next() else { break }
            if batch.rows != nil { seen.append("fetched") }
            seen += batch.changes.map { "\($0.id)" }
        }
        #expect(seen == ["fetched", "1"])
    }

    @Test func `equal queries share one subscription, and the last one that goes ends it`() async {
        let stage = Stage()
        do {
            var one = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
            do {
                var two = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
                #expect(stage.hub.openChannels == 1)
                stage.hub.insert("notes", note(1))
                #expect(await two.changes().map(\.id) == [1])
            }
            #expect(stage.hub.openChannels == 1)
            #expect(await one.changes().map(\.id) == [1])
        }
        #expect(stage.hub.openChannels == 0 && stage.hub.openConnections == 0)
    }

    @Test func `a row that cannot be read is reported, and the others come`() async {
        let stage = Stage()
        var batches = stage.tidewire.live(Note.self).makeAsyncIterator()
        stage.hub.insert("notes", ["id": "no number", "owner": "ana", "text": ""])
        stage.hub.insert("notes", note(2))
        stage.clock.advance(by: .seconds(1))
        var batch: LiveBatch<Note>?
        repeat { batch = await batches.next() } while batch?.changes.isEmpty == true
        #expect(batch?.changes.map(\.id) == [2])
        #expect(batch?.unreadableRows.map(\.reason) == ["id: expected Int, found a text"])
    }

    @Test func `a large value that an update left alone is that of the last version`() async {
        let stage = Stage()
        var batches = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        let large = String(repeating: "x", count: 3000)
        stage.hub.insert("notes", note(1, large))
        stage.hub.tell([
            "schema": "public", "table": "notes", "type": "UPDATE", "commit_timestamp": "2026-01-02T00:00:00.000Z",
            "columns": [["name": "id"], ["name": "owner"], ["name": "text"]], "record": ["id": 1, "owner": "ben"],
            "old_record": ["id": 1], "errors": nil,
        ])
        _ = await batches.changes()
        #expect(await batches.changes().first?.row == Note(id: 1, owner: "ben", text: large))
    }

    @Test func `who signs out is told nothing more, and forgets where it was`() async {
        let stage = Stage()
        var batches = stage.tidewire.live(Note.self, keptAs: "notes", window: .immediate).makeAsyncIterator()
        stage.hub.insert("notes", note(1))
        stage.tidewire.signOut()
        #expect(stage.tidewire.state == .signedOut)
        #expect(await batches.next() == nil)
        stage.tidewire.signIn(token: "ben")
        stage.hub.insert("notes", note(2))
        #expect(await batches.next() == nil)
    }

    @Test func `a token that ends and its successor lose nothing`() async {
        let stage = Stage()
        var batches = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        stage.hub.expire("ana")
        guard case .offline(.tokenRefused) = stage.tidewire.state else {
            Issue.record("\(stage.tidewire.state)")
            return
        }
        stage.hub.insert("notes", note(1))
        stage.tidewire.signIn(token: "ana again")
        #expect(await batches.changes().map(\.id) == [1])
        #expect(stage.tidewire.state == .live)
    }

    @Test func `who takes nothing for long loses nothing and takes no memory without end`() async {
        let stage = Stage(waiting: 20)
        var batches = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        let count = 75
        for id in 1...count { stage.hub.insert("notes", note(id)) }
        var last = 0
        while last < count {
            for change in await batches.changes() {
                if change.id != last + 1 { Issue.record("\(change.id) behind \(last)") }
                last = change.id
            }
        }
        #expect(last == count)
    }

    @Test func `a batch of several tables keeps the order of commits`() async {
        let stage = Stage()
        let tables = stage.tidewire.changes(of: [TableBinding(table: "notes"), TableBinding(table: "tags")])
            .makeAsyncIterator()
        stage.hub.commit([("notes", [:], note(1)), ("tags", [:], note(1)), ("notes", note(1), note(1, "b"))])
        stage.clock.advance(by: .milliseconds(300))
        var batch: TableBatch?
        repeat { batch = await tables.next() } while batch?.changes.isEmpty == true
        #expect(batch?.changes.map(\.table) == ["notes", "tags", "notes"])
    }

    @Test func `going to the background hands over what waits for its batch`() async {
        let stage = Stage()
        var batches = stage.tidewire.live(Note.self, window: .bulk).makeAsyncIterator()
        stage.hub.insert("notes", note(1))
        stage.tidewire.enterBackground()
        #expect(await batches.changes().map(\.id) == [1])
    }

    @Test func `another person's token signs the former out`() async {
        // The payloads are {"sub":"ana"} and {"sub":"ben"}, without valid signatures.
        let stage = Stage(token: "e30.eyJzdWIiOiJhbmEifQ.x")
        var batches = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        stage.tidewire.signIn(token: "e30.eyJzdWIiOiJhbmEifQ.y")
        stage.hub.insert("notes", note(1))
        #expect(await batches.changes().map(\.id) == [1])
        stage.tidewire.signIn(token: "e30.eyJzdWIiOiJiZW4ifQ.x")
        #expect(await batches.next() == nil)
        #expect(stage.hub.openChannels == 0)
    }

    @Test func `who joins in before the first answer fetches when changes have begun to come`() async {
        let stage = Stage()
        stage.hub.hold()
        var one = stage.tidewire.live(Note.self, window: .immediate) { [] }.makeAsyncIterator()
        var two = stage.tidewire.live(Note.self, window: .immediate) { [] }.makeAsyncIterator()
        stage.hub.release()
        #expect(await one.next()?.position == LogPosition("e1.0"))
        #expect(await two.next()?.position == LogPosition("e1.0"))
        #expect(stage.hub.openChannels == 1)
    }

    @Test func `a position that was refused is not saved again`() async {
        let stage = Stage()
        let batches = stage.tidewire.changes(of: [TableBinding(table: "notes")], after: LogPosition("old.5"))
            .makeAsyncIterator()
        let refused = await batches.next()
        #expect(refused?.refetchReason == .epochChanged)
        #expect(refused?.position == LogPosition("e1.0"))
    }

    @Test func `a client that is let go closes its connection`() async throws {
        let hub = MemoryHub()
        do {
            let tidewire = Tidewire(hub: hub, token: "ana", clock: ManualClock())
            let room = tidewire.room("lobby")
            try await room.join()
            #expect(hub.openConnections == 1)
            withExtendedLifetime(room) {}
        }
        #expect(hub.openConnections == 0)
    }
}
