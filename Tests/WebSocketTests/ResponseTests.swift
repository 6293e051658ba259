import TestSupport
import Testing
import WebSocket

private func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

@Suite(.within(minutes: 5)) struct ResponseTests {
    @Test func `says status, headers, length and what becomes of the connection`() {
        let response = HTTPResponse(.ok, contentType: "text/plain", body: Array("hi".utf8))
        #expect(
            text(response.bytes(keepAlive: true))
                == "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\nhi"
        )
        #expect(text(response.bytes(keepAlive: false)).contains("\r\nconnection: close\r\n"))
    }

    @Test func `answers HEAD with the length and without the body`() {
        let response = HTTPResponse(.ok, contentType: "text/plain", body: Array("hi".utf8))
        let head = text(response.bytes(keepAlive: true, toHead: true))
        #expect(head.contains("content-length: 2\r\n"))
        #expect(head.hasSuffix("\r\n\r\n"))
    }

    @Test func `gives no length where there can be no body`() {
        #expect(!text(HTTPResponse(.noContent).bytes(keepAlive: true)).contains("content-length"))
        #expect(text(HTTPResponse(.forbidden).bytes(keepAlive: true)).contains("content-length: 0\r\n"))
    }

    @Test func `lets no value begin a header of its own`() {
        let response = HTTPResponse(.found, headers: [HTTPHeader("location", "/a\r\nset-cookie: b")])
        #expect(text(response.bytes(keepAlive: true)).contains("location: /a  set-cookie: b\r\n"))
    }

    @Test func `tells a refusal as clients expect it`() {
        let refusal = HTTPRefusal(.unauthorized, "key \"a\"", headers: [HTTPHeader("x", "y")])
        let response = refusal.response
        #expect(text(response.body) == #"{"error":"key \"a\""}"#)
        #expect(response.headers.contains(HTTPHeader("content-type", "application/json; charset=utf-8")))
        #expect(response.headers.contains(HTTPHeader("x", "y")))
    }
}
