import Bytes
import EventLog
import System

/// Fuzz target of the event log. Whatever bytes the directory has, opening and reading it must end with an answer or an
/// error.
public func fuzzSegment(_ bytes: [UInt8]) {
    use(bytes, sidecar: bytes)
    let header = SegmentHeader(epoch: 1, sequence: 1, baseOffset: 5, baseLSN: 6, created: 7, source: 8)
    var writer = ByteWriter()
    header.append(to: &writer)
    let head = writer.copied()
    use(head + bytes, sidecar: [])
    // A random checksum would stop the reader at its first entry, so the checksums are corrected.
    use(head + withChecksums(bytes, seed: header.checksum), sidecar: bytes)
}

/// Returns a small valid segment, which is the fuzzer's first input.
public func storedSegment() -> [UInt8] {
    let storage = FaultyStorage()
    var options = EventLogOptions(source: 8)
    options.segmentBytes = 8192
    options.preparesSegments = false
    guard let log = try? EventLogWriter(directory: storage, options: options) else { return [] }
    for number in 1...4 as ClosedRange<UInt64> {
        let payload = [UInt8](repeating: UInt8(number), count: 20)
        _ = try? log.append(
            kind: .transaction, continued: number == 2, changeCount: 2, lsn: number, time: 5,
            payload: payload.span.bytes)
        try? log.flush()
    }
    return storage.bytes(of: "0000000001.segment") ?? []
}

private func use(_ segment: [UInt8], sidecar: [UInt8]) {
    let storage = FaultyStorage()
    storage.setBytes(segment, of: "0000000001.segment")
    storage.setBytes(sidecar, of: "0000000001.index")
    storage.setBytes(sidecar, of: "0000000001.keys")
    _ = try? EventLogVerifier.verify(storage)
    for start in [EventLogStart.oldest, .offset(9), .lsn(9), .time(9), .end] { read(storage, start) }
    var options = EventLogOptions(source: 8)
    options.segmentBytes = 8192
    options.preparesSegments = false
    options.keysOf = { _, payload in [UInt64(payload.byteCount)] }
    guard let log = try? EventLogWriter(directory: storage, options: options) else { return }
    let before = log.nextOffset
    guard before < .max else { return }
    _ = try? log.append(
        kind: .transaction, changeCount: 1, lsn: .max, time: 1, payload: [UInt8](repeating: 1, count: 9).span.bytes)
    do { try log.flush() } catch { fatalError("a sound disk failed: \(error)") }
    guard log.end.state.position.offset == before + 1 else { fatalError("what was appended is not there") }
    // The segment is now sealed, so another code path reads the same bytes.
    guard (try? log.roll()) != nil else { fatalError("a sound disk failed") }
    for start in [EventLogStart.oldest, .offset(9), .lsn(9), .time(9), .end] { read(storage, start) }
}

private func read(_ storage: FaultyStorage, _ start: EventLogStart) {
    guard var reader = try? EventLogReader(directory: storage, from: start, matchingKey: 3) else { return }
    while (try? reader.next()) == true { _ = reader.payload.byteCount }
}

/// Returns the bytes with correct checksums, treating them as a sequence of entries.
private func withChecksums(_ bytes: [UInt8], seed: UInt32) -> [UInt8] {
    var bytes = bytes
    var at = 0
    while at + EntryHeader.byteCount <= bytes.count {
        // The lengths are made small, so that most of them fit into the input.
        bytes[at + 2] = 0
        bytes[at + 3] = 0
        let end = at + EntryHeader.byteCount + Int(bytes[at]) + Int(bytes[at + 1]) << 8
        guard end <= bytes.count else { break }
        let crc = checksum(of: bytes[at..<end], seed: seed)
        for byte in 0..<4 { bytes[at + 4 + byte] = UInt8(truncatingIfNeeded: crc >> (8 * UInt32(byte))) }
        at = end
    }
    return bytes
}

private func checksum(of entry: ArraySlice<UInt8>, seed: UInt32) -> UInt32 {
    let bytes = entry.span.bytes
    let length = CRC32C.of(bytes.extracting(0..<4), continuing: seed)
    let crc = CRC32C.of(bytes.extracting(8..<bytes.byteCount), continuing: length)
    return crc == 0 ? 1 : crc
}
