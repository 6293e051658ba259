import Foundation
import TestSupport
import Testing
import TidewireClientTesting

@testable import TidewireClient

@Suite(.within(minutes: 5)) struct ConflictTests {
    private let policy = LastWriteWins()

    private func version(_ seconds: Double?, deleted: Bool = false, at offset: UInt64? = nil) -> RowVersion {
        RowVersion(
            updatedAt: seconds.map { Date(timeIntervalSince1970: 1_700_000_000 + $0) }, isDeleted: deleted,
            position: offset.map { LogPosition(epoch: "e", offset: $0) })
    }

    private func resolve(_ local: RowVersion?, _ remote: RowVersion) -> ConflictResolution {
        policy.resolve(local: local, remote: remote, hasUnsentWrite: false)
    }

    @Test func `the table of the expense app`() {
        #expect(resolve(nil, version(1)) == .insert)
        #expect(resolve(version(1), version(2)) == .takeRemote)
        #expect(resolve(version(2), version(1)) == .keepLocal)
        #expect(resolve(version(1), version(1)) == .takeRemote, "same date: the server is right")
        #expect(resolve(version(nil), version(1)) == .takeRemote)
        #expect(resolve(version(1), version(nil)) == .keepLocal)
        #expect(resolve(version(1), version(2, deleted: true)) == .deleteSoftly)
        #expect(resolve(version(1, deleted: true), version(2)) == .undelete)
        #expect(resolve(version(1, deleted: true), version(2, deleted: true)) == .deleteSoftly)
    }

    @Test func `dates count to the microsecond`() {
        #expect(resolve(version(0.000002), version(0.000001)) == .keepLocal)
        #expect(resolve(version(0.000001), version(0.000002)) == .takeRemote)
    }

    @Test func `an older position never goes over a newer one`() {
        #expect(resolve(version(1, at: 9), version(5, at: 8)) == .keepLocal)
        #expect(resolve(version(1, at: 9), version(5, at: 10)) == .takeRemote)
        let before = policy.resolveDeletion(
            local: version(1, at: 9), at: LogPosition(epoch: "e", offset: 8), hasUnsentWrite: false)
        #expect(before == .keepLocal)
    }

    @Test func `a row that is gone is gone, unless something of it was not sent`() {
        #expect(policy.resolveDeletion(local: version(1), at: nil, hasUnsentWrite: false) == .delete)
        #expect(policy.resolveDeletion(local: version(1), at: nil, hasUnsentWrite: true) == .keepLocal)
        let strict = LastWriteWins(deletion: .wins)
        #expect(strict.resolveDeletion(local: version(1), at: nil, hasUnsentWrite: true) == .delete)
    }
}

private struct Message: LiveRow, Equatable {
    static let table = "messages"
    let id: String
    let origin: String?
    let text: String
}

@Suite(.within(minutes: 5)) struct OptimisticTests {
    private let sent = Message(id: "temporary", origin: "o1", text: "hi")
    private let stored = Message(id: "42", origin: "o1", text: "hi")

    private func rows() -> OptimisticRows<Message> { OptimisticRows { $0.origin } }

    @Test func `one entry at the end, whether the echo or the answer comes first`() {
        for echoFirst in [true, false] {
            var rows = rows()
            rows.apply(.inserted(Message(id: "41", origin: nil, text: "before")))
            rows.write(sent, origin: "o1")
            #expect(rows.all.map(\.id) == ["41", "temporary"])
            rows.apply(.inserted(Message(id: "43", origin: nil, text: "meanwhile")))
            if echoFirst { rows.apply(.inserted(stored)) } else { rows.confirmWrite(origin: "o1", as: stored) }
            if echoFirst { rows.confirmWrite(origin: "o1", as: stored) } else { rows.apply(.inserted(stored)) }
            #expect(rows.all.map(\.id) == ["41", "42", "43"])
            #expect(rows.pendingOrigins.isEmpty)
        }
    }

    @Test func `an answer without the row leaves it as it was written, and one to another table changes nothing`() {
        var rows = rows()
        rows.write(sent, origin: "o1")
        rows.confirmWrite(origin: "of another table")
        #expect(rows.pendingOrigins == ["o1"])
        rows.confirmWrite(origin: "o1")
        #expect(rows.all == [sent] && rows.pendingOrigins.isEmpty)
        // The row is now the server's, so a later failure does not remove it.
        rows.revertWrite(origin: "o1")
        #expect(rows.all == [sent])
    }

    @Test func `what fails is as it was`() {
        var rows = rows()
        rows.apply(.inserted(Message(id: "1", origin: nil, text: "old")))
        rows.write(Message(id: "1", origin: "o2", text: "new"), origin: "o2")
        rows.write(sent, origin: "o1")
        rows.revertWrite(origin: "o1")
        rows.revertWrite(origin: "o2")
        #expect(rows.all.map(\.text) == ["old"])
    }

    @Test func `a failure falls back to what somebody else has made of it meanwhile`() {
        var rows = rows()
        rows.apply(.inserted(Message(id: "1", origin: nil, text: "old")))
        rows.write(Message(id: "1", origin: "o2", text: "mine"), origin: "o2")
        rows.apply(.updated(Message(id: "1", origin: "other", text: "theirs"), was: nil))
        #expect(rows["1"]?.text == "mine")
        rows.revertWrite(origin: "o2")
        #expect(rows["1"]?.text == "theirs")
    }

    @Test func `the same person's other device is heard`() {
        var rows = rows()
        rows.write(sent, origin: "o1")
        rows.apply(.inserted(Message(id: "50", origin: "the other device's", text: "from there")))
        #expect(rows.all.count == 2)
    }

    @Test func `likes are counted once, whatever is told twice`() {
        var counts = KeyedCounts<String, String>()
        for _ in 0..<3 { counts.insert("ana", in: "post") }
        counts.insert("ben", in: "post")
        #expect(counts["post"] == 2)
        for _ in 0..<3 { counts.remove("ana") }
        #expect(counts["post"] == 1)
        counts.remove("ben")
        counts.remove("ben")
        #expect(counts["post"] == 0 && counts.counts.isEmpty)
    }
}

@Suite(.within(minutes: 5)) struct OfflineQueueTests {
    private let start = Date(timeIntervalSince1970: 1_700_000_000)

    private func write(
        _ id: String, _ row: String, _ kind: PendingWrite.Kind, _ values: [String: JSONValue] = [:],
        parent: String? = nil, isReplaceable: Bool = false
    ) -> PendingWrite {
        PendingWrite(
            id: id, table: "t", row: row, kind: kind, values: values, parent: parent, isReplaceable: isReplaceable,
            date: start)
    }

    @Test func `in order for each row, parents before children`() throws {
        var queue = WriteQueue()
        try queue.add(write("post", "1", .insert))
        try queue.add(write("comment", "2", .insert, parent: "t/1"))
        try queue.add(write("other", "3", .insert))
        #expect(queue.takeReady(at: start).map(\.id) == ["post", "other"])
        #expect(queue.takeReady(at: start).isEmpty)
        queue.succeeded("post")
        #expect(queue.takeReady(at: start).map(\.id) == ["comment"])
    }

    @Test func `what waits for one row is joined`() throws {
        var queue = WriteQueue()
        try queue.add(write("a", "1", .insert, ["x": 1]))
        try queue.add(write("b", "1", .update, ["x": 2, "y": 3]))
        #expect(queue.writes.map(\.values) == [["x": 2, "y": 3]])
        try queue.add(write("c", "1", .delete))
        #expect(queue.writes.isEmpty)
        try queue.add(write("d", "2", .update, ["x": 1]))
        try queue.add(write("e", "2", .delete))
        #expect(queue.writes.map(\.kind) == [.delete])
    }

    @Test func `what is on its way is not changed any more`() throws {
        var queue = WriteQueue()
        try queue.add(write("a", "1", .insert, ["x": 1]))
        #expect(queue.takeReady(at: start).map(\.id) == ["a"])
        try queue.add(write("b", "1", .update, ["x": 2]))
        try queue.add(write("c", "1", .delete))
        #expect(queue.writes.map(\.id) == ["a", "c"])
        #expect(queue.takeReady(at: start).isEmpty)
    }

    @Test func `of positions on a map the newest is sent`() throws {
        var queue = WriteQueue()
        for step in 0..<5 {
            try queue.add(write("p\(step)", "me", .insert, ["at": .number("\(step)")], isReplaceable: true))
        }
        #expect(queue.writes.map(\.id) == ["p4"])
    }

    @Test func `what is refused takes nothing with it`() throws {
        var limits = OfflineWrites.Limits()
        limits.maximumBytes = 60
        var queue = WriteQueue(limits: limits)
        try queue.add(write("small", "me", .insert, ["at": 1], isReplaceable: true))
        let large = write(
            "large", "me", .insert, ["at": .string(String(repeating: "x", count: 80))], isReplaceable: true)
        #expect(throws: OfflineWrites.Refusal.tooLarge) { try queue.add(large) }
        #expect(queue.writes.map(\.id) == ["small"])
    }

    /// Checks, for any order of events and outcomes, that only one write waits for an answer and only the newest other
    /// write waits to be sent.
    @Test(arguments: seeds(50))
    func `of positions the newest is sent, also if one was on its way and failed`(seed: Seed) throws {
        var chance = SeededRandom(seed: seed)
        var queue = WriteQueue()
        var (made, now) = (0, start)
        var out: PendingWrite?
        for _ in 0..<60 {
            switch Int.random(in: 0..<6, using: &chance) {
            case 0, 1:
                made += 1
                try queue.add(write("\(made)", "me", .insert, isReplaceable: true))
            case 2 where out == nil:
                out = queue.takeReady(at: now).first
                #expect(out == nil || out?.id == "\(made)")
            case 3:
                if let id = out?.id { queue.succeeded(id) }
                out = nil
            case 4:
                if let id = out?.id { queue.failed(id, at: now, seed: UInt64(made)) }
                out = nil
            case 5 where Bool.random(using: &chance):
                queue.launched()
                out = nil
            default: now += 10
            }
            #expect(queue.writes.count <= (out == nil ? 1 : 2))
        }
    }

    @Test func `what fails is tried later, what is refused is given back with what needed it`() throws {
        var queue = WriteQueue()
        try queue.add(write("post", "1", .insert))
        try queue.add(write("comment", "2", .insert, parent: "t/1"))
        try queue.add(write("reaction", "3", .insert, parent: "t/2"))
        _ = queue.takeReady(at: start)
        queue.failed("post", at: start, seed: 1)
        #expect(queue.takeReady(at: start).isEmpty)
        let later = start.addingTimeInterval(1)
        #expect(queue.takeReady(at: later).map(\.id) == ["post"])
        #expect(queue.refused("post", "no right").map(\.0.id) == ["post", "comment", "reaction"])
        #expect(queue.writes.isEmpty)
    }

    @Test func `there is a limit to number, size and age`() throws {
        var limits = OfflineWrites.Limits()
        (limits.maximumWrites, limits.maximumBytes, limits.maximumAge) = (2, 100, .seconds(60))
        var queue = WriteQueue(limits: limits)
        try queue.add(write("a", "1", .insert))
        #expect(throws: OfflineWrites.Refusal.tooLarge) {
            try queue.add(write("b", "2", .insert, ["x": .string(String(repeating: "x", count: 200))]))
        }
        try queue.add(write("c", "3", .insert))
        #expect(throws: OfflineWrites.Refusal.tooManyWrites) { try queue.add(write("d", "4", .insert)) }
        #expect(queue.dropOld(at: start.addingTimeInterval(61)).count == 2)
    }

    @Test func `it is the same after a launch, with nothing on its way`() throws {
        var queue = WriteQueue()
        try queue.add(write("a", "1", .insert, ["n": .number("9007199254740993"), "list": [1, nil, "x"]]))
        _ = queue.takeReady(at: start)
        var again = try JSONDecoder().decode(WriteQueue.self, from: JSONEncoder().encode(queue))
        again.launched()
        #expect(again.takeReady(at: start) == queue.writes)
    }

    @Test func `a queue that an earlier version stored is read`() throws {
        let stored = """
            {"limits":{"age":604800,"bytes":4194304,"writes":1000},"writes":[{"failures":1,"id":"a","isOut":true,\
            "kind":"insert","madeAt":1700000000,"newestOnly":true,"notBefore":0,"row":"1","table":"t",\
            "values":{"x":1}}]}
            """
        let queue = try JSONDecoder().decode(WriteQueue.self, from: Data(stored.utf8))
        let write = try #require(queue.writes.first)
        #expect(write.isReplaceable && write.failures == 1 && write.date == Date(timeIntervalSince1970: 1_700_000_000))
        #expect(write.name == "t/1" && write.values == ["x": 1] && write.parent == nil)
    }

    @Test func `a write that is made now has its columns and its date`() throws {
        let (storage, start) = (Tidewire.MemoryStorage(), start)
        let writes = OfflineWrites(storage: storage, clock: ManualClock(), date: { start }) { _ in .later }
        try writes.add(.insert, table: "a", row: "1", values: ["x": 1], parent: "b/2", isReplaceable: true)
        let write = try #require(writes.pendingWrites.first)
        #expect(write.name == "a/1" && write.kind == .insert && write.values == ["x": 1] && write.parent == "b/2")
        #expect(write.isReplaceable && write.date == start)
    }

    @Test func `writes are kept, sent and cleared`() async throws {
        let storage = Tidewire.MemoryStorage()
        let log = Tidewire.MemoryStorage()
        let first = OfflineWrites(storage: storage, clock: ManualClock()) { _ in .later }
        try first.add(write("a", "1", .insert))
        let start = start
        let second = OfflineWrites(storage: storage, clock: ManualClock(), date: { start }) { write in
            log.save(Data(write.id.utf8), as: "sent")
            return .refused("no")
        }
        #expect(second.pendingWrites.map(\.id) == ["a"])
        let tell = Mailbox<String>()
        // The server refuses the write, and the run then waits for the mailbox. The end of the mailbox ends the run.
        await second.run { write, _ in
            tell.put(write.id)
            second.end()
        }
        #expect(tell.takeNow() == "a" && log.load("sent") != nil)
        #expect(OfflineWrites(storage: storage, clock: ManualClock()) { _ in .done }.pendingWrites.isEmpty)
    }
}
