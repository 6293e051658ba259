import Change
import EventLog
import Synchronization
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
        // 200 hours in segments of 18 hours or a little more.
        #expect((8...12).contains(sink.segments.count), "\(sink.segments.count) segments")
        #expect(sink.position == LSN(120))
    }
}

/// A clock that a test moves on.
private final class Hours: Sendable {
    private let passed = Atomic<Int64>(0)

    var microseconds: Int64 { 1_700_000_000_000_000 + passed.load(ordering: .relaxed) * 3_600_000_000 }
    func advance(by hours: Int64) { passed.add(hours, ordering: .relaxed) }
}
