import Bytes
import Change
import Diagnostics
import EventLog
import Glibc
import Replication
import Synchronization
import System
import TestSupport
import Testing

@testable import Ingest

@Suite(.within(minutes: 5)) struct LogSinkTests {
    @Test func `a quiet log is bounded by age, too`() throws {
        let storage = FaultyStorage()
        let clock = Hours()
        var options = EventLogOptions(source: 0)
        options.preparesSegments = false
        options.segmentBytes = 64 << 10
        options.retentionAge = .seconds(72 * 3600)
        options.now = { clock.microseconds }
        let sink = try LogSink(directory: storage, options: options)
        try sink.begin(systemIdentifier: 7, at: LSN(100))
        for step in 1...20 as ClosedRange<UInt64> {
            clock.advance(by: 10)
            try sink.advance(to: LSN(100 + step))
            try sink.flush()
        }
        // The log covers 200 hours, in segments of 18 hours or a little more.
        #expect((8...12).contains(sink.segments.count), "\(sink.segments.count) segments")
        #expect(sink.position == LSN(120))
    }

    @Test func `whoever asks for it has all that was written in sealed segments`() throws {
        let storage = FaultyStorage()
        var options = EventLogOptions(source: 0)
        options.preparesSegments = false
        options.segmentBytes = 64 << 10
        let upkeep = LogUpkeep()
        let sink = try LogSink(
            directory: storage, options: options, metrics: ProjectMetrics(), notes: nil, upkeep: upkeep,
            opened: { _ in })
        try sink.begin(systemIdentifier: 7, at: LSN(100))
        #expect(!sink.hasNotes && sink.segments.count == 1)
        let isSealed = SealedFlag()
        let thread = try BackgroundThread("asks") {
            isSealed.value.store(upkeep.seal(within: .seconds(180)), ordering: .sequentiallyConsistent)
        }
        #expect(eventually { sink.hasNotes })
        try sink.flush()
        thread.join()
        let wasSealed = isSealed.value.load(ordering: .sequentiallyConsistent)
        #expect(wasSealed)
        #expect(sink.segments.count == 2 && !sink.hasNotes)
        // The segment is sealed in time or not at all. An empty segment is not sealed.
        #expect(!upkeep.seal(within: .milliseconds(1)))
        try sink.flush()
        #expect(sink.segments.count == 2 && !sink.hasNotes)
    }

    /// Fills a log with twenty segments of an hour each.
    private func filled(_ storage: FaultyStorage, _ time: TwoClocks) throws {
        let sink = try LogSink(directory: storage, options: options(time), time: time)
        try sink.begin(systemIdentifier: 7, at: LSN(100))
        for step in 1...40 as ClosedRange<UInt64> {
            time.pass(hours: 1)
            try sink.advance(to: LSN(100 + step))
            try sink.flush()
        }
    }

    private func options(_ time: TwoClocks) -> EventLogOptions {
        var options = EventLogOptions(source: 0)
        options.preparesSegments = false
        options.segmentBytes = 64 << 10
        options.retentionAge = .seconds(4 * 3600)
        options.now = { time.unixMicroseconds() }
        return options
    }

    @Test(arguments: [false, true]) func `a jump of the clock does not delete the log`(isRestarted: Bool) throws {
        let storage = FaultyStorage()
        let time = TwoClocks()
        try filled(storage, time)
        let before = try storage.names().filter { $0.hasSuffix(".segment") }.count
        #expect(before >= 3)
        if isRestarted {
            storage.processDied()
            time.jump(hours: 24 * 365)
        }
        let sink = try LogSink(directory: storage, options: options(time), time: time)
        if !isRestarted { time.jump(hours: 24 * 365) }
        for step in 1...30 as ClosedRange<UInt64> {
            time.pass(hours: 0)
            try sink.advance(to: LSN(1000 + step))
            try sink.flush()
        }
        #expect(sink.segments.count >= before)
        // Segments are still removed as time passes. Entries that were written after the jump do not count as younger.
        for step in 1...40 as ClosedRange<UInt64> {
            time.pass(hours: 1)
            try sink.advance(to: LSN(2000 + step))
            try sink.flush()
        }
        #expect(try #require(sink.segments.first).sequence > UInt64(before))
    }

    /// Checks the correction of a slow clock. For a while, ages increase at twice the speed of time, and those of
    /// existing segments do, too.
    @Test(arguments: [48, 24 * 365] as [Int64])
    func `what is younger than the retention's age stays when a clock that was behind is set right`(hours: Int64) throws
    {
        let storage = FaultyStorage()
        let time = TwoClocks()
        time.jump(hours: -hours)
        let sink = try LogSink(directory: storage, options: options(time), time: time)
        try sink.begin(systemIdentifier: 7, at: LSN(100))
        var written: [UInt64: UInt64] = [:]
        for step in 1...120 as ClosedRange<UInt64> {
            if step == 60 { time.jump(hours: hours) }
            for _ in 0..<6 { time.pass(hours: 0) }
            try sink.advance(to: LSN(100 + step))
            try sink.flush()
            let now = time.monotonicNanoseconds()
            let kept = Set(sink.segments.map(\.sequence))
            for (segment, at) in written where now - at < 4 * 3600 * 1_000_000_000 {
                #expect(kept.contains(segment), "step \(step)")
            }
            if let last = sink.segments.last { written[last.sequence] = now }
        }
        #expect(try #require(sink.segments.first).sequence > 1, "what is older goes")
    }

    @Test func `after a rest the clock is reached at twice the speed`() {
        var clock = RetentionClock(known: 0, wall: 100_000_000, monotonic: 5_000_000_000)
        #expect(clock.now(wall: 100_000_000, monotonic: 5_000_000_000) == 0)
        #expect(clock.now(wall: 110_000_000, monotonic: 15_000_000_000) == 20_000_000)
        #expect(clock.now(wall: 200_000_000, monotonic: 105_000_000_000) == 200_000_000)
        // The clock goes back together with the wall clock, and does not start at a later known time.
        #expect(clock.now(wall: 7, monotonic: 106_000_000_000) == 7)
        var ahead = RetentionClock(known: 1_000_000_000, wall: 9, monotonic: 0)
        #expect(ahead.now(wall: 9, monotonic: 0) == 9)
    }
}

/// Wall clock that may jump, with a monotonic clock.
private final class TwoClocks: TimeSource {
    private let passed = Atomic<UInt64>(1_000_000_000_000)
    private let jumped = Atomic<Int64>(0)

    func monotonicNanoseconds() -> UInt64 { passed.load(ordering: .relaxed) }
    func unixMicroseconds() -> Int64 {
        1_700_000_000_000_000 + Int64(monotonicNanoseconds() / 1000) + jumped.load(ordering: .relaxed)
    }

    /// Lets hours and one minute pass, so that retention runs often enough.
    func pass(hours: UInt64) { passed.add((hours * 3600 + 60) * 1_000_000_000, ordering: .relaxed) }
    func jump(hours: Int64) { jumped.add(hours * 3_600_000_000, ordering: .relaxed) }
}

@Suite(.within(minutes: 5)) struct LineageTests {
    private static let lineage = Lineage(
        timeline: 7, database: 16384, publication: 99)
    private static var options: EventLogOptions {
        var options = EventLogOptions(source: 0)
        options.preparesSegments = false
        options.segmentBytes = 64 << 10
        return options
    }

    @Test func `what the log follows is read as it was written`() throws {
        let storage = FaultyStorage()
        let file = LineageFile(directory: storage)
        #expect(try file.read() == .none)
        for lineage in [Self.lineage, Lineage(timeline: 1, database: 5)] {
            try file.write(lineage)
            #expect(try file.read() == .whole(lineage))
        }
        let listing = "timeline 7\ndatabase 16384\npublication 99\nmember 3 4\nmember 16385 16390\n"
        let checksum = String(CRC32C.of(Array(listing.utf8).rawBytes), radix: 16)
        storage.setBytes(Array("\(listing)checksum \(checksum)\n".utf8), of: LineageFile.name)
        #expect(try file.read() == .whole(Self.lineage), "with tables, as it was written before")
        storage.setBytes(Array("3 16384\n".utf8), of: LineageFile.name)
        #expect(try file.read() == .whole(Lineage(timeline: 3, database: 16384)), "as it was written before")
    }

    @Test func `a damaged one is never taken for another history`() {
        let whole = LineageFile.encode(Self.lineage).copied()
        for place in whole.indices {
            for bit in 0..<8 {
                var damaged = whole
                damaged[place] ^= 1 << UInt8(bit)
                expectDamage(damaged)
            }
            expectDamage(Array(whole[..<place]))
        }
    }

    private func expectDamage(_ bytes: [UInt8]) {
        // SAFETY: any byte is a valid UInt8, and the array outlives the call.
        let content = LineageFile.decode(unsafe bytes.span.bytes)
        guard case .damaged = content else {
            Issue.record("\(content) is read from \(String(decoding: bytes, as: UTF8.self))")
            return
        }
    }

    @Test func `a log that was about to begin is none that was lost`() throws {
        let storage = FaultyStorage()
        let options = Self.options
        try LogSink(directory: storage, options: options).prepare(for: "tidewire")
        let sink = try LogSink(directory: storage, options: options)
        #expect(sink.isBeginning(with: "tidewire"))
        #expect(!sink.isBeginning(with: "another"))
        try sink.begin(systemIdentifier: 7, at: LSN(100))
        #expect(!sink.isBeginning(with: "tidewire"))
        #expect(try !storage.names().contains(BeginningFile.name))
    }

    @Test func `what cannot be read now is not taken for something that is not there`() throws {
        let storage = FaultyStorage()
        try { () throws in
            let sink = try LogSink(directory: storage, options: Self.options)
            try sink.begin(systemIdentifier: 7, at: LSN(100))
            try sink.follow(Self.lineage)
            try sink.followMessages(FollowedPublication(number: 5, since: LSN(7), offset: 0, time: 9))
        }()
        let (opens, reads) = (storage.openCount, storage.readCount)
        _ = try LogSink(directory: storage, options: Self.options)
        let calls = (opens: storage.openCount - opens, reads: storage.readCount - reads)
        for after in 0..<calls.opens + calls.reads {
            storage.setFaults { faults in
                if after < calls.opens {
                    faults.failOpenAfter = after
                } else {
                    faults.failReadAfter = after - calls.opens
                }
                faults.code = EMFILE
            }
            // Opening the log reports the problem, or has no effect.
            let sink: LogSink
            do throws(EventLogError) {
                sink = try LogSink(directory: storage, options: Self.options)
            } catch {
                #expect(error.trouble == .transient)
                continue
            }
            #expect(sink.lineage == Self.lineage && sink.messages?.number == 5 && !sink.isNew, "call \(after)")
        }
    }

    @Test(arguments: [EIO, EMFILE, ENOSPC]) func `a start waits until the log can be opened, and says why`(
        code: Int32
    ) throws {
        let storage = FaultyStorage()
        try { () throws in
            let sink = try LogSink(directory: storage, options: Self.options)
            try sink.begin(systemIdentifier: 7, at: LSN(100))
            try sink.follow(Self.lineage)
        }()
        let before = (storage.writeCount, storage.syncCount, storage.openCount, storage.readCount)
        _ = try LogSink(directory: storage, options: Self.options)
        let calls = [
            storage.writeCount - before.0, storage.syncCount - before.1, storage.openCount - before.2,
            storage.readCount - before.3,
        ]
        #expect(calls.allSatisfy { $0 > 0 })
        for (kind, count) in calls.enumerated() {
            for after in 0..<count {
                storage.setFaults { faults in
                    let place = [
                        \FaultyStorage.Faults.failWriteAfter, \.failSyncAfter, \.failOpenAfter, \.failReadAfter,
                    ][kind]
                    faults[keyPath: place] = after
                    faults.times = 2
                    faults.code = code
                }
                let status = ReplicationStatus()
                let opening = RetriedOpening { try LogSink(directory: storage, options: Self.options) }
                try opening.attempt(status)
                let sink = try #require(opening.take(status))
                #expect(sink.lineage == Self.lineage && sink.position == LSN(100), "call \(after) of kind \(kind)")
                if let trouble = status.trouble { #expect(trouble.reason == .diskStall) }
            }
        }
    }

    @Test func `a start does not wait for what somebody has to put right`() throws {
        let status = ReplicationStatus()
        let opening = RetriedOpening<Int> { throw SystemError(operation: "open", subject: "log", code: EACCES) }
        #expect(throws: SystemError.self) { try opening.attempt(status) }
        // An opening that is no longer wanted ends.
        let ended = RetriedOpening<Int> { throw SystemError(operation: "open", subject: "log", code: EMFILE) }
        try ended.attempt(status)
        ended.end()
        #expect(ended.take(status) == nil)
    }

    /// Checks a hub that ends between the two steps: at the next start, the log exists.
    @Test func `the note of a beginning does not outlive it`() throws {
        let storage = FaultyStorage()
        let options = Self.options
        try { () throws in
            try LogSink(directory: storage, options: options).begin(systemIdentifier: 7, at: LSN(100))
        }()
        try BeginningFile(directory: storage).write("tidewire")
        _ = try LogSink(directory: storage, options: options)
        #expect(try !storage.names().contains(BeginningFile.name))
    }

    /// Checks a gap after which positions are lower. They are below the old end, but do not count as durable for that
    /// reason.
    @Test func `nothing behind a gap is durable before the gap is`() throws {
        var failures = 0
        for syncs in 0..<8 {
            let storage = FaultyStorage()
            var end: EventLogEnd?
            let sink = try LogSink(
                directory: storage, options: Self.options, metrics: ProjectMetrics(), notes: nil, upkeep: nil,
                opened: { end = $0 })
            try sink.begin(systemIdentifier: 7, at: LSN(2000))
            let epoch = end?.state.position.epoch
            storage.setFaults {
                $0.failSyncAfter = syncs
                $0.times = 2
            }
            let gap = Gap(reason: .databaseRestored, from: LSN(2000), to: LSN(500))
            guard (try? sink.recordGap(gap, systemIdentifier: 7)) == nil, sink.position == LSN(500) else { continue }
            failures += 1
            storage.setFaults { _ in }
            #expect(sink.durablePosition == LSN(500))
            try sink.advance(to: LSN(700))
            #expect(sink.durablePosition == LSN(500), "sync \(syncs)")
            try sink.flush()
            #expect(sink.durablePosition == LSN(700) && end?.state.position.epoch != epoch)
        }
        #expect(failures > 0)
    }

    /// Ends the process at any moment while a log begins after a gap. The log must then be new or have the gap.
    @Test(arguments: 0..<12) func `a log that begins with a gap has it, or has nothing`(writes: Int) throws {
        let storage = FaultyStorage()
        let options = Self.options
        storage.setFaults {
            $0.failWriteAfter = writes
            $0.times = .max
        }
        let gap = Gap(reason: .logMissing, from: .zero, to: LSN(100))
        try? LogSink(directory: storage, options: options).begin(systemIdentifier: 7, at: LSN(100), after: gap)
        storage.setFaults { _ in }
        storage.processDied()
        let sink = try LogSink(directory: storage, options: options)
        var gaps = 0
        if !sink.isNew {
            var reader = try EventLogReader(directory: storage)
            while try reader.next() { gaps += reader.entry.kind == .gap ? 1 : 0 }
        }
        #expect(sink.isNew || gaps == 1)
    }
}

@Suite(.within(minutes: 5)) struct DiskOutlookTests {
    @Test func `a disk that fills is told before it is full, each thing once`() {
        var disk = DiskOutlook()
        let told = [9_000, 5_000, 4_900, 390, 300, 4_900, 9_000].map { (free: UInt64) in
            disk.take(DiskOutlook.Sample(free: free, log: 4_000, retention: 10_000, segment: 100))
        }
        #expect(told == [nil, .tight, nil, .short, nil, .tight, .well])
        #expect(disk.take(DiskOutlook.Sample(free: 500, log: 4_000, retention: nil, segment: 100)) == nil)
    }
}

/// Clock that a test advances.
private final class Hours: Sendable {
    private let passed = Atomic<Int64>(0)

    var microseconds: Int64 { 1_700_000_000_000_000 + passed.load(ordering: .relaxed) * 3_600_000_000 }
    func advance(by hours: Int64) { passed.add(hours, ordering: .relaxed) }
}

private final class SealedFlag: Sendable {
    let value = Atomic(false)
}
