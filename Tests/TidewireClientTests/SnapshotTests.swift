import TestSupport
import Testing
import TidewireClientTesting

@testable import TidewireClient

/// Tests of the client's state machine with channels that begin with the existing rows.
@Suite(.within(minutes: 5)) struct SnapshotMachineTests {
    private func opened(at position: LogPosition? = nil) -> (Conversation, ref: String) {
        var talk = Conversation()
        var request = Conversation.request(at: position)
        request.wantsRows = true
        talk.on(.subscribe(1, request))
        let joined = talk.on(.opened).sent
        #expect(options(joined.first)?["snapshot"] == true)
        return (talk, joined.first?.ref ?? "")
    }

    private func options(_ message: ClientMessage?) -> JSONValue? {
        message?.payload["config"]?["broadcast"]?["tidewire"]
    }

    private func joins(_ actions: [ClientMachine.Action]) -> [ClientMessage] {
        actions.sent.filter { $0.event == "phx_join" }
    }

    @Test func `rows come first, then what changes behind them`() {
        var (talk, ref) = opened()
        #expect(talk.admit(ref, at: "e.3").told == [.joined(recovered: false, at: LogPosition("e.3")), .rowsBegin])
        #expect(talk.hearRow(1).told.rowIDs == ["1"])
        #expect(talk.hearRow(2).told.rowIDs == ["2"])
        #expect(talk.machine.state == .catchingUp(1))
        #expect(talk.hearComplete("e.5", ref).told == [.rowsEnd(nil, at: LogPosition(epoch: "e", offset: 5))])
        #expect(talk.hearCaughtUp("e.6", joinRef: ref).told == [.caughtUp(LogPosition("e.6"))])
        #expect(talk.hearChange(3, at: "e.7", behind: "e.6").rows == ["3"])
        // From there, the channel resumes like any other.
        talk.on(.interrupted(.closed(code: 1012, reason: "")))
        talk.wait(.milliseconds(500))
        #expect(options(joins(talk.on(.opened)).first)?["resume"] == "e.7")
    }

    @Test func `a connection that ends among the rows begins anew`() {
        var (talk, ref) = opened()
        talk.admit(ref, at: "e.3")
        talk.hearRow(1)
        talk.on(.interrupted(.unreachable("gone")))
        talk.wait(.milliseconds(500))
        let again = joins(talk.on(.opened))
        #expect(options(again.first)?["resume"] == nil)
        #expect(
            talk.admit(again.first?.ref ?? "", at: "e.4").told == [
                .joined(recovered: false, at: LogPosition("e.4")), .rowsBegin,
            ])
    }

    @Test func `a position that is too old is answered with rows instead of a demand to fetch`() {
        var (talk, ref) = opened(at: LogPosition("e.1"))
        let told = talk.admit(ref, at: "e.9", recovered: false).told
        #expect(told == [.joined(recovered: false, at: LogPosition("e.9")), .rowsBegin])
        talk.hearRow(1)
        #expect(
            talk.hearComplete("e.9", ref).told == [
                .rowsEnd(.olderThanRetention, at: LogPosition(epoch: "e", offset: 9))
            ])
    }

    @Test func `what could not be told is answered with rows: it leaves with a word, and joins without a position`() {
        var (talk, ref) = opened()
        talk.admit(ref, at: "e.3")
        talk.hearComplete("e.3", ref)
        talk.hearCaughtUp("e.3", joinRef: ref)
        let anew = talk.hear(
            "system", ["status": "error", "code": "ChangesMissing", "message": "some are missing"], joinRef: ref)
        #expect(anew.sent.map(\.event) == ["phx_leave", "phx_join"])
        #expect(options(anew.sent.last)?["resume"] == nil)
        // A change that answers the earlier join is ignored.
        #expect(talk.hearChange(8, at: "e.4", behind: "e.3").told == [])
        let again = anew.sent.last?.ref ?? ""
        talk.admit(again, at: "e.5")
        talk.hearRow(1)
        #expect(
            talk.hearComplete("e.5", again).told == [
                .rowsEnd(.changesMissing("some are missing"), at: LogPosition(epoch: "e", offset: 5))
            ])
    }

    @Test func `other rows that this user sees replace the rows, on the same channel`() {
        var (talk, ref) = opened()
        talk.admit(ref, at: "e.3")
        talk.hearRow(1)
        talk.hearComplete("e.3", ref)
        talk.hearCaughtUp("e.3", joinRef: ref)
        let begun = talk.hear("system", ["status": "ok", "code": "SetChanged", "message": "all follow"], joinRef: ref)
        #expect(begun.sent.isEmpty && begun.told == [.rowsBegin])
        talk.hearRow(2)
        #expect(
            talk.hearComplete("e.7", ref).told == [
                .rowsEnd(.visibilityChanged, at: LogPosition(epoch: "e", offset: 7))
            ])
        #expect(talk.hearChange(8, at: "e.8", behind: "e.7").rows == ["8"])
    }

    @Test func `a connection that breaks amid other rows asks for all rows`() {
        var (talk, ref) = opened()
        talk.admit(ref, at: "e.3")
        talk.hearComplete("e.3", ref)
        _ = talk.hear("system", ["status": "ok", "code": "SetChanged", "message": "all follow"], joinRef: ref)
        talk.on(.interrupted(.closed(code: 1012, reason: "")))
        talk.wait(.milliseconds(500))
        let join = joins(talk.on(.opened)).first
        #expect(options(join)?["resume"] == nil && options(join)?["snapshot"] == true)
    }

    @Test func `where asking again may help it does, later each time and not for ever`() {
        var (talk, ref) = opened()
        var asked = 1
        while asked < 20 {
            talk.admit(ref, at: "e.3")
            talk.hearRow(1)
            let answer = talk.hear(
                "system", ["status": "error", "code": "SnapshotFailed", "message": "busy"], joinRef: ref)
            if answer.told.contains(.mustRefetch(nil)) { break }
            guard let next = joins(talk.wait(.seconds(7))).first?.ref else { break }
            ref = next
            asked += 1
        }
        #expect(asked == ChannelMachine.maximumRowsFailures)
        // The channel still receives changes.
        talk.hearCaughtUp("e.3", joinRef: ref)
        #expect(talk.hearChange(3, at: "e.4", behind: "e.3").rows == ["3"])
    }

    @Test func `where it does not help the app fetches`() {
        var (talk, ref) = opened()
        talk.admit(ref, at: "e.3")
        let told = talk.hear(
            "system", ["status": "ok", "code": "SnapshotFailed", "message": "too many"], joinRef: ref
        ).told
        #expect(told.last == .mustRefetch(nil))
        #expect(told.count == 2)
    }

    @Test func `a hub that says nothing of rows is asked once more, and then it is the app that fetches`() {
        var (talk, ref) = opened()
        talk.admit(ref, at: "e.3")
        let caughtUp = talk.hearCaughtUp("e.3", joinRef: ref)
        #expect(caughtUp.told.allSatisfy { $0 != .mustRefetch(nil) })
        ref = joins(talk.wait(.seconds(1))).first?.ref ?? ""
        talk.admit(ref, at: "e.3")
        let told = talk.hearCaughtUp("e.3", joinRef: ref).told
        #expect(Array(told.suffix(2)) == [.mustRefetch(nil), .caughtUp(LogPosition("e.3"))])
        #expect(talk.machine.state == .live)
    }

    @Test func `a hub that has nothing to follow yet tells the rows when it has`() {
        var (talk, ref) = opened()
        let joined = talk.admit(ref, at: nil, isEarly: true).told
        #expect(joined.first == .joined(recovered: false, at: nil))
        #expect(joined.last == .rowsBegin)
        #expect(joined.contains { if case .problem(let problem) = $0 { problem.code == "LogNotBegun" } else { false } })
        #expect(talk.machine.state == .catchingUp(1))
        // The rows include all changes from before the log's beginning.
        let begun = talk.hear(
            "system", ["status": "error", "code": "ChangesMissing", "message": "followed from now on"], joinRef: ref)
        #expect(begun.isEmpty)
        #expect(talk.hearRow(1).told.rowIDs == ["1"])
        #expect(talk.hearComplete("e.0", ref).told == [.rowsEnd(nil, at: LogPosition(epoch: "e", offset: 0))])
        #expect(talk.hearCaughtUp("e.0", joinRef: ref).told == [.caughtUp(LogPosition("e.0"))])
        #expect(talk.hearChange(2, at: "e.1", behind: "e.0").rows == ["2"])
    }

    @Test func `a connection that ends before the log has begun is begun anew with all rows`() {
        var (talk, ref) = opened()
        talk.admit(ref, at: nil, isEarly: true)
        talk.on(.interrupted(.unreachable("gone")))
        talk.wait(.milliseconds(500))
        ref = joins(talk.on(.opened)).first?.ref ?? ""
        #expect(
            talk.admit(ref, at: "e.4").told == [.joined(recovered: false, at: LogPosition("e.4")), .rowsBegin])
    }

    @Test func `a server without positions tells no rows`() {
        var (talk, ref) = opened()
        #expect(
            talk.admit(ref, at: nil).told == [.joined(recovered: false, at: nil), .mustRefetch(nil), .caughtUp(nil)])
    }

}

extension Conversation {
    @discardableResult
    mutating func hearRow(_ id: Int) -> [ClientMachine.Action] {
        var data = Self.inserted(id).object ?? [:]
        data["tidewire"] = ["snapshot": true]
        return hear("postgres_changes", ["ids": [1], "data": .object(data)])
    }

    @discardableResult
    mutating func hearComplete(_ position: String, _ joinRef: String) -> [ClientMachine.Action] {
        hear(
            "system",
            ["status": "ok", "code": "SnapshotComplete", "message": "complete", "position": .string(position)],
            joinRef: joinRef)
    }
}

extension [ChannelMachine.Output] {
    fileprivate var rowIDs: [String] {
        compactMap { output in
            if case .row(let row) = output, case .number(let id)? = row.record["id"] { id } else { nil }
        }
    }
}

/// Tests of the same snapshots with the client's public interface and a hub in memory.
@Suite(.within(minutes: 5)) struct SnapshotTests {
    @Test func `a query begins with the rows there are and goes on with what changes`() async {
        let stage = Stage()
        stage.hub.insert("notes", note(1, "a"))
        stage.hub.insert("notes", note(2, owner: "ben"))
        stage.hub.update("notes", from: note(1, "a"), to: note(1, "b"))
        var batches = stage.tidewire.live(Note.self, where: \.owner == "ana", window: .immediate).makeAsyncIterator()
        let first = await batches.next()
        #expect(first?.rows == [Note(id: 1, owner: "ana", text: "b")])
        #expect(first?.position == LogPosition("e1.3"))
        #expect(first?.isFirst == false && first?.refetchReason == nil)
        stage.hub.insert("notes", note(3))
        #expect(await batches.changes().map(\.id) == [3])
    }

    @Test func `where history has a gap the rows come again, and no closure is needed`() async {
        let stage = Stage()
        stage.hub.insert("notes", note(1))
        var batches = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        #expect(await batches.next()?.rows?.map(\.id) == [1])
        stage.hub.loseHistory()
        stage.hub.delete("notes", note(1))
        stage.hub.insert("notes", note(2))
        stage.clock.advance(by: .milliseconds(500))
        var rows: [Int]?
        while rows == nil, let batch = await batches.next() { rows = batch.rows?.map(\.id) }
        #expect(rows == [2])
    }

    @Test func `who comes later is told rows of its own, and then shares the subscription without a gap`() async {
        let stage = Stage()
        stage.hub.insert("notes", note(1))
        var one = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        #expect(await one.next()?.rows?.map(\.id) == [1])
        stage.hub.insert("notes", note(2))
        var two = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        #expect(await two.next()?.rows?.map(\.id) == [1, 2])
        #expect(stage.hub.openChannels == 1)
        stage.hub.insert("notes", note(3))
        #expect(await one.changes().map(\.id) == [2])
        #expect(await one.changes().map(\.id) == [3])
        #expect(await two.changes().map(\.id) == [3])
    }

    @Test func `whoever stays is served when the one whose subscription it was goes`() async {
        let stage = Stage()
        var one: LiveChanges<Note>.Iterator? = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        #expect(await one?.next()?.rows == [])
        stage.hub.hold()
        var two = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        one = nil
        stage.hub.release()
        #expect(await two.next()?.rows == [])
        stage.hub.insert("notes", note(1))
        #expect(await two.changes().map(\.id) == [1])
        // A later subscriber shares this subscription.
        var three = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        #expect(await three.next()?.rows?.map(\.id) == [1])
        #expect(stage.hub.openChannels == 1)
    }

    @Test func `a hub that is busy is asked again`() async {
        let stage = Stage()
        stage.hub.insert("notes", note(1))
        stage.hub.refuseRows(times: 2)
        var batches = stage.tidewire.live(Note.self, window: .immediate).makeAsyncIterator()
        stage.clock.advance(by: .seconds(2))
        #expect(await batches.next()?.rows?.map(\.id) == [1])
    }

    @Test func `rows that the hub does not tell are fetched by the closure`() async {
        let stage = Stage()
        stage.hub.refuseRows(times: 1, mayHelp: false)
        var batches = stage.tidewire.live(Note.self, window: .immediate, snapshot: true) {
            [Note(id: 100, owner: "ana", text: "fetched")]
        }.makeAsyncIterator()
        var rows: [Int]?
        while rows == nil, let batch = await batches.next() { rows = batch.rows?.map(\.id) }
        #expect(rows == [100])
    }

    @Test func `several tables begin with their rows together`() async {
        let stage = Stage()
        stage.hub.insert("tags", note(5))
        stage.hub.insert("notes", note(1))
        let tables = stage.tidewire.changes(
            of: [TableBinding(table: "notes"), TableBinding(table: "tags")], snapshot: true
        ).makeAsyncIterator()
        #expect(await tables.next()?.rows?.map(\.table) == ["notes", "tags"])
    }

    @Test func `a list has its rows without a word of fetching, and counts do`() async {
        let stage = Stage()
        stage.hub.insert("notes", note(1))
        stage.hub.insert("notes", note(2, owner: "ben"))
        var counts = stage.tidewire.counts(of: Note.self, by: \.owner, window: .immediate).makeAsyncIterator()
        let first = await counts.next()
        #expect(first?["ana"] == 1 && first?["ben"] == 1)
        stage.hub.delete("notes", note(1))
        #expect(await counts.next()?["ana"] == 0)
    }
}
