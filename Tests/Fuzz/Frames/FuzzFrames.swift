import Bytes
import FuzzSupport
import TestSupport
import WebSocket

@_cdecl("LLVMFuzzerInitialize")
public func initialize(_ count: UnsafeMutablePointer<CInt>, _ arguments: UnsafeRawPointer) -> CInt {
    writeSeeds([[7, 0] + conversation(mask: 0x1234_5678), [9, 1] + conversation(mask: 0), [3, 6] + compressed()])
    return 0
}

/// Fuzz target of the frame decoder. Input: a byte that selects the cuts between pieces, a byte that selects the
/// decoder's rules, then frames.
@_cdecl("LLVMFuzzerTestOneInput")
public func test(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = input(start, count)
    guard bytes.count >= 2 else { return 0 }
    let frames = Array(bytes.dropFirst(2))
    let rules = FrameDecoder.Rules(
        maximumMessageBytes: 2048, maximumFragments: 5, expectsMask: bytes[1] & 1 == 0,
        allowsCompression: bytes[1] & 2 != 0, validatesText: bytes[1] & 4 != 0)
    var random = SeededRandom(seed: UInt64(bytes[0]))
    let whole = FramePeer.records(of: [frames], rules)
    let inPieces = FramePeer.records(of: pieces(of: frames, using: &random), rules)
    precondition(whole == inPieces, "the pieces made a difference: \(whole) and \(inPieces)")
    for (index, record) in whole.enumerated() { check(record, isLast: index == whole.count - 1, rules) }
    return 0
}

private func check(_ record: FrameRecord, isLast: Bool, _ rules: FrameDecoder.Rules) {
    switch record {
    case .message(let kind, let bytes):
        precondition(bytes.count <= rules.maximumMessageBytes, "a message past the maximum")
        let isText = String(validating: bytes, as: UTF8.self) != nil
        precondition(kind == .binary || !rules.validatesText || isText, "text that is none")
        checkComesBack(kind, bytes, rules)
    case .ping(let bytes), .pong(let bytes):
        precondition(bytes.count <= FrameSize.maximumControlPayloadBytes, "a long control frame")
    case .close(let code, _): precondition(isLast && code?.mayBeSent != false, "a close that is none, or not the end")
    case .violation: precondition(isLast, "something was read behind a violation")
    }
}

/// Writes a message as a frame, compressed if that is shorter, and checks that the decoder returns the same message.
private func checkComesBack(_ kind: MessageKind, _ bytes: [UInt8], _ rules: FrameDecoder.Rules) {
    var writer = ByteWriter()
    FrameEncoder.append(kind, bytes.span.bytes, compressedBy: deflater, above: 16, to: &writer)
    var fromServer = rules
    fromServer.expectsMask = false
    fromServer.allowsCompression = true
    let again = FramePeer.records(of: [writer.copied()], fromServer)
    precondition(again == [.message(kind, bytes)], "a message came back as another")
}

private nonisolated(unsafe) let deflater = Deflater(level: 1)

private func conversation(mask: UInt32) -> [UInt8] {
    let text = Array("Grüße".utf8)
    let start = Array(text[..<3])
    let end = Array(text[3...])
    let long = [UInt8](repeating: 1, count: 300)
    var writer = ByteWriter()
    ClientFrameEncoder.appendFragment(
        .text, start.span.bytes, isFirst: true, isLast: false, mask: mask, to: &writer)
    ClientFrameEncoder.appendPing(text.span.bytes, mask: mask, to: &writer)
    ClientFrameEncoder.appendFragment(.text, end.span.bytes, isFirst: false, isLast: true, mask: mask, to: &writer)
    ClientFrameEncoder.append(.binary, long.span.bytes, mask: mask, to: &writer)
    ClientFrameEncoder.appendPong(text.span.bytes, mask: mask, to: &writer)
    ClientFrameEncoder.appendClose(.goingAway, "bye", mask: mask, to: &writer)
    return writer.copied()
}

private func compressed() -> [UInt8] {
    let letters = [UInt8](repeating: 65, count: 300)
    let nothing: [UInt8] = [0]
    var payload = ByteWriter()
    precondition(deflater.compress(letters.span.bytes, to: &payload), "300 letters shrink")
    var writer = ByteWriter()
    ClientFrameEncoder.append(.text, payload.bytes, mask: 77, isCompressed: true, to: &writer)
    ClientFrameEncoder.append(.text, nothing.span.bytes, mask: 78, isCompressed: true, to: &writer)
    return writer.copied()
}
