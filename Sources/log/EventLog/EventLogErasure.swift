import Bytes
import Diagnostics
import Glibc
import System

/// Replacement of some bytes in an entry's payload, by `bytes` followed by zeros.
public struct EntryPatch: Sendable, Equatable {
    public var segment: UInt64
    /// Byte position of the entry in its segment.
    public var entry: UInt64
    /// Position of the replaced bytes in the payload.
    public var at: UInt32
    /// Number of replaced bytes.
    public var byteCount: UInt32
    public var bytes: [UInt8]

    public init(segment: UInt64, entry: UInt64, at: Int, byteCount: Int, bytes: [UInt8]) {
        precondition(bytes.count <= byteCount, "a patch has room for its bytes")
        self.segment = segment
        self.entry = entry
        self.at = UInt32(at)
        self.byteCount = UInt32(byteCount)
        self.bytes = bytes
    }
}

/// Erasure of bytes from a log that has no running writer.
///
/// Entries keep their positions, lengths and offsets, and get a new checksum. First a plan with all patches is stored
/// (`ErasurePlan`). Then each segment is copied, patched and replaced as a whole, and its index is built again. After a
/// crash at any moment, each segment is either the old or the new one. The next process that takes the log's lock
/// finishes the plan.
public final class EventLogErasure {
    private let directory: any StorageDirectory
    private let lock: any StorageLock
    private let options: EventLogOptions
    /// Number of segments that the initializer rewrote to finish an interrupted erasure.
    public let segmentsFinished: Int

    /// Takes the log's lock, so no writer may be running. Cuts off an unfinished write at the log's end, because it may
    /// contain the bytes too.
    ///
    /// - Parameter options: `keysOf` and `keyScheme` are needed to build indexes again.
    public init(_ directory: any StorageDirectory, options: EventLogOptions) throws(EventLogError) {
        self.directory = directory
        var options = options
        options.segmentBytes = 0
        var opening = LogOpening(directory: directory, options: options)
        lock = try opening.takeLock()
        let alone = try Self.lock(directory)
        defer { withExtendedLifetime(alone) {} }
        segmentsFinished = try ErasurePlan.finish(in: directory, options)
        let files = SegmentFiles(directory: directory)
        guard let last = try files.sequences().last, let (_, header) = try files.open(last) else {
            throw .missing(path: directory.path)
        }
        options.source = header.source
        self.options = options
        opening = LogOpening(directory: directory, options: options)
        _ = try opening.recover(last)
    }

    /// Performs the erasure. After an error, either the plan is stored or nothing was changed. The log can be used in
    /// both cases.
    public func perform(
        _ patches: [EntryPatch], progress: (Int, Int) -> Void = { _, _ in }
    ) throws(EventLogError) {
        guard !patches.isEmpty else { return }
        let alone = try Self.lock(directory)
        defer { withExtendedLifetime(alone) {} }
        try Self.requireRoom(patches, in: directory)
        let plan = ErasurePlan(patches: patches)
        try reading { () throws(SystemError) in try plan.write(to: directory) }
        _ = try plan.perform(in: directory, options, progress: progress)
    }

    // MARK: Beside a writer

    /// Stores a plan to erase bytes from sealed segments. The process that has the writer executes the plan, while it
    /// is running or at its next start. The writer keeps the log's lock.
    public static func writeDown(_ patches: [EntryPatch], in directory: any StorageDirectory) throws(EventLogError) {
        guard !patches.isEmpty else { return }
        let alone = try lock(directory)
        defer { withExtendedLifetime(alone) {} }
        guard try ErasurePlan.read(from: directory) == nil else {
            throw .lockedElsewhere(path: directory.path + "/" + LogFile.erasure, processID: nil)
        }
        guard try isSealed(patches, in: directory) else {
            preconditionFailure("what is written to is left alone")
        }
        try requireRoom(patches, in: directory)
        try reading { () throws(SystemError) in try ErasurePlan(patches: patches).write(to: directory) }
    }

    /// Executes a stored plan, in the process that has the writer. Returns the number of segments that were rewritten;
    /// zero if there is no plan.
    public static func finishBesideWriter(
        _ directory: any StorageDirectory, options: EventLogOptions
    ) throws(EventLogError) -> Int {
        let alone = try lock(directory)
        defer { withExtendedLifetime(alone) {} }
        guard let plan = try ErasurePlan.read(from: directory) else { return 0 }
        // A plan that includes the active segment is executed when the log is opened next.
        guard try isSealed(plan.patches, in: directory) else { return 0 }
        return try plan.perform(in: directory, options)
    }

    /// Returns the number of the newest segment. All earlier segments are sealed, so nothing is appended to them any
    /// more.
    public static func newestSegment(_ directory: any StorageDirectory) throws(EventLogError) -> UInt64 {
        guard let last = try SegmentFiles(directory: directory).sequences().last else {
            throw .missing(path: directory.path)
        }
        return last
    }

    private static func isSealed(
        _ patches: [EntryPatch], in directory: any StorageDirectory
    ) throws(EventLogError) -> Bool {
        let newest = try newestSegment(directory)
        return patches.allSatisfy { $0.segment < newest }
    }

    /// Takes the lock that replacing or deleting sealed segments requires. Without it, an erasure could put its copy in
    /// the place of a segment that retention has just deleted.
    static func lock(_ directory: any StorageDirectory) throws(EventLogError) -> any StorageLock {
        switch try reading({ () throws(SystemError) in try directory.lock(LogFile.erasureLock) }) {
        case .taken(let lock): return lock
        case .heldElsewhere(let process):
            throw .lockedElsewhere(path: directory.path + "/" + LogFile.erasureLock, processID: process)
        }
    }

    /// Throws if the disk has no room for a copy of the largest segment: while it is rewritten, it exists twice.
    private static func requireRoom(
        _ patches: [EntryPatch], in directory: any StorageDirectory
    ) throws(EventLogError) {
        let files = SegmentFiles(directory: directory)
        var largest: UInt64 = 0
        for sequence in Set(patches.map(\.segment)) {
            guard let (file, _) = try files.open(sequence) else { continue }
            largest = max(largest, try reading { () throws(SystemError) in try file.size() })
        }
        let free = try reading { () throws(SystemError) in try directory.freeBytes() }
        guard free > largest + Self.spareBytes else {
            let full = SystemError(
                operation: "make room for a copy of a segment in", subject: directory.path, code: ENOSPC)
            throw .failure(EventLogFailure(full))
        }
    }

    private static let spareBytes: UInt64 = 1 << 20
}

/// Plan of an erasure, stored on disk before any byte is erased.
///
///     "TWERASE1"  u32 number of patches
///     patch = segment u64 · entry u64 · at u32 · bytes to be replaced u32 · bytes u32 · bytes
///     u32 CRC-32C of all before
struct ErasurePlan: Sendable, Equatable {
    var patches: [EntryPatch]

    // MARK: On the disk

    func write(to directory: any StorageDirectory) throws(SystemError) {
        var writer = ByteWriter(capacity: 64 + patches.count * 48)
        writer.append("TWERASE1")
        writer.append(little: UInt32(patches.count))
        for patch in patches {
            writer.append(little: patch.segment)
            writer.append(little: patch.entry)
            writer.append(little: patch.at)
            writer.append(little: patch.byteCount)
            writer.append(little: UInt32(patch.bytes.count))
            writer.append(patch.bytes)
        }
        writer.append(little: CRC32C.of(writer.bytes))
        let file = try directory.open(LogFile.unfinishedErasure, for: .creating)
        try file.write(writer.bytes, at: 0)
        try file.sync()
        try directory.rename(LogFile.unfinishedErasure, to: LogFile.erasure)
        try directory.sync()
    }

    /// Reads the stored plan; nil if there is none. The file has this name only after it has been written completely.
    static func read(from directory: any StorageDirectory) throws(EventLogError) -> ErasurePlan? {
        guard try reading({ () throws(SystemError) in try directory.names() }).contains(LogFile.erasure) else {
            return nil
        }
        let bytes = try reading { () throws(SystemError) in
            try directory.open(LogFile.erasure, for: .reading).contents(atMost: UInt64(Int32.max))
        }
        guard let plan = try? decode(bytes.rawBytes) else {
            throw .damaged(
                EventLogDamage(
                    path: directory.path + "/" + LogFile.erasure, position: 0,
                    finding:
                        "it said what is still to be forgotten, and does not read back: remove it, and forget that again"
                ))
        }
        return plan
    }

    private static func decode(_ bytes: RawSpan) throws(ByteError) -> ErasurePlan {
        var reader = ByteReader(bytes)
        guard try reader.span(8).equals("TWERASE1") else { throw ByteError(expected: "an erasure", offset: 0) }
        var patches: [EntryPatch] = []
        for _ in 0..<(try reader.littleUInt32()) {
            let (segment, entry) = try (reader.littleUInt64(), reader.littleUInt64())
            let (at, byteCount) = try (Int(reader.littleUInt32()), Int(reader.littleUInt32()))
            let bytes = try reader.span(Int(try reader.littleUInt32())).copied()
            guard bytes.count <= byteCount else { throw ByteError(expected: "a patch", offset: reader.offset) }
            patches.append(EntryPatch(segment: segment, entry: entry, at: at, byteCount: byteCount, bytes: bytes))
        }
        let end = reader.offset
        guard try reader.littleUInt32() == CRC32C.of(bytes.extracting(0..<end)) else {
            throw ByteError(expected: "the checksum of what precedes it", offset: end)
        }
        try reader.expectEnd()
        return ErasurePlan(patches: patches)
    }

    // MARK: Execution

    /// Executes a plan that an earlier process left. Returns the number of segments that were rewritten. The caller
    /// must hold the log's lock.
    static func finish(in directory: any StorageDirectory, _ options: EventLogOptions) throws(EventLogError) -> Int {
        guard let plan = try read(from: directory) else { return 0 }
        return try plan.perform(in: directory, options)
    }

    /// Executes the plan. Returns the number of segments that were rewritten. Executing a plan twice gives the same
    /// result.
    func perform(
        in directory: any StorageDirectory, _ options: EventLogOptions, progress: (Int, Int) -> Void = { _, _ in }
    ) throws(EventLogError) -> Int {
        let files = SegmentFiles(directory: directory)
        let bySegment = Dictionary(grouping: patches, by: \.segment)
        let last = try files.sequences().last
        var done = 0
        for (sequence, patches) in bySegment.sorted(by: { $0.key < $1.key }) {
            // Retention has deleted the segment, so there is nothing to erase.
            guard let (file, header) = try files.open(sequence) else { continue }
            try reading { () throws(SystemError) in
                try Self.rewrite(file, header, patches, in: directory)
                if sequence != last { try Self.remakeIndex(header, in: directory, options) }
            }
            done += 1
            progress(done, bySegment.count)
        }
        try reading { () throws(SystemError) in
            try directory.remove(LogFile.erasure)
            try directory.sync()
        }
        return done
    }

    private static func rewrite(
        _ file: any StorageFile, _ header: SegmentHeader, _ patches: [EntryPatch], in directory: any StorageDirectory
    ) throws(SystemError) {
        let copy = try directory.open(LogFile.erasedSegment, for: .creating)
        let size = try file.size()
        try copyWhole(file, to: copy, size)
        for (entry, patches) in Dictionary(grouping: patches, by: \.entry).sorted(by: { $0.key < $1.key }) {
            // The bytes of a damaged entry are erased too, but its checksum stays wrong.
            let was = try EntrySeal(file, at: entry, size, header)
            for patch in patches { try apply(patch, to: copy, size) }
            guard let was, was.isRight, let now = try EntrySeal(copy, at: entry, size, header) else { continue }
            try now.write(to: copy)
        }
        try copy.sync()
        try directory.rename(LogFile.erasedSegment, to: LogFile.segment(header.sequence))
        try directory.sync()
    }

    private static func copyWhole(
        _ file: any StorageFile, to copy: any StorageFile, _ size: UInt64
    ) throws(SystemError) {
        var buffer = ReadBuffer(capacity: Limits.logReadBytes)
        var at: UInt64 = 0
        while at < size {
            try buffer.fill(from: file, at: at, wanted: Limits.logReadBytes, limit: size)
            let count = buffer.available(at: at)
            if count == 0 { break }
            try copy.write(buffer.bytes(count, at: at), at: at)
            at += UInt64(count)
        }
    }

    private static func apply(_ patch: EntryPatch, to copy: any StorageFile, _ size: UInt64) throws(SystemError) {
        assert(patch.bytes.count <= Int(patch.byteCount), "a patch stays within the bytes that it replaces")
        let start = patch.entry + UInt64(EntryHeader.byteCount) + UInt64(patch.at)
        let end = start + UInt64(patch.byteCount)
        guard end <= size else { return }
        try copy.write(patch.bytes.rawBytes, at: start)
        try copy.writeZeros(from: start + UInt64(patch.bytes.count), to: end)
    }

    /// Builds the index of a segment again, because the old one has hashes of erased keys. If no index can be built,
    /// searches are only slower.
    private static func remakeIndex(
        _ header: SegmentHeader, in directory: any StorageDirectory, _ options: EventLogOptions
    ) throws(SystemError) {
        let names = try directory.names()
        for name in LogFile.all(of: header.sequence).dropFirst() where names.contains(name) {
            try directory.remove(name)
        }
        try directory.sync()
        let file = try directory.open(LogFile.segment(header.sequence), for: .reading)
        let scan = try SegmentScan.of(file, header, keysOf: options.keysOf)
        guard scan.stoppedAt == (try file.size()), !scan.index.isInsideTransaction else { return }
        try scan.index.map(sealed: true, keyScheme: options.keyScheme).write(to: directory)
        try directory.sync()
    }
}

/// Checksums of an entry: the stored one and the computed one. The entry is read in pieces, because it may be large.
private struct EntrySeal {
    private let position: UInt64
    private let found: UInt32
    private let right: UInt32

    /// Reads the entry at this position; nil if there is none.
    init?(_ file: any StorageFile, at position: UInt64, _ size: UInt64, _ header: SegmentHeader) throws(SystemError) {
        var buffer = ReadBuffer(capacity: Limits.logReadBytes)
        try buffer.fill(from: file, at: position, wanted: EntryHeader.byteCount, limit: size)
        guard buffer.holds(EntryHeader.byteCount, at: position),
            case .entry(let entry, let found) = buffer.sighting(at: position),
            UInt64(entry.byteCount) <= size - position
        else { return nil }
        let end = position + UInt64(entry.byteCount)
        var sum = CRC32C.of(buffer.bytes(4, at: position), continuing: header.checksum)
        var at = position + 8
        while at < end {
            try buffer.fill(from: file, at: at, wanted: Limits.logReadBytes, limit: end)
            let count = buffer.available(at: at)
            if count == 0 { return nil }
            sum = CRC32C.of(buffer.bytes(count, at: at), continuing: sum)
            at += UInt64(count)
        }
        assert(at == end, "the checksum covers the entry and nothing behind it")
        self.position = position
        self.found = found
        // Zero means that nothing has been written.
        right = sum == 0 ? 1 : sum
    }

    /// True if the stored checksum is correct.
    var isRight: Bool { found == right }

    func write(to file: any StorageFile) throws(SystemError) {
        var writer = ByteWriter(capacity: 4)
        writer.append(little: right)
        try file.write(writer.bytes, at: position + 4)
    }
}

extension EventLogVerifier {
    /// True if an erasure has been begun and not finished. The next process that takes the log's lock finishes it.
    public static func hasUnfinishedErasure(_ directory: any StorageDirectory) throws(EventLogError) -> Bool {
        try reading { () throws(SystemError) in try directory.names() }.contains(LogFile.erasure)
    }
}
