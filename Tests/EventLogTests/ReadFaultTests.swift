import EventLog
import Glibc
import System
import TestSupport
import Testing

/// Every open and every read of a reader that fails, one after the other: "not now" is never "never".
@Suite(.within(minutes: 5)) struct ReadFaultTests {
    /// Not ENOENT: of a segment it says that retention took it.
    private static let codes = [EMFILE, ENFILE, ENOMEM, EINTR, EAGAIN, EIO, EACCES]

    /// How a reader goes about the log.
    private enum Way: CaseIterable, CustomTestStringConvertible {
        case plain, passingOver, matching
        var testDescription: String { "\(self)" }

        /// Of what lies around that more may be shown.
        func isWanted(_ entry: Seen, _ wish: PassingOverTests.Wish) -> Bool {
            switch self {
            case .plain: true
            case .passingOver: wish.isMet(by: entry)
            case .matching: wish.isMet(by: entry) && entry.kind == EntryKind.transaction.rawValue
            }
        }
    }

    /// One kind of call that fails, after so many that succeed, so often.
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

    /// Tries again for as long as the kernel says no; anything else is a failure of the test.
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

    /// What a reader shows from there on, from its opening on.
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
        // Small segments, and some that are read in several pieces, of which transactions lie in two.
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
