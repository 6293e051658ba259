import Bytes
import EventLog
import System
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct AppendAndReadTests {
    @Test func `gives back what was appended, after a flush and after reopening`() throws {
        let storage = FaultyStorage()
        var expected: [Seen] = []
        do {
            let writer = try EventLogWriter(directory: storage, options: testOptions())
            #expect(writer.recovery.isNew)
            expected.append(try writer.put([1, 2, 3], kind: .relation, lsn: 10))
            expected.append(try writer.put(payload(1, 500), changes: 3, lsn: 20))
            expected.append(try writer.put([], changes: 1, lsn: 20))
            #expect(try readAll(storage, end: writer.end).isEmpty)
            try writer.flush()
            expected.append(try writer.put(payload(2, 70_000), changes: 2, lsn: 30))
            try writer.flush()
            #expect(try readAll(storage, end: writer.end) == expected)
            #expect(writer.nextOffset == 6)
            #expect(writer.durableLSN == 30)
        }
        let writer = try EventLogWriter(directory: storage, options: testOptions(epoch: 50))
        #expect(writer.epoch == 7)
        #expect(!writer.recovery.isNew && writer.recovery.cutAt == nil)
        #expect(writer.nextOffset == 6 && writer.durableLSN == 30)
        expected.append(try writer.put([9], lsn: 31))
        try writer.flush()
        #expect(try readAll(storage, end: writer.end) == expected)
        #expect(try readAll(storage) == expected)
    }

    @Test func `shows a transaction of several parts only as a whole`() throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions())
        let first = try writer.put([1], lsn: 1)
        let part = try writer.put([2], continued: true, changes: 5, lsn: 2)
        try writer.flush()
        #expect(try readAll(storage, end: writer.end) == [first])
        #expect(try readAll(storage) == [first])
        #expect(writer.durableLSN == 1)
        let last = try writer.put([3], changes: 2, lsn: 3)
        try writer.flush()
        #expect(try readAll(storage, end: writer.end) == [first, part, last])
        #expect(try readAll(storage) == [first, part, last])
    }
}
