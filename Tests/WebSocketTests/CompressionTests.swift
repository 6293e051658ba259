import Bytes
import TestSupport
import Testing
import WebSocket

private let compressing = Rules(
    maximumMessageBytes: 1 << 20, maximumFragments: 8, allowsCompression: true, validatesText: true)
private let fromServer = Rules(
    maximumMessageBytes: 1 << 20, maximumFragments: 8, expectsMask: false, allowsCompression: true)

private func compressed(_ message: [UInt8], level: Int = 6, windowBits: Int = 15) -> [UInt8]? {
    var writer = ByteWriter()
    let isShorter = Deflater(level: level, windowBits: windowBits).compress(message.span.bytes, to: &writer)
    return isShorter ? writer.copied() : nil
}

private func frame(compressed payload: [UInt8], kind: MessageKind = .binary) -> [UInt8] {
    var writer = ByteWriter()
    ClientFrameEncoder.append(kind, payload.span.bytes, mask: mask, isCompressed: true, to: &writer)
    return writer.copied()
}

@Suite(.within(minutes: 5)) struct CompressionTests {
    /// Checks the examples of RFC 7692 §7.2.3: one block, a stored block, a final block, two blocks.
    @Test(
        arguments: [
            [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00],
            [0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
            [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
            [0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
            [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00],
        ] as [[UInt8]])
    func `reads the examples of RFC 7692`(payload: [UInt8]) {
        #expect(decode(frame(compressed: payload, kind: .text), compressing) == [.text("Hello")])
    }

    @Test func `reads an empty message in both of its forms`() {
        #expect(decode(frame(compressed: [0x00]), compressing) == [.binary([])])
        #expect(decode(frame(compressed: []), compressing) == [.binary([])])
    }

    @Test func `goes on behind a final block`() {
        let twice: [UInt8] = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]
        #expect(decode(frame(compressed: twice, kind: .text), compressing) == [.text("HelloHello")])
    }

    @Test(arguments: seeds(60))
    func `comes back from every level and window`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        let alphabet = Array("aaaaabc{}\":, 0123".utf8)
        let message = (0..<Int.random(in: 1...5000, using: &random)).map { _ in random.pick(alphabet) }
        let level = Int.random(in: 0...9, using: &random)
        let windowBits = Int.random(in: 9...15, using: &random)
        guard let payload = compressed(message, level: level, windowBits: windowBits) else {
            #expect(level == 0 || message.count < 64, "text of few letters gets shorter")
            return
        }
        #expect(payload.count < message.count)
        #expect(decode(frame(compressed: payload, kind: .text), compressing) == [.message(.text, message)])
    }

    @Test func `remembers nothing between messages`() {
        let deflater = Deflater(level: 6)
        let message = [UInt8](repeating: 65, count: 500)
        var writer = ByteWriter()
        for _ in 0..<3 {
            FrameEncoder.append(.text, message.span.bytes, compressedBy: deflater, above: 100, to: &writer)
        }
        let frames = writer.copied()
        #expect(frames.prefix(frames.count / 3) == frames.suffix(frames.count / 3))
        let messages = [FrameRecord](repeating: .message(.text, message), count: 3)
        #expect(FramePeer.records(of: [frames], fromServer) == messages)
    }

    @Test func `leaves alone what is small or does not get shorter`() {
        var random = SeededRandom(seed: 1)
        let noise = (0..<1000).map { _ in UInt8.random(in: 0...255, using: &random) }
        let zeros = [UInt8](repeating: 0, count: 99)
        let deflater = Deflater(level: 1)
        var writer = ByteWriter()
        for message in [noise, zeros, []] {
            let isCompressed = FrameEncoder.append(
                .binary, message.span.bytes, compressedBy: deflater, above: 100, to: &writer)
            #expect(!isCompressed)
        }
        #expect(FramePeer.records(of: [writer.copied()], fromServer) == [.binary(noise), .binary(zeros), .binary([])])
        #expect(compressed([]) == nil)
        #expect(compressed([1]) == nil)
    }

    @Test func `looks back no further than the window`() throws {
        var random = SeededRandom(seed: 2)
        let noise = (0..<600).map { _ in UInt8.random(in: 0...255, using: &random) }
        #expect(compressed(noise + noise, windowBits: 9) == nil, "the repetition is too far away")
        #expect(try #require(compressed(noise + noise)).count < 700)
    }

    @Test func `reads compressed fragments with control frames between`() throws {
        let message = Array(String(repeating: "Grüße ", count: 50).utf8)
        let payload = try #require(compressed(message))
        let half = payload.count / 2
        let bytes = raw(0x41, Array(payload[..<half])) + raw(0x89, [1]) + raw(0x80, Array(payload[half...]))
        #expect(decode(bytes + text("plain"), compressing) == [.ping([1]), .message(.text, message), .text("plain")])
    }

    @Test func `refuses the bit where it does not belong`() {
        #expect(decode(raw(0x41, [0]) + raw(0xC0, [0]), compressing) == [.violation(.reservedBits)])
        #expect(decode(raw(0xC9), compressing) == [.violation(.reservedBits)])
        #expect(decode(frame(compressed: [0])) == [.violation(.reservedBits)])
    }

    @Test(
        arguments: [
            [0xFF], [0x07], [0x4A], [0x00, 0x05], [0x00, 0x09, 0x00, 0xf6, 0xff, 0x48], [0x00, 0x01, 0x00, 0x01, 0x00],
            [0xf2, 0x48, 0xcd, 0xc9], [0x03, 0x00, 0xFF], [0x62, 0x02, 0xFF, 0xFF],
        ] as [[UInt8]])
    func `refuses what cannot be decompressed`(payload: [UInt8]) {
        #expect(decode(frame(compressed: payload), compressing) == [.violation(.invalidCompression)])
    }

    @Test func `refuses compressed text that is not UTF-8`() throws {
        let payload = try #require(compressed([UInt8](repeating: 0xFF, count: 50)))
        #expect(decode(frame(compressed: payload, kind: .text), compressing) == [.violation(.invalidText)])
    }

    @Test func `stops a message that would grow past the limit`() throws {
        let bomb = try #require(compressed([UInt8](repeating: 0, count: 1 << 20), level: 9))
        #expect(bomb.count < 2000)
        #expect(decode(frame(compressed: bomb), compressing) == [.binary([UInt8](repeating: 0, count: 1 << 20))])
        let smaller = Rules(maximumMessageBytes: (1 << 20) - 1, maximumFragments: 8, allowsCompression: true)
        #expect(decode(frame(compressed: bomb), smaller) == [.violation(.messageTooLarge)])
    }

    @Test func `serves others after a bad message`() {
        let inflater = Inflater()
        func first(_ bytes: [UInt8]) -> FrameEvent {
            var storage = bytes
            var decoder = FrameDecoder(compressing)
            var span = storage.mutableSpan
            var raw = span.mutableBytes
            return decoder.next(in: &raw, from: 0, inflater: inflater).event
        }
        let bad = first(frame(compressed: [0x4A]))
        #expect(bad == .violation(.invalidCompression))
        let good = first(frame(compressed: [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00], kind: .text))
        #expect(good == .message(.text, .assembled))
    }
}
