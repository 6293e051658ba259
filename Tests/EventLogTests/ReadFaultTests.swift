import EventLog
import Glibc
import System
import TestSupport
import Testing

/// Tests in which each open and each read of a reader fails in turn. A read that fails now must not count as lost data.
@Suite(.within(minutes: 5)) struct ReadFaultTests {
    /// Error codes of a failing read. ENOENT is not among them: for a segment it means that retention deleted it.
    private static let codes = [EMFILE, ENFILE, ENOMEM, EINTR, EAGAIN, EIO, EACCES]

    /// Ways in which a reader reads the log.
    private enum Way: CaseIterable, CustomTestStringConvertible {
        case plain, passingOver, matching
        var testDescription: String { "\(self)" }

        /// True if the reader must return the entry. It may also return entries around it.
        func isWanted(_ entry: Seen, _ wish: PassingOverTests.Wish) -> Bool {
            switch self {
            case .plain: true
            case .passingOver: wish.isMet(by: entry)
            case .matching: wish.isMet(by: entry) && entry.kind == EntryKind.transaction.rawValue
            }
        }
    }

    /// Fault of one kind of call: after some successes, some calls fail.
    private struct Fault {
        var isOfOpen: Bool
        var after: Int
        var times: Int
        var code: Int32

        func set(on storage: FaultyStorage) {
            storage.setFaults { faults in
                if isOfOpen { faults.failOpenAfter = after } else { faults.failReadAfter = after }
                faults.times = times
                faults.code = code
            }
        }
    }

    /// Repeats the call while the kernel refuses it. Any other error fails the test.
    private static func insisting<T>(_ fault: Fault?, _ body: () throws(EventLogError) -> T) throws -> T {
        var refusals = 0
        while true {
            do throws(EventLogError) {
                return try body()
            } catch {
                guard case .failure(let failure) = error, failure.code == fault?.code, error.trouble == .transient
                else { throw error }
                refusals += 1
                try #require(refusals <= fault?.times ?? 0, "it fails no more often than the disk does")
            }
        }
    }

    /// Returns all entries that a reader returns.
    private static func read(
        _ way: Way, _ storage: FaultyStorage, _ end: EventLogEnd?, _ start: EventLogStart, _ fault: Fault? = nil
    ) throws -> [Seen] {
        let wish = PassingOverTests.Wish(table: 2, row: 7)
        fault?.set(on: storage)
        defer { storage.setFaults { _ in } }
        var keys: [UInt64] = []
        if way == .matching { keys = [PassingOverTests.key(2, 7)] }
        var reader = try opened(storage, end, start, keys, fault)
        var all: [Seen] = []
        while true {
            var step: EventLogReader.Step?
            try insisting(fault) { () throws(EventLogError) in
                step =
                    way == .passingOver
                    ? try reader.next(passingOver: wish.isUseless)
                    : try reader.next() ? .entry : EventLogReader.Step.none
            }
            guard let step else { continue }
            switch step {
            case .none: return all.filter { way.isWanted($0, wish) }
            case .passedOver: break
            case .entry: if !reader.entry.precedesStart { all.append(reader.seen) }
            }
        }
    }

    private static func opened(
        _ storage: FaultyStorage, _ end: EventLogEnd?, _ start: EventLogStart, _ keys: [UInt64], _ fault: Fault?
    ) throws -> EventLogReader {
        var reader: EventLogReader?
        try insisting(fault) { () throws(EventLogError) in
            reader = try EventLogReader(directory: storage, end: end, from: start, matchingAnyOf: keys)
        }
        guard let reader else { preconditionFailure("it was opened") }
        return reader
    }

    @Test(arguments: seeds(4), Way.allCases)
    private func `whatever cannot be opened or read for a while is shown afterwards, once and in order`(
        _ seed: Seed, _ way: Way
    ) throws {
        let storage = FaultyStorage()
        // Segments are small, or large and read in pieces. Transactions may extend over two segments.
        let isLarge = seed.number % 2 == 0
        let options = testOptions(segmentBytes: isLarge ? 250_000 : 12_000)
        let writer = try EventLogWriter(directory: storage, options: options)
        var random = SeededRandom(seed: seed)
        try PassingOverTests.fill(writer, isLarge ? 2_500 : 260, &random)
        var met = 0
        for isLive in [true, false] {
            let end = isLive ? writer.end : nil
            let start = EventLogStart.offset(UInt64.random(in: 0...writer.nextOffset / 2, using: &random))
            let (opens, reads) = (storage.openCount, storage.readCount)
            let expected = try Self.read(way, storage, end, start)
            for (isOfOpen, calls) in [(true, storage.openCount - opens), (false, storage.readCount - reads)] {
                for after in 0..<calls {
                    let fault = Fault(
                        isOfOpen: isOfOpen, after: after, times: Int.random(in: 1...3, using: &random),
                        code: random.pick(Self.codes))
                    #expect(try Self.read(way, storage, end, start, fault) == expected, "\(fault)")
                    met += 1
                }
            }
        }
        #expect(met > 20)
    }
}
