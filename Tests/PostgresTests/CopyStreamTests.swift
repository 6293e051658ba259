import Bytes
import Diagnostics
import Glibc
import TestSupport
import Testing

@testable import Postgres

/// Tests in which the test itself is the server, at the other end of a socket pair.
@Suite(.within(minutes: 5)) struct CopyStreamTests {
    private final class Pair {
        let ours: Int32
        let theirs: Int32

        init() {
            var descriptors: [Int32] = [0, 0]
            _ = socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &descriptors)
            (ours, theirs) = (descriptors[0], descriptors[1])
        }

        deinit {
            close(ours)
            close(theirs)
        }

        func say(_ bytes: [UInt8]) { #expect(write(theirs, bytes, bytes.count) == bytes.count) }
    }

    private static func message(_ kind: Character, _ body: [UInt8]) -> [UInt8] {
        var writer = ByteWriter()
        writer.append(kind.asciiValue ?? 0)
        writer.append(big: UInt32(body.count + 4))
        writer.append(body)
        return writer.copied()
    }

    private static func text(_ message: borrowing CopyStream.Message?) -> String? {
        switch message {
        case .data(let bytes)?: bytes.text
        case .begins?: "(begins)"
        case .ends?: "(ends)"
        case .refused(let error)?: "\(error)"
        case nil: nil
        }
    }

    @Test func `messages come out whole however they are cut`() throws {
        let conversation =
            Self.message("W", [0, 0, 0]) + Self.message("d", Array("one".utf8)) + Self.message("N", [1, 2, 3])
            + Self.message("S", Array("a\0b\0".utf8)) + Self.message("d", []) + Self.message("d", Array("three".utf8))
        for cut in 0...conversation.count {
            let pair = Pair()
            var stream = CopyStream(socket: pair.ours)
            var heard: [String] = []
            for piece in [conversation[..<cut], conversation[cut...]] where !piece.isEmpty {
                pair.say(Array(piece))
                try stream.receive()
                while let text = Self.text(try stream.next()) { heard.append(text) }
            }
            #expect(heard == ["(begins)", "one", "", "three"])
        }
    }

    @Test func `a message larger than the buffer comes out whole`() throws {
        let pair = Pair()
        let large = [UInt8](repeating: 65, count: 3 * Limits.streamReadBytes)
        let bytes = Self.message("d", large) + Self.message("d", [66])
        var stream = CopyStream(socket: pair.ours)
        var lengths: [Int] = []
        for start in stride(from: 0, to: bytes.count, by: 100_000) {
            pair.say(Array(bytes[start..<min(start + 100_000, bytes.count)]))
            repeat {
                try stream.receive()
                while let text = Self.text(try stream.next()) { lengths.append(text.utf8.count) }
            } while stream.mayHaveMore
        }
        #expect(lengths == [large.count, 1])
    }

    @Test func `nothing there is no message and no error`() throws {
        let pair = Pair()
        var stream = CopyStream(socket: pair.ours)
        try stream.receive()
        #expect(Self.text(try stream.next()) == nil)
        let mayHaveMore = stream.mayHaveMore
        #expect(!mayHaveMore)
    }

    @Test func `the server's refusal keeps code, words and hint, and no detail`() throws {
        let pair = Pair()
        pair.say(Self.message("E", Array("SERROR\0C55006\0Mslot is active\0Dsecret row\0Hwait\0\0".utf8)))
        var stream = CopyStream(socket: pair.ours)
        try stream.receive()
        #expect(Self.text(try stream.next()) == "stream: slot is active (SQLSTATE 55006); hint: wait")
    }

    @Test func `what cannot be a message ends the stream`() throws {
        for bytes in [[UInt8(ascii: "d"), 0, 0, 0, 3], [UInt8(ascii: "d"), 0x7f, 0, 0, 0], Self.message("?", [])] {
            let pair = Pair()
            pair.say(bytes)
            var stream = CopyStream(socket: pair.ours)
            try stream.receive()
            #expect(throws: PostgresError.self) { _ = Self.text(try stream.next()) }
        }
    }

    @Test func `a closed connection is said`() throws {
        let pair = Pair()
        shutdown(pair.theirs, Int32(SHUT_RDWR))
        var stream = CopyStream(socket: pair.ours)
        #expect(throws: PostgresError.self) { try stream.receive() }
    }
}
