import TestSupport
import Testing
import WebSocket

/// Request heads that two servers might read differently, each named after its fault.
struct Smuggling: Sendable, CustomTestStringConvertible {
    let wrong: String
    let head: String
    var status: HTTPStatus = .badRequest

    var testDescription: String { wrong }

    private static func with(_ wrong: String, _ headers: String, _ status: HTTPStatus = .badRequest) -> Smuggling {
        Smuggling(wrong: wrong, head: "POST / HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n\r\n", status: status)
    }

    private static func line(_ wrong: String, _ line: String, _ status: HTTPStatus = .badRequest) -> Smuggling {
        Smuggling(wrong: wrong, head: line + "\r\nHost: h\r\n\r\n", status: status)
    }

    static let lengths: [Smuggling] = [
        with("both lengths", "Content-Length: 4\r\nTransfer-Encoding: chunked"),
        with("both lengths, the other way round", "Transfer-Encoding: chunked\r\nContent-Length: 4"),
        with("two different lengths", "Content-Length: 4\r\nContent-Length: 5"),
        with("the same length twice", "Content-Length: 4\r\nContent-Length: 4"),
        with("a list of lengths", "Content-Length: 4, 4"),
        with("a signed length", "Content-Length: +4"),
        with("a negative length", "Content-Length: -1"),
        with("a hexadecimal length", "Content-Length: 0x4"),
        with("a length with a blank inside", "Content-Length: 4 2"),
        with("an empty length", "Content-Length:"),
        with("a length past all numbers", "Content-Length: 99999999999999999999", .contentTooLarge),
        with("an unknown coding", "Transfer-Encoding: gzip", .notImplemented),
        with("chunked under another coding", "Transfer-Encoding: gzip, chunked", .notImplemented),
        with("chunked twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        with("chunked in quotes", "Transfer-Encoding: \"chunked\"", .notImplemented),
        with("no coding", "Transfer-Encoding:", .notImplemented),
        with("a coding behind a vertical tab", "Transfer-Encoding: \u{0B}chunked"),
        Smuggling(wrong: "chunked in HTTP/1.0", head: "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ]

    static let lines: [Smuggling] = [
        with("a folded header", "X: a\r\n b"),
        with("a header that begins with a tab", "\tX: a"),
        with("a blank before the colon", "Content-Length : 4"),
        with("a header without a name", ": a"),
        with("a header without a colon", "X"),
        with("a name that is no token", "X(y): a"),
        with("a name with a byte past ASCII", "é: a"),
        with("a bare carriage return in a value", "X: a\rContent-Length: 4"),
        with("a bare line feed", "X: a\nContent-Length: 4"),
        with("a NUL in a value", "X: a\0b"),
        with("a DEL in a value", "X: a\u{7F}b"),
        with("a NUL in a name", "X\0: a"),
        with("an unknown expectation", "Content-Length: 1\r\nExpect: 200-ok", .expectationFailed),
    ]

    static let requestLines: [Smuggling] = [
        line("no version", "GET /"), line("an empty target", "GET  HTTP/1.1"), line("two blanks", "GET  / HTTP/1.1"),
        line("a tab instead of a blank", "GET\t/ HTTP/1.1"), line("a blank at the end", "GET / HTTP/1.1 "),
        line("a lower-case version", "GET / http/1.1"), line("a version without a dot", "GET / HTTP/11"),
        line("version 1.2", "GET / HTTP/1.2", .versionNotSupported),
        line("version 2.0", "GET / HTTP/2.0", .versionNotSupported), line("version 1.10", "GET / HTTP/1.10"),
        line("a method that is no token", "G@T / HTTP/1.1"), line("a blank first", " GET / HTTP/1.1"),
        line("an empty line first", "\r\nGET / HTTP/1.1"), line("a byte past ASCII", "GET /é HTTP/1.1"),
        line("a fragment", "GET /a#b HTTP/1.1"), line("an authority as target", "CONNECT h:80 HTTP/1.1"),
        line("a relative target", "GET a HTTP/1.1"), line("a host with a password", "GET http://u:p@h/ HTTP/1.1"),
        line("a target without a host", "GET http:///a HTTP/1.1"), line("a bare percent sign", "GET /% HTTP/1.1"),
        line("half an escape", "GET /%4 HTTP/1.1"), line("an escape of nothing", "GET /%zz HTTP/1.1"),
        line("a bad escape in the query", "GET /?a=%g0 HTTP/1.1"), line("an escaped NUL", "GET /a%00 HTTP/1.1"),
        line("an escaped line feed", "GET /a%0Ab HTTP/1.1"), line("bytes that are no text", "GET /%FF HTTP/1.1"),
        line("an overlong slash", "GET /%C0%AF HTTP/1.1"), line("half a character", "GET /?a=%C3 HTTP/1.1"),
    ]

    static let hosts: [Smuggling] = [
        Smuggling(wrong: "no host", head: "GET / HTTP/1.1\r\nX: a\r\n\r\n"),
        Smuggling(wrong: "no header at all", head: "GET / HTTP/1.1\r\n\r\n"),
        Smuggling(wrong: "two hosts", head: "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"),
        Smuggling(wrong: "an empty host", head: "GET / HTTP/1.1\r\nHost: \r\n\r\n"),
        Smuggling(wrong: "a host with a path", head: "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        Smuggling(wrong: "a list of hosts", head: "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
        Smuggling(wrong: "no host beside a full target", head: "GET http://h/ HTTP/1.1\r\nX: a\r\n\r\n"),
    ]

    static let all = lengths + lines + requestLines + hosts
}

@Suite(.within(minutes: 5)) struct SmugglingTests {
    @Test(arguments: Smuggling.all)
    func `refuses what can be read in two ways`(fixture: Smuggling) throws {
        let found = try refusal(fixture.head)
        #expect(found.status == fixture.status, "\(found.text)")
    }
}
