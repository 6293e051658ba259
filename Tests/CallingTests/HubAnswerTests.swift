import Calling
import TestSupport
import Testing

@Suite(.within(minutes: 1)) struct HubAnswerTests {
    private func answer(_ text: String) -> HubAnswer? { HubAnswer(Array(text.utf8)) }

    @Test func `an answer with a length is as long as that`() throws {
        let found = try #require(answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTidewire-Exit-Code: 1\r\n\r\nabcd"))
        #expect(found.status == 200 && found.text == "abc" && found.header("tidewire-exit-code") == "1")
    }

    @Test func `chunks are put together`() throws {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        #expect(try #require(answer(head + "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n")).text == "abcde")
        for broken in ["3\r\nabc\r\n", "9\r\nabc\r\n0\r\n\r\n", "x\r\nabc\r\n0\r\n\r\n", "-1\r\nabc\r\n0\r\n\r\n"] {
            #expect(answer(head + broken) == nil, "\(broken)")
        }
    }

    @Test(arguments: [
        "", "\r\n\r\n", "HTTP/1.1 200", "HTTP/2 200\r\n\r\n", "HTTP/1.1 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    ])
    func `what is cut off or is none is no answer`(text: String) { #expect(answer(text) == nil) }

    /// Checks that the client notices an answer that is cut short, and that no bytes crash it.
    @Test(arguments: seeds(20)) func `halves are no answers`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let body = (0..<Int.random(in: 1...300, using: &random)).map { _ in UInt8.random(in: 0...255, using: &random) }
        let whole = Array("HTTP/1.1 200 OK\r\ncontent-length: \(body.count)\r\n\r\n".utf8) + body
        #expect(HubAnswer(whole)?.body == body)
        for _ in 0..<20 {
            #expect(HubAnswer(Array(whole.prefix(Int.random(in: 0..<whole.count, using: &random)))) == nil)
        }
        _ = HubAnswer(body)
    }

    @Test func `addresses`() throws {
        let plain = try #require(HubAddress("http://hub:4000"))
        #expect(plain.port == 4000 && !plain.isSecure && plain.description == "http://hub:4000")
        let secure = try #require(HubAddress("https://[::1]/api"))
        #expect(secure.port == 443 && secure.isSecure && secure.host == "::1" && secure.place == "[::1]:443")
        for text in ["hub:4000", "ftp://hub", "http://", "http://user@hub", "http://hub:99999", "https://hub/a b"] {
            #expect(HubAddress(text) == nil, "\(text)")
        }
    }
}
