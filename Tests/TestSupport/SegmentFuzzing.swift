import Bytes
import EventLog
import System

/// Fuzz target of the event log: with any bytes in the directory, opening and reading must give an answer or an error,
/// and end.
public func fuzzSegment(_ bytes: [UInt8]) {
    use(bytes, sidecar: bytes)
    let header = SegmentHeader(epoch: 1, sequence: 1, baseOffset: 5, baseLSN: 6, created: 7, source: 8)
    var writer = ByteWriter()
    header.append(to: &writer)
    let head = writer.copied()
    use(head + bytes, sidecar: [])
    // A random checksum would stop the reader at once, so the checksums are corrected.
    use(head + withChecksums(bytes, seed: header.checksum), sidecar: bytes)
}

/// Returns a small valid segment as first input for the fuzzer.
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
    // The segment is sealed now, so the same bytes are read by the other code path.
    guard (try? log.roll()) != nil else { fatalError("a sound disk failed") }
    for start in [EventLogStart.oldest, .offset(9), .lsn(9), .time(9), .end] { read(storage, start) }
}

private func read(_ storage: FaultyStorage, _ start: EventLogStart) {
    guard var reader = try? EventLogReader(directory: storage, from: start, matchingKey: 3) else { return }
    while (try? reader.next()) == true { _ = reader.payload.byteCount }
}

/// Treats the bytes as entries, one after another, and gives each the correct checksum.
private func withChecksums(_ bytes: [UInt8], seed: UInt32) -> [UInt8] {
    var bytes = bytes
    var at = 0
    while at + EntryHeader.byteCount <= bytes.count {
        // Most of these lengths fit into the input.
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
