import Bytes
import Change
import EventLog
import Glibc
import System

/// Maker of a bundle: a window of a log in one file. `run` exports the window, masked by the rules with which the log
/// was opened, and imports it into a temporary log. It then packs that log and the files that describe it into one
/// file, which gets its name only when it is complete.
public struct BundleMaker: ~Copyable {
    private let log: HistoryLog
    private let path: String
    private var export: LogExport
    private let scratch: String
    public let offsets: Range<UInt64>

    private static let segmentBytes: UInt64 = 64 << 20

    /// Prepares a bundle of the log from one bound to the other.
    ///
    /// - Parameter includesPolicies: true to include the log's catalog records as they are.
    public init(
        _ log: HistoryLog, from: HistoryBound?, to: HistoryBound?, path: String, includesPolicies: Bool = false
    ) throws {
        var export = try LogExport(log, from: from, to: to)
        export.begin(with: try log.attendance(at: export.offsets.lowerBound))
        if includesPolicies {
            export.includePolicies(beginningWith: try log.catalog(before: export.offsets.lowerBound))
        }
        offsets = export.offsets
        self.log = log
        self.path = path
        self.export = export
        scratch = path + ".making"
    }

    /// Makes the bundle. `noting` gets the offsets reached.
    ///
    /// - Parameter describe: returns the files that stand beside the log in the bundle, for a log with these segments.
    /// The first must be the manifest.
    public mutating func run(
        describe: ([SegmentSummary]) throws -> [(name: String, bytes: [UInt8])], noting: (UInt64) -> Void = { _ in }
    ) throws {
        guard !Directories.isThere(path) else { throw BundleError(path: path, reason: "there is such a file already") }
        let directory = try DiskDirectory(scratch, creating: true)
        defer { remove(directory) }
        guard try directory.names().isEmpty else {
            throw BundleError(path: scratch, reason: "is in the way: of an earlier attempt, or of one that runs now")
        }
        let copy = LogImport(into: directory, segmentBytes: Self.segmentBytes)
        try export.run({ line in try copy.take(line.extracting(0..<line.byteCount - 1)) }, noting: noting)
        try copy.finish()
        let segments = try EventLogReader.segments(in: directory)
        try write(directory, segments, try describe(segments))
    }

    private func write(
        _ directory: DiskDirectory, _ segments: [SegmentSummary], _ files: [(name: String, bytes: [UInt8])]
    ) throws {
        let place = try DiskDirectory(Directories.parent(of: path))
        let name = String(path.split(separator: "/").last ?? "")
        let archive = try ArchiveWriter(
            place.open(name + ".partial", for: .creating), time: Clock.unixMicroseconds() / 1_000_000)
        do {
            for file in files { try archive.add(file.name, file.bytes) }
            for member in try directory.names().sorted() where Self.belongs(member) {
                let file = try directory.open(member, for: .reading)
                var size = try file.size()
                // The unsealed segment has reserved room at its end, which a bundle does not need.
                if let last = segments.last, !last.isSealed, member.hasPrefix(Self.digits(last.sequence)) {
                    size = min(size, last.bytes)
                }
                try archive.add(compressed: "log/" + member, file, size)
            }
            try archive.finish()
            try place.rename(name + ".partial", to: name)
            try place.sync()
        } catch {
            try? place.remove(name + ".partial")
            throw error
        }
    }

    /// True if the name is that of a segment, or of a segment's index or keys.
    private static func belongs(_ name: String) -> Bool {
        [".segment", ".index", ".keys"].contains { name.hasSuffix($0) } && name.first?.isNumber == true
    }

    private static func digits(_ sequence: UInt64) -> String {
        let digits = String(sequence)
        return String(repeating: "0", count: max(0, 10 - digits.count)) + digits + "."
    }

    private func remove(_ directory: DiskDirectory) {
        for name in (try? directory.names()) ?? [] { try? directory.remove(name) }
        try? Directories.remove(scratch)
    }
}

private final class ArchiveWriter {
    private let file: any StorageFile
    private let time: Int64
    private let compressor: FrameCompressor
    private var at: UInt64 = 0

    init(_ file: any StorageFile, time: Int64) throws(SystemError) {
        self.file = file
        self.time = time
        compressor = try FrameCompressor()
    }

    private func append(_ bytes: [UInt8]) throws(SystemError) {
        try file.write(bytes.rawBytes, at: at)
        at += UInt64(bytes.count)
    }

    func add(_ name: String, _ bytes: [UInt8]) throws(SystemError) {
        try append(TapeArchive.header(name, size: UInt64(bytes.count), time: time))
        try append(bytes + [UInt8](repeating: 0, count: TapeArchive.padding(UInt64(bytes.count))))
    }

    /// Adds the first `size` bytes of a file, compressed.
    func add(compressed name: String, _ source: any StorageFile, _ size: UInt64) throws(SystemError) {
        let name = name + SeekableFrames.suffix
        let (header, start) = (at, at + UInt64(TapeArchive.blockBytes))
        // The header has the compressed size, which is known at the end.
        try append(TapeArchive.header(name, size: 0, time: time))
        var frames: [SeekableFrames.Frame] = []
        var read: UInt64 = 0
        while read < size {
            let bytes = try source.bytes(at: read, count: Int(min(size - read, UInt64(SeekableFrames.frameBytes))))
            guard !bytes.isEmpty else { throw SystemError(operation: "read", subject: source.path, code: EIO) }
            let frame = try compressor.frame(bytes)
            frames.append(
                SeekableFrames.Frame(position: at - start, compressed: frame.count, start: read, count: bytes.count))
            try append(frame)
            read += UInt64(bytes.count)
        }
        try append(SeekableFrames.table(of: frames))
        let compressed = at - start
        try file.write(TapeArchive.header(name, size: compressed, time: time).rawBytes, at: header)
        try append([UInt8](repeating: 0, count: TapeArchive.padding(compressed)))
    }

    func finish() throws(SystemError) {
        try append([UInt8](repeating: 0, count: 2 * TapeArchive.blockBytes))
        try file.sync()
    }
}

extension HistoryLog {
    /// Returns the catalog record that is valid at the window's begin, if the log has one before it.
    fileprivate func catalog(before offset: UInt64) throws -> CatalogRecord? {
        var reader = try EventLogReader(directory: directory, from: .oldest, matchingAnyOf: [RowKey.catalog])
        var newest: CatalogRecord?
        while try reader.next(), reader.entry.offset < offset {
            guard reader.entry.kind == .catalogRecord else { continue }
            do throws(ByteError) {
                newest = try CatalogRecordCodec.decode(reader.payload).last ?? newest
            } catch {
                throw UnreadableEntry(
                    offset: reader.entry.offset, segment: reader.entry.segment, reason: error.description)
            }
        }
        return newest
    }

    /// Returns join notes of the channels that were joined before the window and had not left at its begin.
    fileprivate func attendance(at offset: UInt64) throws -> [LedgerNote] {
        let there = try AttendanceBook(self).all.filter { attendance in
            guard attendance.joined.place < offset, !attendance.isAnswer else { return false }
            switch attendance.end {
            case .none, .missed: return true
            case .left(let before, _, _, _): return before > offset
            case .cut(_, let behind, _): return behind > offset
            }
        }
        let doubtful = there.filter { $0.isDoubtful(at: offset) }
        // If notes of these channels' loops may be missing from the log, the bundle records that too.
        let doubts = Dictionary(doubtful.map { ($0.loop, $0.doubt) }) { $0.time > $1.time ? $0 : $1 }.values
            .sorted { $0.channel < $1.channel }
        return doubtful.map { $0.standing(at: offset) } + doubts
            + there.filter { !$0.isDoubtful(at: offset) }.map { $0.standing(at: offset) }
    }
}

extension Attendance {
    /// Returns a note that the channel is joined at this offset, with the claims that it has there.
    fileprivate func standing(at offset: UInt64) -> LedgerNote {
        var note = joined.note
        let holder = holder(at: offset).note
        note.event = .stands
        (note.role, note.subject, note.claims) = (holder.role, holder.subject, holder.claims)
        note.otherClaims = holder.otherClaims
        return note
    }

    /// True if notes of the channel's loop may be missing before this offset.
    fileprivate func isDoubtful(at offset: UInt64) -> Bool {
        if case .missed(_, let behind, _) = end { behind <= offset } else { false }
    }

    /// Note in the ledger that states that notes of the channel's loop are missing.
    fileprivate var doubt: LedgerNote {
        var time = joined.note.time
        if case .missed(_, _, let noted) = end { time = noted }
        return LedgerNote(
            .missed, time: time, session: 0, channel: UInt32(loop), offset: 1)
    }
}
