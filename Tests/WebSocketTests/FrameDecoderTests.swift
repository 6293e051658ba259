import Bytes
import TestSupport
import Testing
import WebSocket

typealias Rules = FrameDecoder.Rules

let rules = Rules(maximumMessageBytes: 1000, maximumFragments: 8)
let strictRules = Rules(maximumMessageBytes: 1000, maximumFragments: 8, validatesText: true)
let mask: UInt32 = 0x1234_5678

/// Returns a frame as a client might write it, valid or not.
func raw(
    _ first: UInt8, _ payload: [UInt8] = [], masked: Bool = true, length: [UInt8]? = nil
) -> [UInt8] {
    let bit: UInt8 = masked ? 0x80 : 0
    var frame = [first] + (length.map { [$0[0] | bit] + $0.dropFirst() } ?? [UInt8(payload.count) | bit])
    let key: [UInt8] = [0x78, 0x56, 0x34, 0x12]
    if masked { frame += key }
    return frame + payload.enumerated().map { masked ? $1 ^ key[$0 % 4] : $1 }
}

func client(_ kind: MessageKind, _ payload: [UInt8]) -> [UInt8] {
    var writer = ByteWriter()
    ClientFrameEncoder.append(kind, payload.span.bytes, mask: mask, to: &writer)
    return writer.copied()
}

func text(_ text: String) -> [UInt8] { client(.text, Array(text.utf8)) }

/// Returns the decoder's records for the bytes in one piece. Checks that the same bytes, one at a time, give the same.
func decode(_ bytes: [UInt8], _ rules: Rules = rules) -> [FrameRecord] {
    let whole = FramePeer.records(of: [bytes], rules)
    let byteByByte = FramePeer.records(of: bytes.map { [$0] }, rules)
    #expect(whole == byteByByte)
    return whole
}

@Suite(.within(minutes: 5)) struct FrameDecoderTests {
    /// Checks the examples of RFC 6455 §5.7.
    @Test func `reads the examples of RFC 6455`() {
        #expect(decode([0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]) == [.text("Hello")])
        let server = Rules(maximumMessageBytes: 1000, maximumFragments: 8, expectsMask: false)
        #expect(decode([0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f], server) == [.text("Hello")])
        #expect(decode([0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f], server) == [.text("Hello")])
        #expect(decode([0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f], server) == [.ping(Array("Hello".utf8))])
        #expect(decode([0x82, 0x7E, 0x01, 0x00] + [UInt8](repeating: 7, count: 256), server).count == 1)
    }

    @Test(arguments: [0, 1, 3, 4, 7, 8, 9, 125, 126, 127, 999, 1000])
    func `reads payloads of every size of header`(size: Int) {
        let payload = (0..<size).map { UInt8(truncatingIfNeeded: $0 &* 7) }
        #expect(decode(client(.binary, payload)) == [.binary(payload)])
    }

    @Test func `reads payloads of 64-bit lengths`() {
        let payload = [UInt8](repeating: 9, count: 70_000)
        let large = Rules(maximumMessageBytes: 70_000, maximumFragments: 8)
        #expect(decode(client(.binary, payload), large) == [.binary(payload)])
    }

    @Test func `reads several frames of one piece in their order`() {
        #expect(
            decode(text("a") + raw(0x89, [1]) + text("") + raw(0x8A, [])) == [
                .text("a"), .ping([1]), .text(""), .pong([]),
            ])
    }

    @Test func `splits at every byte without a difference`() {
        let bytes = raw(0x01, [65]) + raw(0x89, [1, 2]) + raw(0x80, [66]) + text("three") + raw(0x88, [3, 0xE8, 65])
        let whole = FramePeer.records(of: [bytes], strictRules)
        #expect(whole == [.ping([1, 2]), .text("AB"), .text("three"), .close(.normal, "A")])
        for cut in 0...bytes.count {
            #expect(FramePeer.records(of: [Array(bytes[..<cut]), Array(bytes[cut...])], strictRules) == whole)
        }
    }

    @Test func `says how many bytes it waits for`() {
        var peer = FramePeer(rules)
        var wanted: [Int] = []
        for byte in client(.binary, [UInt8](repeating: 1, count: 200)) {
            wanted.append(peer.wanted)
            peer.receive([byte])
        }
        #expect(wanted[..<9] == [0, 6, 8, 8, 208, 208, 208, 208, 208])
        let last = peer.wanted
        #expect(last == 6)
    }

    @Test(arguments: seeds(200))
    func `says the same of any bytes in any pieces`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        let kinds: [[UInt8]] = [
            text("Grüße"), raw(0x01, [0xC3]), raw(0x80, [0xA9]), raw(0x00, [65]), raw(0x89, [1, 2, 3]), raw(0x02, []),
            raw(0xC1, [0x4A, 0x04, 0x00]), raw(0x41, [0x4A]), raw(0x80, [0x04, 0x00]), client(.binary, Array(0...255)),
        ]
        var bytes = (0..<12).flatMap { _ in random.pick(kinds) }
        if seed.number % 3 == 0 {
            bytes[Int.random(in: 0..<bytes.count, using: &random)] ^= 1 << UInt8.random(in: 0..<8, using: &random)
        }
        let every = Rules(
            maximumMessageBytes: 300, maximumFragments: 4, allowsCompression: true, validatesText: seed.number % 2 == 0)
        let whole = FramePeer.records(of: [bytes], every)
        #expect(FramePeer.records(of: pieces(of: bytes, using: &random), every) == whole)
    }

    @Test func `keeps nothing for an idle connection`() {
        #expect(MemoryLayout<FrameDecoder>.size <= 48)
    }
}

@Suite(.within(minutes: 5)) struct FrameViolationTests {
    struct Wrong: Sendable {
        let bytes: [UInt8]
        let violation: FrameViolation

        init(_ violation: FrameViolation, _ bytes: [UInt8]) {
            self.bytes = bytes
            self.violation = violation
        }
    }

    @Test(arguments: [
        Wrong(.unmasked, raw(0x81, [65], masked: false)), Wrong(.unmasked, [0x89, 0x00]),
        Wrong(.reservedBits, raw(0xC1)), Wrong(.reservedBits, raw(0xA1)), Wrong(.reservedBits, raw(0x91)),
        Wrong(.reservedBits, raw(0xC9)), Wrong(.unknownOpcode, raw(0x83)), Wrong(.unknownOpcode, raw(0x87)),
        Wrong(.unknownOpcode, raw(0x8B)), Wrong(.unknownOpcode, raw(0x8F)), Wrong(.fragmentedControl, raw(0x09)),
        Wrong(.fragmentedControl, raw(0x08)), Wrong(.longControl, raw(0x89, length: [126, 0, 126])),
        Wrong(.longControl, raw(0x88, length: [127])), Wrong(.strayContinuation, raw(0x80)),
        Wrong(.strayContinuation, raw(0x00)), Wrong(.interruptedMessage, raw(0x01) + raw(0x81)),
        Wrong(.interruptedMessage, raw(0x01) + raw(0x02)), Wrong(.strayContinuation, text("a") + raw(0x80)),
        Wrong(.lengthNotMinimal, raw(0x82, length: [126, 0, 125])),
        Wrong(.lengthNotMinimal, raw(0x82, length: [127, 0, 0, 0, 0, 0, 0, 255, 255])),
        Wrong(.lengthTooLarge, raw(0x82, length: [127, 128, 0, 0, 0, 0, 0, 0, 0])),
        Wrong(.messageTooLarge, raw(0x82, length: [127, 127, 255, 255, 255, 255, 255, 255, 255])),
        Wrong(.messageTooLarge, raw(0x82, length: [126, 3, 233])), Wrong(.shortClose, raw(0x88, [3])),
        Wrong(.invalidCloseReason, raw(0x88, [3, 0xE8, 0xFF])), Wrong(.invalidCloseReason, raw(0x88, [3, 0xE8, 0xC3])),
    ])
    func `names what a peer does wrong`(wrong: Wrong) {
        let records = decode(wrong.bytes + text("not looked at")).filter { $0 != .text("a") }
        #expect(records == [.violation(wrong.violation)])
    }

    @Test func `refuses a masked frame from a server`() {
        let fromServer = Rules(maximumMessageBytes: 1000, maximumFragments: 8, expectsMask: false)
        #expect(decode(text("a"), fromServer) == [.violation(.masked)])
    }

    @Test func `refuses a message that is too large before its payload comes`() {
        #expect(FramePeer.records(of: [[0x82, 0xFE, 3, 233]], rules) == [.violation(.messageTooLarge)])
        let first = raw(0x02, [UInt8](repeating: 1, count: 100))
        let rest: [UInt8] = [0x80, 0xFE, 3, 133]
        #expect(FramePeer.records(of: [first + rest], rules) == [.violation(.messageTooLarge)])
        let fitting = first + raw(0x80, [UInt8](repeating: 1, count: 900), length: [126, 3, 132])
        #expect(decode(fitting) == [.binary([UInt8](repeating: 1, count: 1000))])
    }

    @Test func `refuses fragments without an end`() {
        let eight = raw(0x02) + (0..<6).flatMap { _ in raw(0x00) } + raw(0x80)
        #expect(decode(eight) == [.binary([])])
        let nine = raw(0x02) + (0..<7).flatMap { _ in raw(0x00) } + raw(0x80)
        #expect(decode(nine) == [.violation(.tooManyFragments)])
    }

    @Test func `gives each violation a code that may be sent and a reason that fits`() {
        for violation in FrameViolation.allCases {
            #expect(violation.code.mayBeSent)
            #expect(violation.reason.utf8CodeUnitCount <= FrameSize.maximumCloseReasonBytes)
        }
        #expect(FrameViolation.messageTooLarge.code == .messageTooBig)
        #expect(FrameViolation.invalidText.code == .invalidPayload)
        #expect(FrameViolation.unmasked.code == .protocolError)
    }
}

@Suite(.within(minutes: 5)) struct FragmentTests {
    @Test func `answers control frames between fragments`() {
        let bytes = raw(0x01, [65]) + raw(0x89, [1]) + raw(0x00, [66]) + raw(0x8A, [2]) + raw(0x80, [67]) + text("D")
        #expect(decode(bytes) == [.ping([1]), .pong([2]), .text("ABC"), .text("D")])
    }

    @Test func `reads empty fragments and empty messages`() {
        #expect(decode(raw(0x01) + raw(0x00) + raw(0x80)) == [.text("")])
        #expect(decode(raw(0x02) + raw(0x80, [1]) + raw(0x82)) == [.binary([1]), .binary([])])
    }

    @Test func `forgets a message when the peer leaves in its midst`() {
        #expect(decode(raw(0x01, [65]) + raw(0x88, [3, 0xE9]) + raw(0x80, [66])) == [.close(.goingAway, "")])
    }
}

@Suite(.within(minutes: 5)) struct CloseTests {
    @Test(
        arguments: [
            1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999,
        ] as [UInt16])
    func `takes the codes that may be sent`(code: UInt16) {
        let bytes = raw(0x88, [UInt8(code >> 8), UInt8(code & 255)] + Array("wég".utf8))
        #expect(decode(bytes) == [.close(CloseCode(rawValue: code), "wég")])
    }

    @Test(arguments: [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535] as [UInt16])
    func `refuses the codes that may not`(code: UInt16) {
        #expect(decode(raw(0x88, [UInt8(code >> 8), UInt8(code & 255)])) == [.violation(.invalidCloseCode)])
    }

    @Test func `takes a close without a code and reads nothing behind it`() {
        #expect(decode(raw(0x88) + text("late") + raw(0xFF)) == [.close(nil, "")])
        #expect(decode(raw(0x88) + raw(0x88)) == [.close(nil, "")])
    }
}

@Suite(.within(minutes: 5)) struct TextTests {
    @Test func `refuses text that is not UTF-8 only where that is asked for`() {
        let bytes = client(.text, [0x61, 0xFF])
        #expect(decode(bytes) == [.message(.text, [0x61, 0xFF])])
        #expect(decode(bytes, strictRules) == [.violation(.invalidText)])
        #expect(decode(client(.binary, [0xFF]), strictRules) == [.binary([0xFF])])
    }

    @Test func `takes characters that are cut by fragments and by pieces`() {
        let bytes = raw(0x01, [0xF0, 0x9F]) + raw(0x89, [0xFF]) + raw(0x00, [0x98]) + raw(0x80, [0x80])
        #expect(decode(bytes, strictRules) == [.ping([0xFF]), .text("😀")])
        #expect(decode(raw(0x01, [0xC3]) + raw(0x80, []), strictRules) == [.violation(.invalidText)])
    }

    @Test func `refuses bad text as soon as it comes, not when the frame ends`() {
        let start = client(
            .text, [UInt8](repeating: 0x61, count: 100) + [0xF4, 0x90] + [UInt8](repeating: 0, count: 100))
        var peer = FramePeer(strictRules)
        peer.receive(Array(start.prefix(8 + 101)))
        let before = peer.records
        #expect(before.isEmpty, "so far it could become text")
        peer.receive([start[8 + 101]])
        let after = peer.records
        #expect(after == [.violation(.invalidText)])
    }

    /// Checks every sequence of up to three bytes at the limits in RFC 3629 §4. Swift's own decoder gives the expected
    /// result.
    @Test func `agrees with Swift on what is UTF-8`() {
        let borders: [UInt8] = [
            0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF,
            0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF,
        ]
        let tails: [[UInt8]] = [[], [0x80], [0x80, 0x80], [0x41]]
        for first in borders {
            for second in borders {
                for third in borders {
                    for tail in tails {
                        let bytes = [first, second, third] + tail
                        let isText = String(validating: bytes, as: UTF8.self) != nil
                        let record = FramePeer.records(of: [client(.text, bytes)], strictRules)
                        #expect(record == [isText ? .message(.text, bytes) : .violation(.invalidText)])
                    }
                }
            }
        }
    }
}
