import Foundation
import Synchronization
import TestSupport
import Testing
import TidewireClientTesting

@testable import TidewireClient

private struct Move: Codable, Sendable, Hashable {
    var id = UUID(uuidString: "00000000-0000-4000-8000-00000000A0A0")
    var playerID = 9_007_199_254_740_993
    var price = Decimal(string: "12345678901234567890.123")
    var madeAt = Date(timeIntervalSince1970: 1_700_000_000.123456)
    var image = Data([0, 10, 255])
}

@Suite(.within(minutes: 5)) struct RoomMessagesTests {
    private let stage = Stage()

    private func other() -> Tidewire {
        Tidewire(hub: stage.hub, token: "ben", clock: stage.clock, seed: 3)
    }

    /// Returns a room that the client has joined.
    private func joined(_ tidewire: Tidewire) async throws -> TidewireRoom {
        let room = tidewire.room("board")
        try await room.join()
        return room
    }

    @Test func `a value of the app's type arrives as it was sent`() async throws {
        let (here, there) = (try await joined(stage.tidewire), try await joined(other()))
        let moves = there.messages(event: "move", as: Move.self).makeAsyncIterator()
        try await here.send(Move(), event: "noise")
        try await here.send(Move(), event: "move")
        #expect(try await moves.next() == Move())
        #expect(stage.hub.messages.last?.payload["payload"]?["playerID"] == .number("9007199254740993"))
    }

    @Test func `a literal is sent as JSON, and received as such`() async throws {
        let (here, there) = (try await joined(stage.tidewire), try await joined(other()))
        let moves = there.messages(event: "move").makeAsyncIterator()
        try await here.send(["x": 1, "name": "queen", "none": nil], event: "move")
        #expect(try await moves.next() == ["x": 1, "name": "queen", "none": nil])
        try await here.send(JSONValue.number("1e400"), event: "move")
        #expect(try await moves.next() == .number("1e400"))
    }

    @Test func `a value that cannot be JSON is not sent`() async throws {
        let here = try await joined(stage.tidewire)
        await #expect(throws: EncodingError.self) { try await here.send([Double.infinity], event: "move") }
        #expect(!stage.hub.messages.contains { $0.event == "broadcast" })
    }

    @Test func `columns of a row that the database sends match in their own spelling`() async throws {
        struct Reminder: Decodable, Sendable {
            let ownerID: UUID
            let dueAt: Date
        }
        let reminders = try await joined(stage.tidewire).messages(event: "INSERT", as: Reminder.self)
            .makeAsyncIterator()
        stage.hub.broadcast(
            ["owner_id": "00000000-0000-4000-8000-00000000a0a0", "due_at": "2026-03-01T10:20:30.5+00:00"],
            event: "INSERT", to: "board")
        let reminder = try await reminders.next()
        #expect(reminder?.ownerID == Move().id)
        #expect(reminder?.dueAt == Date(timeIntervalSince1970: 1_772_360_430.5))
    }

    @Test func `a payload that does not fit throws its place, and the next one is read`() async throws {
        let room = try await joined(stage.tidewire)
        let moves = room.messages(event: "move", as: [String: Int].self).makeAsyncIterator()
        stage.hub.broadcast(["x": "secret"], event: "move", to: "board")
        stage.hub.broadcast(bytes: [1, 2], event: "move", to: "board")
        stage.hub.broadcast(["x": 1], event: "move", to: "board")
        let error = try await #require(throws: RoomMessageError.self) { try await moves.next() }
        guard case .unreadable(let message) = error else { throw error }
        #expect(message.event == "move" && message.payload == ["x": "secret"])
        #expect(message.reason.contains("x") && message.reason.contains("Int") && !message.reason.contains("secret"))
        let bytes = try await #require(throws: RoomMessageError.self) { try await moves.next() }
        #expect("\(bytes)".contains("expected JSON, found bytes"))
        #expect(try await moves.next() == ["x": 1])
    }

    @Test func `with a closure for skipped messages the sequence goes on by itself`() async throws {
        let skipped = Mutex<[RoomMessageError]>([])
        let room = try await joined(stage.tidewire)
        let moves = room.messages(event: "move", as: Int.self) { error in skipped.withLock { $0.append(error) } }
            .makeAsyncIterator()
        let limit = TidewireRoom.maximumUnheard
        stage.hub.broadcast("no number", event: "move", to: "board")
        for number in 1..<limit + 3 { stage.hub.broadcast(.number("\(number)"), event: "move", to: "board") }
        for number in 1..<limit { #expect(try await moves.next() == number) }
        stage.hub.broadcast(0, event: "move", to: "board")
        #expect(try await moves.next() == 0)
        let errors = skipped.withLock { $0 }
        #expect(errors.count == 2 && errors.last == .missed(3))
    }

    @Test func `messages that a slow app missed are told by an error, not by silence`() async throws {
        let moves = try await joined(stage.tidewire).messages(event: "move").makeAsyncIterator()
        let limit = TidewireRoom.maximumUnheard
        for number in 0..<limit + 2 {
            stage.hub.broadcast(.number("\(number)"), event: "move", to: "board")
            // Messages of other events use no room in the buffer.
            stage.hub.broadcast(1, event: "noise", to: "board")
        }
        for _ in 0..<limit { _ = try await moves.next() }
        await #expect(throws: RoomMessageError.missed(2)) { try await moves.next() }
    }

    @Test func `a sequence receives messages from its creation on, also before the join`() async throws {
        let room = stage.tidewire.room("board")
        let (moves, events) = (room.messages(event: "move"), room.events)
        try await room.join()
        stage.hub.broadcast(1, event: "move", to: "board")
        #expect(try await moves.makeAsyncIterator().next() == 1)
        #expect(await events.makeAsyncIterator().next() == .joined)
        #expect(await events.makeAsyncIterator().next() == .message(event: "move", payload: 1, bytes: nil))
    }

    @Test func `a user who loses the rights on a room is told by the sequence`() async throws {
        let moves = try await joined(stage.tidewire).messages(event: "move").makeAsyncIterator()
        stage.hub.announce(code: "NotPublished", "of no importance here")
        stage.hub.announce(code: "RightsLost", "You no longer have permission")
        let problem = TidewireProblem(
            code: "RightsLost", message: "You no longer have permission", severity: .error)
        await #expect(throws: RoomError.refused(problem)) { try await moves.next() }
    }

    @Test func `a loop that is cancelled leaves the messages to the next one, and two loops share them`() throws {
        try onThisThread {
            let room = try await joined(stage.tidewire)
            let moves = room.messages(event: "move", as: Int.self)
            let outcomes = Outcomes()
            func begin() -> Task<Void, Never> {
                onMainThread {
                    let iterator = moves.makeAsyncIterator()
                    while let move = try? await iterator.next() { await outcomes.note("\(move)") {} }
                }
            }
            let first = begin()
            stage.hub.broadcast(1, event: "move", to: "board")
            #expect(await eventually { outcomes.count == 1 })
            first.cancel()
            await first.value
            stage.hub.broadcast(2, event: "move", to: "board")
            let both = [begin(), begin()]
            for number in 3...6 { stage.hub.broadcast(.number("\(number)"), event: "move", to: "board") }
            #expect(await eventually { outcomes.count == 6 })
            room.leave()
            for loop in both { await loop.value }
        }
    }

    @Test func `signing out ends the sequence`() async throws {
        let moves = try await joined(stage.tidewire).messages(event: "move").makeAsyncIterator()
        stage.tidewire.signOut()
        #expect(try await moves.next() == nil)
    }
}
