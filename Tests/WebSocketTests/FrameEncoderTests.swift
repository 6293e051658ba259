import Bytes
import TestSupport
import Testing
import WebSocket

private func written(_ write: (inout ByteWriter) -> Void) -> [UInt8] {
    var writer = ByteWriter()
    write(&writer)
    return writer.copied()
}

private let fromServer = Rules(maximumMessageBytes: 100_000, maximumFragments: 8, expectsMask: false)

@Suite(.within(minutes: 5)) struct FrameEncoderTests {
    @Test(arguments: [0, 125, 126, 65_535, 65_536])
    func `writes the shortest header, which a client reads`(size: Int) {
        let payload = [UInt8](repeating: 3, count: size)
        let frame = written { FrameEncoder.append(.binary, payload.span.bytes, to: &$0) }
        #expect(frame.count == size + FrameEncoder.headerBytes(payloadBytes: size))
        #expect(FramePeer.records(of: [frame], fromServer) == [.binary(payload)])
    }

    @Test func `writes the bytes of RFC 6455`() {
        let hello = Array("Hello".utf8)
        #expect(written { FrameEncoder.append(.text, hello.span.bytes, to: &$0) } == [0x81, 5] + hello)
        #expect(written { FrameEncoder.appendPing(hello.span.bytes, to: &$0) } == [0x89, 5] + hello)
        #expect(written { FrameEncoder.appendPong(hello.span.bytes, to: &$0) } == [0x8A, 5] + hello)
        #expect(
            written { FrameEncoder.appendClose(.serviceRestart, "bye", to: &$0) } == [0x88, 5, 3, 0xF4] + "bye".utf8)
        #expect(written { FrameEncoder.appendCloseReply(to: nil, to: &$0) } == [0x88, 0])
        #expect(written { FrameEncoder.appendCloseReply(to: .normal, to: &$0) } == [0x88, 2, 3, 0xE8])
        #expect(
            written { ClientFrameEncoder.append(.text, hello.span.bytes, mask: 0x3D21_FA37, to: &$0) }
                == [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58])
    }

    @Test func `cuts a long reason between two characters`() {
        for lead in 0..<5 {
            let reason = String(repeating: "a", count: lead) + String(repeating: "😀", count: 60)
            let frame = written { FrameEncoder.appendClose(.normal, reason, to: &$0) }
            let records = FramePeer.records(of: [frame], fromServer)
            guard case .close(.normal, let cut) = records.first else { return #expect(Bool(false), "\(records)") }
            #expect(reason.hasPrefix(cut))
            #expect(cut.utf8.count > 119 && cut.utf8.count <= 123)
        }
    }

    @Test(arguments: seeds(50))
    func `masks and unmasks any payload cut anywhere`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        let payload = (0..<Int.random(in: 0...600, using: &random)).map { _ in UInt8.random(in: 0...255, using: &random)
        }
        let key = UInt32.random(in: 0...UInt32.max, using: &random)
        let frame = written { ClientFrameEncoder.append(.binary, payload.span.bytes, mask: key, to: &$0) }
        let keyBytes = (0..<4).map { UInt8(truncatingIfNeeded: key >> (8 * UInt32($0))) }
        #expect(Array(frame.suffix(payload.count)) == payload.enumerated().map { $1 ^ keyBytes[$0 % 4] })
        #expect(FramePeer.records(of: pieces(of: frame, using: &random), rules) == [.binary(payload)])
    }

    @Test func `writes a client's fragments`() {
        let first = Array("A".utf8)
        let last = Array("B".utf8)
        let frames = written {
            ClientFrameEncoder.appendFragment(
                .text, first.span.bytes, isFirst: true, isLast: false, mask: 7, to: &$0)
            ClientFrameEncoder.appendPing(first.span.bytes, mask: 8, to: &$0)
            ClientFrameEncoder.appendFragment(
                .text, last.span.bytes, isFirst: false, isLast: true, mask: 9, to: &$0)
            ClientFrameEncoder.appendPong(last.span.bytes, mask: 10, to: &$0)
            ClientFrameEncoder.appendClose(.goingAway, "é", mask: 11, to: &$0)
        }
        #expect(decode(frames) == [.ping(first), .text("AB"), .pong(last), .close(.goingAway, "é")])
    }
}
