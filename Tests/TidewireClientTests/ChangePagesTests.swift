import Foundation
import TestSupport
import Testing
import TidewireClientTesting

@testable import TidewireClient

@Suite(.within(minutes: 5)) struct ChangePagesTests {
    @Test func `what happened since then comes in pages, without a subscription`() async throws {
        let stage = Stage()
        let start = try await stage.tidewire.fetchChanges(after: nil, of: Note.self)
        #expect(start.changes.isEmpty && start.position == LogPosition("e1.0"))
        for id in 1...5 { stage.hub.insert("notes", note(id)) }
        stage.hub.insert("notes", note(6, owner: "ben"))
        var (position, ids, pages) = (start.position, [Int](), 0)
        while true {
            let page = try await stage.tidewire.fetchChanges(
                after: position, of: Note.self, where: \.owner == "ana", limit: 2)
            ids += page.changes.map(\.id)
            position = page.position
            pages += 1
            if !page.hasMore { break }
        }
        #expect(ids == [1, 2, 3, 4, 5])
        #expect(pages == 3 && position == LogPosition("e1.6"))
        #expect(stage.hub.connections == 0)
    }

    @Test func `what cannot be told any more is no error, but a reason to fetch and a place to go on from`()
        async throws
    {
        let stage = Stage()
        stage.hub.insert("notes", note(1))
        stage.hub.insert("notes", note(2))
        stage.hub.retain(latest: 1)
        let page = try await stage.tidewire.fetchChanges(after: LogPosition("e1.0"), of: [TableBinding(table: "notes")])
        #expect(page.refetchReason == .olderThanRetention && page.position == LogPosition("e1.2"))
    }

    @Test func `a token that is over and a network that is away are problems with a name`() async {
        let stage = Stage()
        stage.hub.expire("ana")
        await #expect(throws: TidewireProblem(code: "TokenRefused", message: "Token has expired", severity: .error)) {
            try await stage.tidewire.fetchChanges(after: nil, of: [TableBinding(table: "notes")])
        }
        stage.hub.refuseConnections(.unreachable("no route"))
        do {
            _ = try await stage.tidewire.fetchChanges(after: nil, of: [TableBinding(table: "notes")])
            Issue.record("nobody answered")
        } catch {
            #expect((error as? TidewireProblem)?.code == "Unreachable")
        }
    }

    @Test func `the address, with what belongs to each table behind it`() {
        let request = ChangesRequest(
            Tidewire.address(URL(string: "https://hub.test/realtime/v1") ?? URL(fileURLWithPath: "/"), "key"),
            [
                TableBinding(table: "a", filter: "at=gt.2026-01-01T00:00:00+00:00"),
                TableBinding(schema: "s", table: "b", select: ["x", "y"]),
            ],
            LogPosition("e.7"), 10, token: "mine"
        ).request
        #expect(
            request.url.absoluteString
                == "https://hub.test/realtime/v1/api/changes?table=a&schema=public&filter=at%3Dgt.2026-01-01T00:00:00%2B00:00"
                + "&table=b&schema=s&select=x,y&moves=true&limit=10&after=e.7&apikey=key")
        #expect(request.headers == ["Authorization": "Bearer mine"])
    }

    @Test(arguments: [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ])
    func `an answer is read in whatever pieces it comes`(text: String) throws {
        let bytes = Array(text.utf8)
        for size in 1...bytes.count {
            var parser = AnswerParser()
            var answer: TransportAnswer?
            for start in stride(from: 0, to: bytes.count, by: size) where answer == nil {
                parser.append(Array(bytes[start..<min(start + size, bytes.count)]))
                answer = try parser.answer()
            }
            #expect(answer == TransportAnswer(status: 200, body: Array("hello".utf8)), "in pieces of \(size)")
        }
    }

    @Test func `an answer without a length ends with the connection`() throws {
        var parser = AnswerParser()
        parser.append(Array("HTTP/1.0 503 Busy\r\n\r\nlater".utf8))
        #expect(try parser.answer() == nil)
        #expect(parser.ended() == TransportAnswer(status: 503, body: Array("later".utf8)))
    }

    @Test(arguments: [
        "SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
    ])
    func `what is no answer is refused`(text: String) {
        var parser = AnswerParser()
        parser.append(Array(text.utf8))
        #expect(throws: AnswerParser.Malformed.self) { try parser.answer() }
    }
}
