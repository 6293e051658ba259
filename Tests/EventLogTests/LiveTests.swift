import EventLog
import Synchronization
import System
import TestSupport
import Testing

@Suite(.within(minutes: 10)) struct LiveTests {
    private static let count: UInt64 = 4000

    /// Writes transactions of one to three entries in many segments, and flushes after each few.
    private static func write(to directory: DiskDirectory, announcing end: (EventLogEnd) -> Void) throws {
        var options = testOptions(segmentBytes: 100_000)
        options.preparesSegments = true
        let writer = try EventLogWriter(directory: directory, options: options)
        end(writer.end)
        var random = SeededRandom(seed: 3)
        for number in 1...count {
            let size = Int.random(in: 8...400, using: &random)
            try writer.rollIfNeeded(adding: size)
            let parts = Int.random(in: 1...3, using: &random)
            for part in 1...parts {
                try writer.put(payload(number, size), continued: part < parts, changes: 1, lsn: number)
            }
            if Int.random(in: 0..<6, using: &random) == 0 { try writer.flush() }
        }
        try writer.flush()
    }

    /// Follows the log until the last transaction. Checks that every entry is undamaged and follows the previous one.
    private static func follow(
        _ directory: DiskDirectory, _ end: EventLogEnd?, from start: EventLogStart = .oldest
    ) throws -> (entries: UInt64, lastLSN: UInt64) {
        var reader = try EventLogReader(directory: directory, end: end, from: start)
        var (entries, last, offset, inside) = (0 as UInt64, 0 as UInt64, nil as UInt64?, false)
        while last < count || inside {
            let seen = end?.state
            guard try reader.next() else {
                #expect(!inside, "half a transaction was shown")
                if let end, let seen { _ = end.wait(beyond: seen, timeout: .seconds(5)) }
                continue
            }
            #expect(offset == nil || reader.entry.offset == offset)
            #expect(last == 0 || reader.entry.lsn == (inside ? last : last + 1))
            offset = reader.entry.header.endOffset
            last = reader.entry.lsn
            inside = reader.entry.isContinued
            entries += 1
        }
        return (entries, last)
    }

    @Test func `live and disk readers each see every transaction once and in order while it is written`() throws {
        try withTemporaryDirectory { path in
            let directory = try DiskDirectory(path)
            let results = Mutex<[(entries: UInt64, lastLSN: UInt64)]>([])
            let failures = Mutex<[String]>([])
            let wakes = Counter()
            var threads: [BackgroundThread] = []
            func start(_ body: @escaping @Sendable () throws -> Void) throws {
                threads.append(
                    try BackgroundThread("test") {
                        do { try body() } catch { failures.withLock { $0.append("\(error)") } }
                    })
            }
            let announced = Mutex<EventLogEnd?>(nil)
            try start {
                try Self.write(to: directory) { end in
                    _ = end.addWaker { _ = wakes.next() }
                    announced.withLock { $0 = end }
                }
            }
            while announced.withLock({ $0 }) == nil, failures.withLock({ $0.isEmpty }) {}
            let end = try #require(announced.withLock { $0 })
            for isLive in [true, true, false, false] {
                try start {
                    let result = try Self.follow(directory, isLive ? end : nil)
                    results.withLock { $0.append(result) }
                }
            }
            for thread in threads { thread.join() }
            #expect(failures.withLock { $0 } == [])
            #expect(results.withLock { $0 }.count == 4)
            let entries = Set(results.withLock { $0 }.map(\.entries))
            #expect(entries.count == 1)
            #expect(wakes.current > 100)
        }
    }

    @Test func `waits no longer than told`() throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions())
        let state = writer.end.state
        #expect(writer.end.wait(beyond: state, timeout: .milliseconds(5)) == state)
        try writer.put([1], lsn: 1)
        try writer.flush()
        #expect(writer.end.wait(beyond: state, timeout: .seconds(100)).lsn == 1)
    }

    @Test func `is not left behind when two segments appear between two looks`() throws {
        let storage = FaultyStorage()
        let writer = try EventLogWriter(directory: storage, options: testOptions())
        var expected = [try writer.put([1], lsn: 1)]
        try writer.flush()
        let watched = WatchedDirectory(storage)
        var reader = try EventLogReader(directory: watched)
        #expect(try reader.rest() == expected)
        watched.whenMissing = {
            for lsn in [2, 3] as [UInt64] {
                try? writer.roll()
                if let entry = try? writer.put([2], lsn: lsn) { expected.append(entry) }
                try? writer.flush()
            }
        }
        #expect(try reader.rest() == Array(expected.dropFirst()) && expected.count == 3)
    }
}

/// Directory that runs an action just after a file was found missing. Only one thread may use it.
private final class WatchedDirectory: StorageDirectory, @unchecked Sendable {
    private let storage: FaultyStorage
    var whenMissing: (() -> Void)?

    init(_ storage: FaultyStorage) { self.storage = storage }

    var path: String { storage.path }
    func names() throws(SystemError) -> [String] { try storage.names() }
    func rename(_ name: String, to newName: String) throws(SystemError) { try storage.rename(name, to: newName) }
    func remove(_ name: String) throws(SystemError) { try storage.remove(name) }
    func sync() throws(SystemError) { try storage.sync() }
    func lock(_ name: String) throws(SystemError) -> LockAttempt { try storage.lock(name) }
    func freeBytes() throws(SystemError) -> UInt64 { try storage.freeBytes() }

    func open(_ name: String, for access: StorageAccess) throws(SystemError) -> any StorageFile {
        do {
            return try storage.open(name, for: access)
        } catch {
            let happens = whenMissing
            whenMissing = nil
            happens?()
            throw error
        }
    }
}
