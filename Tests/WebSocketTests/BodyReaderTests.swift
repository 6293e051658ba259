import Bytes
import TestSupport
import Testing
import WebSocket

private enum Read: Equatable {
    case complete([UInt8], left: Int)
    case open
    case refused(HTTPStatus)
}

private func read(_ length: HTTPBodyLength, _ pieces: [[UInt8]]) -> Read {
    do throws(HTTPRefusal) {
        var reader = try HTTPBodyReader(length, limits: httpLimits)
        var left = 0
        for piece in pieces { left += piece.count - (try reader.read(piece.span.bytes)) }
        let bytes = reader.bytes.copied()
        return reader.isComplete ? .complete(bytes, left: left) : .open
    } catch {
        return .refused(error.status)
    }
}

private func chunked(_ body: String) -> Read { read(.chunked, [Array(body.utf8)]) }

@Suite(.within(minutes: 5)) struct BodyReaderTests {
    @Test func `reads as many bytes as were announced`() {
        #expect(read(.none, [[1, 2]]) == .complete([], left: 2))
        #expect(read(.bytes(3), [[1, 2], [3, 4]]) == .complete([1, 2, 3], left: 1))
        #expect(read(.bytes(3), [[1, 2]]) == .open)
    }

    @Test func `reads chunks, extensions and trailers`() {
        let body = "4\r\nWiki\r\n6;x=\"y\"\r\npedia \r\nE \r\nin \r\n\r\nchunks.\r\n000\r\nX: y\r\nZ: a\r\n\r\nGET"
        #expect(chunked(body) == .complete(Array("Wikipedia in \r\n\r\nchunks.".utf8), left: 3))
    }

    @Test(arguments: seeds(100))
    func `reads the same whatever pieces the chunks come in`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        var bytes = Array("4;a\r\nWiki\r\n10\r\n0123456789abcdef\r\n0\r\nX: y\r\n\r\n".utf8)
        if Bool.random(using: &random) {
            bytes[Int.random(in: 0..<bytes.count, using: &random)] = UInt8.random(in: 0...127, using: &random)
        }
        let whole = read(.chunked, [bytes])
        let inPieces = read(.chunked, pieces(of: bytes, using: &random))
        #expect(whole == inPieces)
    }

    @Test func `refuses a body that is too large before it comes`() {
        #expect(read(.bytes(4097), []) == .refused(.contentTooLarge))
        #expect(chunked("1001\r\n") == .refused(.contentTooLarge))
        #expect(chunked("800\r\n" + String(repeating: "a", count: 2048) + "\r\n801\r\n") == .refused(.contentTooLarge))
        #expect(chunked("7fffffffffffff0\r\n") == .refused(.contentTooLarge))
    }

    @Test(arguments: [
        "\r\n", "x\r\n", "-1\r\n", "0x4\r\n", "4\nWiki", "4\r\nWikiX", "4\r\nWiki\rX", "1 2\r\n", ";a\r\n",
        "0000000000000001\r\n", "4\r;\n", "4\0\r\n",
    ])
    func `refuses chunks that are none`(body: String) {
        #expect(chunked(body) == .refused(.badRequest))
    }

    @Test func `refuses extensions and trailers without an end`() {
        #expect(chunked("4;" + String(repeating: "a", count: 1100)) == .refused(.headersTooLarge))
        #expect(chunked("0\r\n" + String(repeating: "X: y\r\n", count: 400)) == .refused(.headersTooLarge))
    }
}
