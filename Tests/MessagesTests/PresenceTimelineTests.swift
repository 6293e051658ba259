import Change
import Diagnostics
import EventLog
import Replication
import System
import TestSupport
import Testing

@testable import Ingest

/// Tests of presence in the log.
@Suite(.within(minutes: 10)) struct PresenceTimelineTests {
    private static func mark(_ number: Int, bytes: Int = 2) -> PresenceMark {
        PresenceMark(
            event: .joined, isPrivate: false, time: Int64(number), topic: Array("room".utf8),
            key: Array("\(number)".utf8),
            ref: [], meta: [UInt8](repeating: 32, count: bytes))
    }

    private static func read(
        _ stage: MessageStage
    ) throws -> (marks: [PresenceMark], offsets: [UInt64], changes: UInt64) {
        var reader = try EventLogReader(directory: DiskDirectory(stage.logDirectory), end: stage.service?.end)
        var marks: [PresenceMark] = []
        var offsets: [UInt64] = []
        var changes: UInt64 = 0
        while try reader.next() {
            changes += UInt64(reader.entry.changeCount)
            guard reader.entry.kind == .presence else { continue }
            marks += try PresenceCodec.decode(reader.payload)
            offsets.append(reader.entry.offset)
        }
        return (marks, offsets, changes)
    }

    @Test func `marks come into the log in their order, between changes, and move no offset`() throws {
        let stage = try MessageStage("")
        try stage.start(awaitingMessages: false)
        let service = try #require(stage.service)
        for number in 0..<50 {
            service.record([Self.mark(2 * number), Self.mark(2 * number + 1)])
            try stage.touch()
        }
        try stage.catchUp()
        #expect(try eventually { try Self.read(stage).marks.count == 100 })
        let found = try Self.read(stage)
        #expect(found.marks.map(\.time) == (0..<100).map(Int64.init))
        #expect(found.changes == 51 && found.offsets == found.offsets.sorted())
        // Marks are written even if the database is quiet.
        service.record([Self.mark(100)])
        #expect(try eventually { try Self.read(stage).marks.count == 101 })
        // Marks recorded before the hub's end are still in the log afterwards.
        service.record([Self.mark(101)])
        stage.stop()
        #expect(try Self.read(stage).marks.count == 102)
        try stage.start(awaitingMessages: false)
        try stage.touch()
        try stage.catchUp()
        #expect(try Self.read(stage).marks.count == 102)
    }

    @Test func `large transactions are not cut by them`() throws {
        let stage = try MessageStage("")
        try stage.start(awaitingMessages: false)
        let service = try #require(stage.service)
        try stage.database.run(
            "CREATE TABLE big (id int PRIMARY KEY, t text); ALTER PUBLICATION supabase_realtime ADD TABLE big")
        for round in 0..<3 {
            service.record([Self.mark(round)])
            try stage.database.run(
                "INSERT INTO big SELECT n, repeat(md5(n::text), 30) FROM generate_series(\(round * 10_000), \(round * 10_000 + 9_999)) n"
            )
            service.record([Self.mark(round + 100)])
        }
        try stage.catchUp()
        #expect(try eventually { try Self.read(stage).marks.count == 6 })
        #expect(try Self.read(stage).changes > 30_000)
    }

    @Test func `what does not fit is dropped and counted`() throws {
        let stage = try MessageStage("")
        try stage.start(awaitingMessages: false)
        let service = try #require(stage.service)
        let tooMany = Limits.maximumWaitingNoteBytes / (1 << 20) + 2
        service.record((0..<tooMany).map { Self.mark($0, bytes: 1 << 20) })
        var unstorable = Self.mark(0)
        unstorable.key = [UInt8](repeating: 1, count: 1 << 17)
        service.record([unstorable])
        #expect(stage.settings.replication.metrics.presenceMarksDropped.value >= 3)
        #expect(try eventually { try Self.read(stage).marks.count >= tooMany - 3 })
        service.record([Self.mark(1)])
        #expect(try eventually { try Self.read(stage).marks.last == Self.mark(1) })
    }
}
