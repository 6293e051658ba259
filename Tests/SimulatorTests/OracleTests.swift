import Change
import TestSupport
import Testing

@testable import Simulator

/// Tests that the oracle reports the errors in a channel's events, and nothing else.
@Suite(.within(minutes: 5)) struct OracleTests {
    private let database = ModelDatabase()
    private let oracle: Oracle
    private let seat = Seat(
        topic: "a", bindings: [Seat.Binding(table: .notes), Seat.Binding(table: .items, room: 1)])

    init() {
        oracle = Oracle(database) { Oracle.Position(durable: .zero, oldestKept: .zero, end: nil, start: nil) }
    }

    private func join() {
        oracle.joins(seat, as: "ana", on: 0, of: 0, from: nil)
        oracle.heard(.joined(nil), on: 0, of: 0)
        oracle.heard(.subscribed, on: 0, of: 0)
    }

    private func insert(_ table: ModelTable = .notes, owner: String = "ana", room: Int = 1) -> ModelRow {
        var transaction = database.begin()
        database.insert(table, owner: owner, room: room, body: "x", in: &transaction)
        database.commit(transaction, as: database.takeXID(), at: 0, visibleFrom: 0)
        guard let row = database.commits.last?.changes.last?.new else { preconditionFailure("a row was inserted") }
        return row
    }

    private func hear(_ row: ModelRow, of table: ModelTable = .notes, body: String = "x") {
        let record: [String: Any] = [
            "id": row.id, "owner": row.owner, "room": row.room, "body": body, "version": row.version,
        ]
        oracle.heard(
            .change(HeardChange(table: table.name, operation: "INSERT", record: record, old: [:], errors: nil), nil),
            on: 0, of: 0)
    }

    private var complaints: [String] {
        oracle.settle()
        return oracle.complaints.map { $0.split(separator: ") ")[1].split(separator: ":").first.map(String.init) ?? "" }
    }

    @Test("what came in order, each once, is well")
    func well() {
        join()
        for row in [insert(), insert()] { hear(row) }
        #expect(complaints.isEmpty)
    }

    private func mark(at offset: UInt64) { oracle.heard(.position(LogPlace(epoch: 1, offset: offset)), on: 0, of: 0) }

    private func comeBack(to offset: UInt64, _ recovery: Recovery? = .recovered) {
        oracle.heard(.closed, on: 0, of: 0)
        oracle.joins(seat, as: "ana", on: 0, of: 0, from: LogPlace(epoch: 1, offset: offset))
        oracle.heard(.joined(recovery), on: 0, of: 0)
        oracle.heard(.subscribed, on: 0, of: 0)
    }

    @Test("who goes on where it was has to hear what came meanwhile, once")
    func resumed() {
        join()
        hear(insert())
        mark(at: 1)
        let missed = insert()
        comeBack(to: 1)
        hear(missed)
        hear(insert())
        #expect(complaints.isEmpty)
    }

    @Test("what who went on where it was did not hear is noticed, though it was before the join")
    func notResumed() {
        join()
        mark(at: 1)
        _ = insert()
        comeBack(to: 1)
        #expect(complaints.first?.hasPrefix("did not hear") == true)
    }

    @Test("what it had heard before does not come again")
    func resumedTwice() {
        join()
        let row = insert()
        hear(row)
        mark(at: 1)
        comeBack(to: 1)
        hear(row)
        #expect(complaints.first?.hasPrefix("heard twice or out of order") == true)
    }

    @Test("who could not go on has missed what came meanwhile", arguments: ["older_than_retention", "epoch_changed"])
    func refetched(reason: String) {
        join()
        mark(at: 1)
        _ = insert()
        comeBack(to: 1, .refused(reason))
        hear(insert())
        #expect(complaints.isEmpty)
    }

    @Test("who asked to go on is told whether it does")
    func untold() {
        join()
        mark(at: 1)
        comeBack(to: 1, nil)
        #expect(complaints.first?.hasPrefix("was told of a recovery that it did not ask for") == true)
    }

    @Test("a change that did not come is noticed")
    func missing() {
        join()
        _ = insert()
        #expect(complaints.first?.hasPrefix("did not hear") == true)
    }

    @Test("a change that did not come is excused where that was told")
    func told() {
        join()
        _ = insert()
        oracle.heard(.told("Changes may be missing"), on: 0, of: 0)
        #expect(complaints.isEmpty)
    }

    @Test("being told of one loss excuses no later one")
    func toldBefore() {
        join()
        oracle.heard(.told("Changes may be missing"), on: 0, of: 0)
        _ = insert()
        #expect(complaints.first?.hasPrefix("did not hear") == true)
    }

    @Test("a change that comes twice is noticed")
    func twice() {
        join()
        let row = insert()
        hear(row)
        hear(row)
        #expect(complaints == ["heard twice or out of order"])
    }

    @Test("changes that come out of order are noticed")
    func disorder() {
        join()
        let rows = [insert(), insert()]
        for row in rows.reversed() { hear(row) }
        #expect(complaints == ["heard twice or out of order"])
    }

    @Test("a row that is not for its receiver is noticed")
    func hidden() {
        join()
        hear(insert(owner: "ben"))
        #expect(complaints == ["heard what is not for it"])
    }

    @Test("a row of a room that somebody is no member of is noticed")
    func noMember() {
        join()
        hear(insert(.items), of: .items)
        #expect(complaints == ["heard what is not for it"])
    }

    @Test("a row that the filter leaves out is noticed")
    func filtered() {
        join()
        var transaction = database.begin()
        database.insert(.members, owner: "ana", room: 2, body: "", in: &transaction)
        database.commit(transaction, as: database.takeXID(), at: 0, visibleFrom: 0)
        hear(insert(.items, room: 2), of: .items)
        #expect(complaints == ["heard what is not for it"])
    }

    @Test("other values are noticed")
    func values() {
        join()
        hear(insert(), body: "y")
        #expect(complaints.first?.hasPrefix("heard other values") == true)
    }

    @Test("what was committed before a join may come or not, and nothing before its answer")
    func before() {
        let row = insert()
        oracle.joins(seat, as: "ana", on: 0, of: 0, from: nil)
        hear(row)
        #expect(oracle.complaints.count == 1)
    }

    private func joinTopic() {
        oracle.joins(seat, as: "ana", on: 0, of: 0, from: nil, topic: "realtime:t")
        oracle.heard(.joined(nil), on: 0, of: 0)
        oracle.heard(.subscribed, on: 0, of: 0)
    }

    /// Sends a message to a topic, and returns the version that identifies the message.
    private func say(to topic: String = "t") -> Int {
        var transaction = database.begin()
        database.say(to: topic, in: &transaction)
        database.commit(transaction, as: database.takeXID(), at: 0, visibleFrom: 0)
        return database.commits.last?.changes.last?.new?.version ?? 0
    }

    private func truncate(_ table: ModelTable) {
        var transaction = database.begin()
        database.truncate(table, in: &transaction)
        database.commit(transaction, as: database.takeXID(), at: 0, visibleFrom: 0)
    }

    @Test("what the database said to the topic comes, each once, in order")
    func said() {
        joinTopic()
        for version in [say(), say()] { oracle.heard(.said(version), on: 0, of: 0) }
        #expect(complaints.isEmpty)
    }

    @Test("what was said and did not come is noticed")
    func unsaid() {
        joinTopic()
        _ = say()
        #expect(complaints.first?.hasPrefix("did not hear") == true)
    }

    @Test("what was said and comes twice is noticed")
    func saidTwice() {
        joinTopic()
        let version = say()
        for _ in 0..<2 { oracle.heard(.said(version), on: 0, of: 0) }
        #expect(complaints == ["heard twice or out of order"])
    }

    @Test("what was said to another topic is noticed")
    func saidToOthers() {
        joinTopic()
        let version = say(to: "u")
        oracle.heard(.said(version), on: 0, of: 0)
        #expect(complaints == ["heard what was said to others"])
    }

    @Test("whoever hears of deletes is told of a table that was emptied")
    func truncated() {
        join()
        truncate(.notes)
        oracle.heard(.truncated(table: "notes"), on: 0, of: 0)
        #expect(complaints.isEmpty)
    }

    @Test("a truncation that is not told is noticed")
    func untoldTruncation() {
        join()
        truncate(.notes)
        #expect(complaints.first?.hasPrefix("did not hear") == true)
    }

    @Test("being told of a truncation that never was is noticed", arguments: ["notes", "plain"])
    func noTruncation(table: String) {
        join()
        oracle.heard(.truncated(table: table), on: 0, of: 0)
        #expect(complaints.count == 1)
    }

    @Test("a channel that is never answered is noticed")
    func unanswered() {
        oracle.joins(seat, as: "ana", on: 0, of: 0, from: nil)
        #expect(complaints == ["was never answered"])
    }

    @Test("being told of a loss before the join is answered is noticed: nobody would take it for this channel's")
    func toldTooEarly() {
        oracle.joins(seat, as: "ana", on: 0, of: 0, from: nil)
        oracle.heard(.told("Changes may be missing"), on: 0, of: 0)
        #expect(oracle.complaints.count == 1)
    }

    private func tearHistory(backTo end: LSN? = nil) {
        oracle.hasGap(Gap(reason: .databaseRestored, from: database.walEnd, to: end ?? database.walEnd))
    }

    @Test("a gap that a channel is not told of is noticed, though nothing is missing")
    func untoldGap() {
        join()
        tearHistory()
        #expect(complaints.first?.hasPrefix("was never told that history has a gap") == true)
    }

    @Test("what lies behind a gap may come once more, and once only")
    func again() {
        join()
        let end = database.walEnd
        let row = insert()
        hear(row)
        tearHistory(backTo: end)
        oracle.heard(.told("Changes may be missing (database_restored)"), on: 0, of: 0)
        hear(row)
        #expect(oracle.complaints.isEmpty)
        hear(row)
        #expect(complaints == ["heard twice or out of order"])
    }

    @Test("who goes on in an epoch that the log does not have is noticed")
    func otherEpoch() {
        let database = ModelDatabase()
        var epoch: UInt64 = 1
        let oracle = Oracle(database) {
            Oracle.Position(
                durable: .zero, oldestKept: .zero, end: LogPlace(epoch: epoch, offset: 5), start: nil)
        }
        oracle.joins(seat, as: "ana", on: 0, of: 0, from: nil)
        oracle.heard(.joined(nil), on: 0, of: 0)
        oracle.heard(.position(LogPlace(epoch: 1, offset: 5)), on: 0, of: 0)
        oracle.heard(.closed, on: 0, of: 0)
        epoch = 2
        oracle.joins(seat, as: "ana", on: 0, of: 0, from: LogPlace(epoch: 1, offset: 5))
        oracle.heard(.joined(.recovered), on: 0, of: 0)
        #expect(oracle.complaints.count == 1)
    }
}
