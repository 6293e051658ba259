import Bytes
import FuzzSupport
import System
import TestSupport

@testable import EventLog

@_cdecl("LLVMFuzzerInitialize")
public func initialize(_ count: UnsafeMutablePointer<CInt>, _ arguments: UnsafeRawPointer) -> CInt {
    let whole = segment()
    let torn = Array(whole.dropLast(7))
    let preallocated = whole + [UInt8](repeating: 0, count: 200)
    writeSeeds([whole, torn, preallocated].flatMap { [[0] + $0, [1] + $0] })
    return 0
}

/// In: a byte that says whether checksums are put right, then a segment from its first entry on. Put right, the bytes
/// come past the checksum to all that is checked behind it.
@_cdecl("LLVMFuzzerTestOneInput")
public func test(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = input(start, count)
    guard let kind = bytes.first else { return 0 }
    var entries = Array(bytes.dropFirst())
    if kind % 2 == 1 { seal(&entries) }
    do { try scan(entries) } catch { preconditionFailure("memory does not fail: \(error)") }
    return 0
}

private let header = SegmentHeader(epoch: 1, sequence: 2, baseOffset: 300, baseLSN: 4000, created: 5, source: 6)

private func scan(_ entries: [UInt8]) throws {
    let file = try file(of: entries)
    let size = UInt64(SegmentHeader.byteCount + entries.count)
    var scanner = SegmentScanner(file, header, readBytes: 4096)
    var offset = header.baseOffset
    var lsn = header.baseLSN
    var end = UInt64(SegmentHeader.byteCount)
    while try scanner.step() == .entry {
        let entry = scanner.entry
        precondition(scanner.position == end, "an entry does not begin where the one before ended")
        precondition(entry.offset == offset && entry.lsn >= lsn, "an entry is out of order")
        precondition(scanner.payload.byteCount == entry.payloadBytes, "a payload is not as long as it says")
        (offset, lsn, end) = (entry.endOffset, entry.lsn, scanner.next)
        precondition(end <= size, "an entry ends behind its file")
    }
    precondition(scanner.next == end, "the scanner moved on without an entry")
}

private func file(of entries: [UInt8]) throws(SystemError) -> any StorageFile {
    var writer = ByteWriter()
    header.append(to: &writer)
    writer.append(entries)
    let file = try MemoryDirectory().open("segment", for: .creating)
    try file.write(writer.bytes, at: 0)
    return file
}

/// Gives every entry that its length allows the checksum it should have.
private func seal(_ bytes: inout [UInt8]) {
    var at = 0
    while at + EntryHeader.byteCount <= bytes.count {
        let length = (0..<4).reduce(0) { $0 | Int(bytes[at + $1]) << (8 * $1) }
        let end = at + EntryHeader.byteCount + length
        guard end <= bytes.count else { return }
        let entry = Array(bytes[at..<end])
        let checksum = EntryHeader.checksum(of: entry.span.bytes, seed: header.checksum)
        for index in 0..<4 { bytes[at + 4 + index] = UInt8(truncatingIfNeeded: checksum >> (8 * UInt32(index))) }
        at = end
    }
}

// MARK: Seeds

private func segment() -> [UInt8] {
    var writer = ByteWriter()
    append(.relation, 0, "schema", offset: 300, lsn: 4000, to: &writer)
    append(.transaction, 2, "first part", isContinued: true, offset: 300, lsn: 4000, to: &writer)
    append(.transaction, 1, "last part", offset: 302, lsn: 4100, to: &writer)
    append(.progress, 0, "", offset: 303, lsn: 4200, to: &writer)
    append(.gap, 0, "gap", offset: 303, lsn: 4300, to: &writer)
    return writer.copied()
}

private func append(
    _ kind: EntryKind, _ changes: UInt32, _ payload: String, isContinued: Bool = false, offset: UInt64, lsn: UInt64,
    to writer: inout ByteWriter
) {
    let payload = Array(payload.utf8)
    let entry = EntryHeader(
        payloadBytes: payload.count, kind: kind, isContinued: isContinued, changeCount: changes, offset: offset,
        lsn: lsn, time: 7, publishedBytes: 128)
    entry.append(payload: payload.span.bytes, seed: header.checksum, to: &writer)
}
