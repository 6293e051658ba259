import TestSupport
import Testing
import TidewireClientTesting

@testable import TidewireClient

@Suite(.within(minutes: 5)) struct RoomTests {
    private func other(_ stage: Stage, _ token: String) -> Tidewire {
        Tidewire(url: stage.hub.url, key: "key", token: token, transport: stage.hub, clock: stage.clock, seed: 3)
    }

    @Test func `what is said reaches the others`() async {
        let stage = Stage()
        let ben = other(stage, "ben")
        let (here, there) = (stage.tidewire.room("lobby"), ben.room("lobby"))
        let events = there.events.makeAsyncIterator()
        #expect(await here.send("cursor", ["x": 1]) == nil)
        #expect(await events.next() == .message(event: "cursor", payload: ["x": 1], bytes: nil))
    }

    @Test func `while the room is not joined a message is dropped, kept or refused, as the app says`() async {
        let stage = Stage()
        let ben = other(stage, "ben")
        let (here, there) = (stage.tidewire.room("lobby"), ben.room("lobby"))
        stage.hub.refuseConnections(.unreachable("away"))
        stage.hub.cut()
        #expect(await here.send("dropped", [:]) == nil)
        #expect(await here.send("refused", [:], whenOffline: .fail)?.code == "NotJoined")
        #expect(await here.send("kept", [:], whenOffline: .queue(atMost: .seconds(600))) == nil)
        #expect(await here.send("kept for a moment", [:], whenOffline: .queue(atMost: .milliseconds(1))) == nil)
        let events = there.events.makeAsyncIterator()
        stage.clock.advance(by: .seconds(5))
        stage.hub.refuseConnections(nil)
        stage.clock.advance(by: .seconds(60))
        var said: [String] = []
        while said.isEmpty, let event = await events.next() {
            if case .message(let name, _, _) = event { said.append(name) }
        }
        #expect(said == ["kept"])
    }

    @Test func `who is present is seen, tracked again after a rejoin, and whoever vanished meanwhile has left`() async {
        let stage = Stage()
        let ben = other(stage, "ben")
        let here = stage.tidewire.room("lobby", presenceKey: "ana")
        do {
            let there = ben.room("lobby", presenceKey: "ben")
            here.track(["name": "Ana"])
            there.track(["name": "Ben"])
            #expect(Set(here.presences.keys) == ["ana", "ben"])
            stage.hub.refuseConnections(.unreachable("away"))
            stage.hub.cut()
        }
        let events = here.events.makeAsyncIterator()
        stage.hub.refuseConnections(nil)
        stage.clock.advance(by: .seconds(31))
        #expect(Set(here.presences.keys) == ["ana"])
        var left: [String] = []
        while left.isEmpty, let event = await events.next() {
            if case .presence(_, let gone, _) = event { left += gone.keys.filter { $0 == "ben" } }
        }
        #expect(left == ["ben"])
    }

    @Test func `a room that is let go is left`() {
        let stage = Stage()
        do {
            let room = stage.tidewire.room("lobby")
            #expect(stage.hub.openChannels == 1)
            withExtendedLifetime(room) {}
        }
        #expect(stage.hub.openChannels == 0)
    }
}

@Suite(.within(minutes: 5)) struct LiveQueryTests {
    @Test func `a query is what the table is, in its order`() throws {
        try onThisThread { await inOrder() }
    }

    @MainActor private func inOrder() {
        let stage = Stage()
        let query = LiveQuery(stage.tidewire, Note.self) { $0.id > $1.id }
        var batch = LiveBatch<Note>()
        batch.rows = [1, 2].map { Note(id: $0, owner: "ana", text: "") }
        query.take(batch)
        #expect(query.rows.map(\.id) == [2, 1])
        batch = LiveBatch()
        batch.changes = [
            .inserted(Note(id: 3, owner: "ana", text: "")), .left(2, was: nil), .deleted(9, was: nil),
            .updated(Note(id: 1, owner: "ana", text: "new"), was: nil),
        ]
        batch.isCaughtUp = true
        query.take(batch)
        #expect(query.rows.map(\.id) == [3, 1])
        #expect(query.rows.last?.text == "new" && query.isCaughtUp)
    }

    @Test func `counts follow rows by their keys`() async {
        let stage = Stage()
        var counts = stage.tidewire.count(Note.self, by: \.owner, window: .immediate) {
            [Note(id: 1, owner: "ana", text: "")]
        }.makeAsyncIterator()
        #expect(await counts.next()?.counts == ["ana": 1])
        stage.hub.insert("notes", note(1))
        #expect(await counts.next()?.counts == ["ana": 1])
        stage.hub.update("notes", from: note(1), to: note(1, owner: "ben"))
        #expect(await counts.next()?.counts == ["ben": 1])
        stage.hub.delete("notes", note(1, owner: "ben"))
        #expect(await counts.next()?.counts == [:])
    }
}
