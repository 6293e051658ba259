import Bytes
import System

/// Search for the segment in which reading must start.
struct SegmentChoice {
    let files: SegmentFiles
    let end: EventLogEnd?

    func sequence(for start: EventLogStart) throws(EventLogError) -> UInt64 {
        var sequences = try files.sequences()
        // The writer has not announced these segments yet, so they do not count.
        if let announced = end?.state.segment { sequences.removeAll { $0 > announced } }
        guard let oldest = sequences.first, let newest = sequences.last else {
            throw .missing(path: files.directory.path)
        }
        switch start {
        case .oldest: return oldest
        case .end: return newest
        case .behindSegment(let sequence):
            guard let next = sequences.first(where: { $0 > sequence }) else {
                throw .missing(path: files.path(sequence + 1))
            }
            return next
        case .offset(let offset):
            let found = try sequences.last { sequence throws(EventLogError) in
                try header(sequence).baseOffset < offset
            }
            if found == nil, try header(oldest).baseOffset > offset {
                throw .outsideRetention(oldest: try header(oldest).baseOffset)
            }
            return found ?? oldest
        case .lsn(let lsn):
            return try sequences.last { sequence throws(EventLogError) in try header(sequence).baseLSN < lsn } ?? oldest
        case .time(let time):
            return try sequences.dropLast().first { sequence throws(EventLogError) in
                try latestTime(sequence) >= time
            } ?? newest
        }
    }

    fileprivate func header(_ sequence: UInt64) throws(EventLogError) -> SegmentHeader {
        guard let (_, header) = try files.open(sequence) else { throw try EventLogReader.lost(files) }
        return header
    }

    private func latestTime(_ sequence: UInt64) throws(EventLogError) -> Int64 {
        guard let (file, header) = try files.open(sequence) else { throw try EventLogReader.lost(files) }
        return try files.map(of: file, header, sealed: true, keysOf: nil).summary.maximumTime
    }
}

/// Beginning of the part of a log that can be read.
public struct EventLogBeginning: Sendable, Equatable {
    /// Offset of the first change that can be read.
    public var offset: UInt64
    /// Epoch of the first change that can be read. A new epoch begins at each gap in the log.
    public var epoch: UInt64
    /// True if the log has an older segment whose header is damaged.
    public var isBehindDamage: Bool
}

extension EventLogReader {
    /// Returns the first offset that the log has and that can be read.
    public static func oldestOffset(
        in directory: any StorageDirectory, end: EventLogEnd?
    ) throws(EventLogError) -> UInt64 {
        try beginning(in: directory, end: end).offset
    }

    /// Returns the beginning of the part of the log that can be read.
    public static func beginning(
        in directory: any StorageDirectory, end: EventLogEnd?
    ) throws(EventLogError) -> EventLogBeginning {
        let choice = SegmentChoice(files: SegmentFiles(directory: directory), end: end)
        var oldest = try choice.sequence(for: .oldest)
        var isBehindDamage = false
        while true {
            do {
                let header = try choice.header(oldest)
                return EventLogBeginning(
                    offset: header.baseOffset, epoch: header.epoch, isBehindDamage: isBehindDamage)
            } catch .damaged(let damage) {
                // If the first segment is damaged, a later one may be readable.
                do { oldest = try choice.sequence(for: .behindSegment(oldest)) } catch { throw .damaged(damage) }
                isBehindDamage = true
            }
        }
    }
}

extension Array where Element == UInt64 {
    /// Returns the last element that passes the test. Unlike the standard method, it throws this module's errors.
    fileprivate func last(where test: (UInt64) throws(EventLogError) -> Bool) throws(EventLogError) -> UInt64? {
        for element in reversed() where try test(element) { return element }
        return nil
    }
}

extension ArraySlice where Element == UInt64 {
    fileprivate func first(where test: (UInt64) throws(EventLogError) -> Bool) throws(EventLogError) -> UInt64? {
        for element in self where try test(element) { return element }
        return nil
    }
}

/// Transaction over which a search has passed.
private struct Passed {
    var start: IndexPoint
    var lastOffset: UInt64
    var endOffset: UInt64
    var lsn: UInt64
    var time: Int64

    init(start: IndexPoint) {
        self.start = start
        lastOffset = start.offset
        endOffset = start.offset
        lsn = start.lsn
        time = .min
    }

    mutating func add(_ entry: EntryHeader) {
        lastOffset = entry.offset
        endOffset = entry.endOffset
        lsn = entry.lsn
        time = max(time, entry.time)
    }

    func isWanted(by start: EventLogStart) -> Bool {
        switch start {
        case .oldest, .behindSegment: true
        case .end: false
        case .offset(let offset): endOffset > offset || self.start.offset >= offset
        case .lsn(let lsn): self.lsn >= lsn
        case .time(let time): self.time >= time
        }
    }
}

extension EventLogStart {
    /// True if the search for the start may begin at this index point, because the start cannot lie before it.
    fileprivate func mayBegin(after point: IndexPoint) -> Bool {
        switch self {
        case .oldest, .behindSegment: false
        case .end: true
        case .offset(let offset): point.offset < offset
        case .lsn(let lsn): point.lsn < lsn
        case .time(let time): point.time < time
        }
    }
}

extension EventLogReader {
    /// Moves the reader to the first transaction that `start` includes; to the end of the segment if there is none. The
    /// schemas that precede this place in the segment are shown first.
    mutating func find(_ start: EventLogStart) throws(EventLogError) {
        switch start {
        case .oldest, .behindSegment: return
        case .offset, .lsn, .time, .end: break
        }
        let map = isSealed ? files.sidecar(of: scanner.file, scanner.header) : nil
        let point = map?.points.last { start.mayBegin(after: $0) } ?? IndexPoint(startOf: scanner.header)
        var relations = map?.relations.filter { $0.position < point.position } ?? []
        let found = try search(start, from: point, noting: &relations)
        relations.removeAll { $0.position >= found.position }
        // No entry of the segment will be shown, so its schemas are not needed.
        let file = scanner.file
        let size = try reading { () throws(SystemError) in try file.size() }
        setPrelude(isSealed && found.position == size ? [] : relations, then: found)
    }

    private mutating func search(
        _ start: EventLogStart, from point: IndexPoint, noting relations: inout [IndexPoint]
    ) throws(EventLogError) -> IndexPoint {
        scanner.move(to: point)
        while true {
            var passed = Passed(start: scanner.nextPoint)
            repeat {
                let here = scanner.nextPoint
                let step = try reading { () throws(SystemError) in try scanner.step() }
                // The reader examines why the scan stopped when it reads this place again.
                guard step == .entry else { return passed.start }
                if scanner.entry.kind == .relation { relations.append(here) }
                passed.add(scanner.entry)
            } while scanner.entry.isContinued
            if passed.isWanted(by: start) { return passed.start }
        }
    }

    /// Returns the summaries of all segments, oldest first, as a process without the writer sees them. The last one
    /// ends with its last whole transaction.
    public static func segments(in directory: any StorageDirectory) throws(EventLogError) -> [SegmentSummary] {
        let files = SegmentFiles(directory: directory)
        let sequences = try files.sequences()
        var summaries: [SegmentSummary] = []
        for sequence in sequences {
            // Retention deleted the segment after the files were listed.
            guard let (file, header) = try files.open(sequence) else { continue }
            summaries.append(
                try files.map(of: file, header, sealed: sequence != sequences.last, keysOf: nil).summary)
        }
        return summaries
    }

    /// True if the segment may have entries with this key. `scheme` is the first key scheme that includes such keys. If
    /// the segment has no index of that scheme or a later one, the result is true.
    public static func mayContain(
        _ key: UInt64, scheme: UInt32, segment: UInt64, in directory: any StorageDirectory
    ) throws(EventLogError) -> Bool {
        let files = SegmentFiles(directory: directory)
        guard let (file, header) = try files.open(segment) else { return false }
        guard let map = files.sidecar(of: file, header), map.keyScheme >= scheme else { return true }
        return map.filter.mayContain(key)
    }

    /// Passes the payload of every schema entry, with the header of its segment, to `visit`. If a segment has an index,
    /// only its schema entries are read.
    public static func visitSchemas(
        in directory: any StorageDirectory, _ visit: (RawSpan, SegmentHeader) -> Void
    ) throws(EventLogError) {
        let files = SegmentFiles(directory: directory)
        for sequence in try files.sequences() {
            guard let (file, header) = try files.open(sequence) else { continue }
            if let map = files.sidecar(of: file, header) {
                var scanner = SegmentScanner(file, header, readBytes: 16 << 10)
                for point in map.relations {
                    scanner.move(to: point)
                    if try reading({ () throws(SystemError) in try scanner.step() }) == .entry {
                        visit(scanner.payload, header)
                    }
                }
            } else {
                var scanner = SegmentScanner(file, header)
                while try reading({ () throws(SystemError) in try scanner.step() }) == .entry {
                    if scanner.entry.kind == .relation { visit(scanner.payload, header) }
                }
            }
        }
    }

    /// Returns the gaps with which epochs begin, oldest first: the epoch and the payload of the gap entry.
    public static func gaps(
        in directory: any StorageDirectory
    ) throws(EventLogError) -> [(epoch: UInt64, payload: [UInt8])] {
        let files = SegmentFiles(directory: directory)
        var gaps: [(epoch: UInt64, payload: [UInt8])] = []
        var epoch: UInt64?
        for sequence in try files.sequences() {
            guard let (file, header) = try files.open(sequence) else { continue }
            defer { epoch = header.epoch }
            guard header.epoch != epoch else { continue }
            var scanner = SegmentScanner(file, header, readBytes: 4 << 10)
            if try reading({ () throws(SystemError) in try scanner.step() }) == .entry, scanner.entry.kind == .gap {
                gaps.append((header.epoch, scanner.payload.copied()))
            }
        }
        return gaps
    }
}
