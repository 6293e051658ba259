import TestSupport
import Testing

@testable import TidewireClient

@Suite(.within(minutes: 5)) struct FramesTests {
    /// Returns a frame as a server sends it, without a mask.
    private func frame(_ first: UInt8, _ payload: [UInt8]) -> [UInt8] {
        switch payload.count {
        case 0..<126: [first, UInt8(payload.count)] + payload
        case 126..<65_536: [first, 126, UInt8(payload.count >> 8), UInt8(payload.count & 255)] + payload
        default: [first, 127] + (0..<8).map { UInt8(truncatingIfNeeded: payload.count >> (56 - 8 * $0)) } + payload
        }
    }

    private func events(_ bytes: [UInt8], step: Int) throws -> [FrameParser.Event] {
        var parser = FrameParser()
        var events: [FrameParser.Event] = []
        for start in stride(from: 0, to: bytes.count, by: step) {
            parser.append(bytes[start..<min(start + step, bytes.count)])
            while let event = try parser.next() { events.append(event) }
        }
        return events
    }

    @Test(arguments: [1, 2, 7, 1000, 1_000_000]) func `messages are whole however their bytes come`(step: Int) throws {
        let large = [UInt8](repeating: UInt8(ascii: "x"), count: 70_000)
        let middle = [UInt8](repeating: UInt8(ascii: "y"), count: 300)
        var bytes = frame(0x81, Array("hi".utf8)) + frame(0x82, [1, 2]) + frame(0x01, Array("a".utf8))
        bytes += frame(0x89, [9]) + frame(0x00, Array("b".utf8)) + frame(0x80, Array("c".utf8))
        bytes += frame(0x81, middle) + frame(0x81, large) + frame(0x88, [3, 244] + Array("bye".utf8))
        #expect(
            try events(bytes, step: step) == [
                .text("hi"), .binary([1, 2]), .ping([9]), .text("abc"), .text(String(decoding: middle, as: UTF8.self)),
                .text(String(decoding: large, as: UTF8.self)), .close(code: 1012, reason: "bye"),
            ])
    }

    @Test(
        arguments: [
            [0x81, 0x80, 0, 0, 0, 0], [0x80, 0], [0x01, 0, 0x01, 0], [0xc1, 0], [0x83, 0], [0x09, 0],
            [0x89, 126, 0, 126],
            [0x81, 127, 0x7f, 0, 0, 0, 0, 0, 0, 0], [0x81, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] as [[UInt8]])
    func `what no server may send ends the connection`(bytes: [UInt8]) {
        #expect(throws: FrameParser.Violation.self) { try events(bytes, step: 1) }
    }

    @Test(arguments: [0, 5, 125, 126, 65_535, 65_536]) func `frames of clients are masked`(count: Int) {
        let payload = (0..<count).map { UInt8(truncatingIfNeeded: $0) }
        let frame = Frames.encode(.binary, payload, mask: 0x0102_0304)
        #expect(frame[0] == 0x82 && frame[1] & 0x80 != 0)
        let start = frame.count - count
        #expect(Array(frame[start - 4..<start]) == [1, 2, 3, 4])
        #expect(frame[start...].enumerated().map { $0.element ^ [1, 2, 3, 4][$0.offset & 3] } == payload)
    }
}
