import Bytes
import TestSupport
import Testing

@testable import Change

@Suite(.within(minutes: 1)) struct OperatorMarkTests {
    private static let marks = [
        OperatorMark(.marked, time: 1_800_000_000_000_000, text: Array("api 4.12 — deployed".utf8)),
        OperatorMark(.rotated, time: -1), OperatorMark(.paused, time: .max, text: [0, 255]),
    ]

    private static func stored(_ marks: [OperatorMark]) -> [UInt8] {
        var writer = ByteWriter()
        OperatorMarkCodec.encode(marks, to: &writer)
        return writer.bytes.copied()
    }

    @Test func `what was stored is read again`() throws {
        for count in 0...Self.marks.count {
            let marks = Array(Self.marks.prefix(count))
            let bytes = Self.stored(marks)
            #expect(try OperatorMarkCodec.decode(bytes.span.bytes) == marks)
            #expect(bytes.count == marks.reduce(5) { $0 + $1.byteCount })
        }
    }

    @Test func `what was not stored so is refused`() {
        let bytes = Self.stored(Self.marks)
        for end in 0..<bytes.count {
            let cut = Array(bytes[..<end])
            #expect(throws: ByteError.self) { try OperatorMarkCodec.decode(cut.span.bytes) }
        }
        for (place, value) in [(0, UInt8(2)), (1, 9), (5, 0), (5, 6)] {
            var other = bytes
            other[place] = value
            #expect(throws: ByteError.self) { try OperatorMarkCodec.decode(other.span.bytes) }
        }
    }
}
