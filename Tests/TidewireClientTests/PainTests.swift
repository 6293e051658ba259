import Foundation
import TestSupport
import Testing
import TidewireClientTesting

@testable import TidewireClient

private struct Friend: LiveRow, Equatable {
    static let table = "notes"
    let id: UUID
    let owner: UUID
    struct Columns: Sendable { let owner = LiveColumn<UUID>("owner") }
    static let columns = Columns()
}

/// Tests of common complaints about realtime services, in the words of app authors, for cases without a server.
@Suite(.within(minutes: 5)) struct PainTests {
    /// Returns the next changed row.
    private func next(_ batches: inout LiveChanges<Note>.Iterator) async -> Note? {
        await batches.changes().first?.row
    }

    @Test func `no message is lost between the history's fetch and the subscription`() async {
        let stage = Stage()
        let hub = stage.hub
        hub.insert("notes", note(1))
        var batches = stage.tidewire.live(Note.self, window: .immediate) {
            // This row is inserted after the history was read, and before the app has received the history.
            hub.insert("notes", note(2))
            return [Note(id: 1, owner: "ana", text: "")]
        }.makeAsyncIterator()
        var shown: [Int] = []
        while shown.count < 2, let batch = await batches.next() {
            shown += (batch.rows ?? []).map(\.id) + batch.changes.map(\.id)
        }
        #expect(shown == [1, 2])
    }

    @Test func `events do not stop because nobody retained a channel or a token`() async {
        let stage = Stage()
        func begin() -> LiveChanges<Note>.Iterator {
            stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        }
        var batches = begin()
        stage.hub.insert("notes", note(1))
        #expect(await next(&batches)?.id == 1)
    }

    @Test func `a UUID in capitals and one in small letters are the same person`() throws {
        let me = try #require(UUID(uuidString: "22978663-6C1A-4D48-A717-BA5F18E9A1BB"))
        let row = try RowImage(["id": .string(me.uuidString.lowercased()), "owner": .string(me.uuidString)])
            .decode(Friend.self)
        #expect(row == Friend(id: me, owner: me))
        let filter: LiveFilter<Friend> = \.owner == me
        #expect(filter.text == "owner=eq.22978663-6c1a-4d48-a717-ba5f18e9a1bb")
    }

    @Test func `going to another tab and back leaves no subscription behind and makes none twice`() async {
        let stage = Stage()
        for _ in 0..<3 {
            var batches = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
            stage.hub.insert("notes", note(1))
            #expect(await next(&batches)?.id == 1)
            #expect(stage.hub.openChannels == 1)
        }
        #expect(stage.hub.openChannels == 0)
    }

    @Test func `two instances of a service each hear what happens`() async {
        let stage = Stage()
        var one = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        var other = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        stage.hub.insert("notes", note(1))
        #expect(await next(&one)?.id == 1)
        #expect(await next(&other)?.id == 1)
    }

    @Test func `a caption that is edited is told, not only rows that come and go`() async {
        let stage = Stage()
        var batches = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        stage.hub.insert("notes", note(1, "caption"))
        #expect(await next(&batches)?.text == "caption")
        stage.hub.update("notes", from: note(1, "caption"), to: note(1, "edited"))
        #expect(await next(&batches)?.text == "edited")
    }
}
