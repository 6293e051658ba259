import Foundation
import Synchronization
import TestSupport
import Testing
import TidewireClientTesting

@testable import TidewireClient

/// Results of sends, by name: "sent", or the error's text.
final class Outcomes: Sendable {
    private let outcomes = Mutex<[String: String]>([:])

    subscript(name: String) -> String? { outcomes.withLock { $0[name] } }
    var count: Int { outcomes.withLock { $0.count } }

    func note(_ name: String, _ send: () async throws -> Void) async {
        let outcome: String
        do {
            try await send()
            outcome = "sent"
        } catch {
            outcome = "\(error)"
        }
        outcomes.withLock { $0[name] = outcome }
    }
}

@Suite(.within(minutes: 5)) struct RoomTests {
    private func other(_ stage: Stage, _ token: String) -> Tidewire {
        Tidewire(hub: stage.hub, token: token, clock: stage.clock, seed: 3)
    }

    /// Returns a room that the client has joined.
    private func joined(
        _ tidewire: Tidewire, _ topic: String = "lobby", key: String? = nil
    ) async throws -> TidewireRoom {
        let room = tidewire.room(topic, presenceKey: key)
        try await room.join()
        return room
    }

    /// Returns the event names of the next messages.
    private func messages(_ events: TidewireRoom.Events.Iterator, _ count: Int) async -> [String] {
        var names: [String] = []
        while names.count < count, let event = await events.next() {
            if case .message(let name, _, _) = event { names.append(name) }
        }
        return names
    }

    @Test func `what is said reaches the others`() async throws {
        let stage = Stage()
        let (here, there) = (try await joined(stage.tidewire), try await joined(other(stage, "ben")))
        let events = there.events.makeAsyncIterator()
        try await here.send(["x": 1], event: "cursor")
        #expect(await events.next() == .message(event: "cursor", payload: ["x": 1], bytes: nil))
    }

    @Test func `a message to a room that is not joined throws, or is dropped if the app says so`() async throws {
        let stage = Stage()
        let (here, there) = (try await joined(stage.tidewire), try await joined(other(stage, "ben")))
        let events = there.events.makeAsyncIterator()
        stage.hub.refuseConnections(.unreachable("away"))
        stage.hub.cut()
        await #expect(throws: RoomError.notJoined) { try await here.send([:], event: "refused") }
        try await here.send([:], event: "dropped", whenOffline: .drop)
        stage.hub.refuseConnections(nil)
        stage.clock.advance(by: .seconds(60))
        try await here.send([:], event: "afterwards")
        #expect(await messages(events, 1) == ["afterwards"])
    }

    @Test func `messages wait for the join in order, and throw if it comes too late`() throws {
        try onThisThread {
            let stage = Stage()
            let (here, there) = (try await joined(stage.tidewire), try await joined(other(stage, "ben")))
            let events = there.events.makeAsyncIterator()
            stage.hub.refuseConnections(.unreachable("away"))
            stage.hub.cut()
            let outcomes = Outcomes()
            var sends: [Task<Void, Never>] = []
            for (number, name) in ["first", "hasty", "second", "cancelled"].enumerated() {
                let patience = name == "hasty" ? Duration.milliseconds(1) : .seconds(600)
                sends.append(
                    onMainThread {
                        await outcomes.note(name) {
                            try await here.send([:], event: name, whenOffline: .queue(atMost: patience))
                        }
                    })
                #expect(await eventually { here.waitingMessages == number + 1 })
            }
            sends[3].cancel()
            stage.clock.advance(by: .seconds(5))
            #expect(await eventually { outcomes["hasty"] == "\(RoomError.expired)" })
            #expect(await eventually { outcomes["cancelled"] == "\(CancellationError())" })
            #expect(outcomes["first"] == nil && outcomes["second"] == nil)
            stage.hub.refuseConnections(nil)
            stage.clock.advance(by: .seconds(60))
            #expect(await messages(events, 2) == ["first", "second"])
            #expect(await eventually { outcomes["first"] == "sent" && outcomes["second"] == "sent" })
        }
    }

    @Test func `at most 100 messages wait, and the next one throws`() throws {
        try onThisThread {
            let stage = Stage()
            let here = try await joined(stage.tidewire)
            stage.hub.refuseConnections(.unreachable("away"))
            stage.hub.cut()
            let outcomes = Outcomes()
            for number in 0..<TidewireRoom.maximumWaiting {
                _ = onMainThread {
                    await outcomes.note("\(number)") {
                        try await here.send([:], event: "kept", whenOffline: .queue(atMost: .seconds(600)))
                    }
                }
            }
            #expect(await eventually { here.waitingMessages == TidewireRoom.maximumWaiting })
            await #expect(throws: RoomError.tooManyWaiting) {
                try await here.send([:], event: "one more", whenOffline: .queue(atMost: .seconds(600)))
            }
            // A sign-out ends the wait of all remaining sends.
            stage.tidewire.signOut()
            #expect(await eventually { outcomes.count == TidewireRoom.maximumWaiting })
            #expect(outcomes["7"] == "\(RoomError.signedOut)")
        }
    }

    @Test func `a message that the server refuses throws what the app can do`() async throws {
        let stage = Stage()
        let here = try await joined(stage.tidewire)
        stage.hub.refuseMessages(.tooLarge)
        let tooLarge = try await #require(throws: RoomError.self) { try await here.send([:], event: "large") }
        guard case .tooLarge = tooLarge else { throw tooLarge }
        stage.hub.refuseMessages(.tooMany)
        let tooMany = try await #require(throws: RoomError.self) { try await here.send([:], event: "many") }
        guard case .rateLimited(let problem) = tooMany else { throw tooMany }
        #expect(problem.code == "TooManyMessages")
        #expect("\(tooMany)".contains("send fewer"))
        // The room joins again by itself, without a call of the app.
        await #expect(throws: RoomError.notJoined) { try await here.send([:], event: "too soon") }
        stage.hub.refuseMessages(nil)
        stage.clock.advance(by: .seconds(1))
        try await here.send([:], event: "later")
    }

    @Test func `a message without an answer throws that it may have arrived, or that the server dropped it`() throws {
        try onThisThread {
            let stage = Stage()
            let here = try await joined(stage.tidewire)
            let outcomes = Outcomes()
            func begin(_ name: String) async -> Bool {
                _ = onMainThread { await outcomes.note(name) { try await here.send([:], event: name) } }
                return await eventually { stage.hub.messages.contains { $0.payload["event"]?.text == name } }
            }
            stage.hub.refuseMessages(.noRight)
            #expect(await begin("forbidden"))
            stage.clock.advance(by: .seconds(10))
            #expect(await eventually { outcomes["forbidden"]?.contains("you may not write to this channel") == true })
            stage.hub.refuseMessages(nil)
            stage.hub.hold()
            #expect(await begin("cut off"))
            stage.hub.cut()
            stage.hub.release()
            #expect(await eventually { outcomes["cut off"] != nil })
        }
    }

    @Test func `a slow listener is told how many events it missed`() async throws {
        let stage = Stage()
        let here = try await joined(stage.tidewire)
        let events = here.events.makeAsyncIterator()
        let limit = TidewireRoom.maximumUnheard
        for number in 0..<limit + 5 { stage.hub.broadcast(.number("\(number)"), event: "n", to: "lobby") }
        var last: TidewireRoom.Event?
        for _ in 0..<limit { last = await events.next() }
        #expect(last == .message(event: "n", payload: .number("\(limit - 1)"), bytes: nil))
        stage.hub.broadcast("after", event: "n", to: "lobby")
        #expect(await events.next() == .missed(5))
        #expect(await events.next() == .message(event: "n", payload: "after", bytes: nil))
    }

    @Test func `who is present is seen, tracked again after a rejoin, and whoever vanished meanwhile has left`()
        async throws
    {
        let stage = Stage()
        let ben = other(stage, "ben")
        let here = try await joined(stage.tidewire, key: "ana")
        do {
            let there = try await joined(ben, key: "ben")
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

    @Test func `a room that is let go is left`() async throws {
        let stage = Stage()
        do {
            let room = try await joined(stage.tidewire)
            #expect(stage.hub.openChannels == 1)
            withExtendedLifetime(room) {}
        }
        #expect(stage.hub.openChannels == 0)
    }

    @Test func `a room is joined by join, once, and left by leave`() async throws {
        let stage = Stage()
        let room = stage.tidewire.room("lobby", presenceKey: "ana")
        room.track(["name": "Ana"])
        #expect(!room.isJoined && stage.hub.connections == 0)
        await #expect(throws: RoomError.notJoined) { try await room.send([:], event: "early") }
        let events = room.events.makeAsyncIterator()
        try await room.join()
        try await room.join()
        #expect(room.isJoined && stage.hub.openChannels == 1)
        #expect(room.presences == ["ana": [["name": "Ana"]]])
        room.leave()
        #expect(!room.isJoined && stage.hub.openChannels == 0 && room.presences.isEmpty)
        await #expect(throws: RoomError.notJoined) { try await room.send([:], event: "late") }
        var last: TidewireRoom.Event?
        while let event = await events.next() { last = event }
        #expect(last != nil, "the sequence ends behind the events that came before")
        try await room.join()
        #expect(room.isJoined && stage.hub.messages.filter { $0.event == "phx_join" }.count == 2)
        try await room.send([:], event: "again")
    }

    @Test func `a join waits for the network, until its task is cancelled`() throws {
        try onThisThread {
            let stage = Stage()
            stage.hub.refuseConnections(.unreachable("away"))
            let room = stage.tidewire.room("lobby")
            let outcomes = Outcomes()
            let first = onMainThread { await outcomes.note("first") { try await room.join() } }
            #expect(await eventually { stage.hub.connections == 1 })
            first.cancel()
            #expect(await eventually { outcomes["first"] == "\(CancellationError())" })
            #expect(stage.tidewire.state == .offline(.nothingSubscribed))
            _ = onMainThread { await outcomes.note("second") { try await room.join() } }
            #expect(await eventually { stage.hub.connections == 2 })
            #expect(outcomes["second"] == nil)
            stage.hub.refuseConnections(nil)
            stage.clock.advance(by: .seconds(60))
            #expect(await eventually { outcomes["second"] == "sent" })
            #expect(room.isJoined)
        }
    }

    @Test func `a join waits for the next token if the first has expired`() throws {
        try onThisThread {
            let stage = Stage()
            stage.hub.expire("ana")
            let room = stage.tidewire.room("lobby")
            let outcomes = Outcomes()
            _ = onMainThread { await outcomes.note("join") { try await room.join() } }
            #expect(
                await eventually {
                    if case .offline(.tokenRefused) = stage.tidewire.state { true } else { false }
                })
            stage.tidewire.signIn(token: "ana again")
            #expect(await eventually { outcomes["join"] == "sent" })
        }
    }

    @Test func `a join throws if the user may not join, and a room whose rights end is left`() async throws {
        let stage = Stage()
        let room = try await joined(stage.tidewire)
        let (moves, events) = (room.messages(event: "move").makeAsyncIterator(), room.events.makeAsyncIterator())
        stage.hub.refuseRoom("lobby")
        let lost = try await #require(throws: RoomError.self) { try await moves.next() }
        guard case .refused(let problem) = lost else { throw lost }
        #expect(problem.code == "RightsLost")
        #expect(try await moves.next() == nil)
        #expect(await events.next() == .problem(problem))
        #expect(await events.next() == nil)
        let refused = try await #require(throws: RoomError.self) { try await room.join() }
        guard case .refused(let reason) = refused else { throw refused }
        #expect(reason.code == "Unauthorized" && !room.isJoined)
        #expect(stage.tidewire.state == .offline(.nothingSubscribed))
    }

    @Test func `without a user there is no join, and signing out leaves the room`() async throws {
        let stage = Stage(token: nil)
        let room = stage.tidewire.room("lobby")
        await #expect(throws: RoomError.signedOut) { try await room.join() }
        stage.tidewire.signIn(token: "ana")
        try await room.join()
        stage.tidewire.signOut()
        #expect(!room.isJoined && stage.hub.openChannels == 0)
    }

    @Test func `the walk-through of the documentation ends as it says`() throws {
        try onThisThread { try await Documented.sharedList(list: UUID()) }
    }

    @Test func `a second room object takes over the topic, and the first one is told`() async throws {
        let stage = Stage()
        let first = try await joined(stage.tidewire)
        let moves = first.messages(event: "move").makeAsyncIterator()
        let second = try await joined(stage.tidewire)
        #expect(try await moves.next() == nil)
        #expect(!first.isJoined && second.isJoined)
        await #expect(throws: RoomError.notJoined) { try await first.send([:], event: "move") }
        try await second.send([:], event: "move")
        first.leave()
        #expect(second.isJoined && stage.hub.openChannels == 1)
    }
}

@Suite(.within(minutes: 5)) struct LiveQueryTests {
    @Test func `a query is what the table is, in its order`() throws {
        try onThisThread { await inOrder() }
    }

    @MainActor private func inOrder() {
        let stage = Stage()
        let query = LiveQuery(of: Note.self, from: stage.tidewire) { $0.id > $1.id }
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

    @Test func `a row leaves a query when its time has come`() async throws {
        let stage = Stage()
        let start = Date()
        let query = await MainActor.run {
            let query = LiveQuery(
                of: Note.self, from: stage.tidewire, leavesAt: { $0.id == 1 ? nil : start + ($0.id == 2 ? -1 : 0.2) }
            ) { $0.id < $1.id }
            var batch = LiveBatch<Note>()
            batch.rows = [1, 2, 3].map { Note(id: $0, owner: "ana", text: "") }
            query.take(batch)
            return query
        }
        #expect(await query.rows.map(\.id) == [1, 3])
        while Date() < start + 0.3 { try await Task.sleep(for: .milliseconds(20)) }
        #expect(await query.rows.map(\.id) == [1, 3])
        stage.clock.advance(by: .seconds(1))
        for _ in 0..<500 where await query.rows.count > 1 { try await Task.sleep(for: .milliseconds(10)) }
        #expect(await query.rows.map(\.id) == [1])
    }

    @Test func `counts follow rows by their keys`() async {
        let stage = Stage()
        var counts = stage.tidewire.counts(of: Note.self, by: \.owner, window: .immediate) {
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
