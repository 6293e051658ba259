import Bytes
import Diagnostics
import EventLog
import Protocol
import TestSupport
import Testing
import WebSocket

@testable import Gateway

@Suite(.within(minutes: 1)) struct FeedRequestTests {
    private struct NoRequest: Error {}

    private func request(
        _ query: String, accept: String? = nil, lastID: String? = nil, version: String = "1.1"
    ) throws -> HTTPRequest {
        var head = "GET /realtime/v1/api/changes?\(query) HTTP/\(version)\r\nHost: a\r\n"
        if let accept { head += "Accept: \(accept)\r\n" }
        if let lastID { head += "Last-Event-ID: \(lastID)\r\n" }
        let bytes = Array((head + "\r\n").utf8)
        let limits = HTTPLimits(
            maximumHeadBytes: 1 << 16, maximumTargetBytes: 1 << 15, maximumHeaders: 100, maximumBodyBytes: 0)
        guard case .request(let request, _) = HTTPRequestParser.parse(bytes.span.bytes, scanned: 0, limits: limits)
        else { throw NoRequest() }
        return request
    }

    private func read(
        _ query: String, accept: String? = nil, lastID: String? = nil, version: String = "1.1"
    ) throws -> FeedRequest {
        try FeedRequest(try request(query, accept: accept, lastID: lastID, version: version))
    }

    private func refusal(_ query: String, accept: String? = nil, lastID: String? = nil) throws -> FeedRefusal? {
        let request = try request(query, accept: accept, lastID: lastID)
        do throws(FeedRefusal) {
            _ = try FeedRequest(request)
            return nil
        } catch {
            return error
        }
    }

    @Test func `what a binding has can be asked for, and it means the same`() throws {
        let feed = try read("table=t&schema=s&event=insert&filter=id%3Deq.5&select=id,%20name&after=00000000000000aa.7")
        var wanted = BindingParameters(
            event: .insert, schema: "s", table: "t", filter: "id=eq.5", select: ["id", "name"])
        #expect(feed.bindings == [wanted])
        #expect(feed.after == EventLogPosition(epoch: 0xaa, offset: 7))
        #expect(feed.limit == Limits.feedPageChanges && !feed.isLive && feed.form == FeedForm(.page, .chunks))
        wanted.filter = nil
        wanted.select = []
        wanted.options[.moves] = true
        #expect(try read("schema=s&event=INSERT&table=t&moves=true").bindings == [wanted])
    }

    @Test func `parameters are those of the table before them, or of all where none is`() throws {
        let feed = try read("schema=s&event=DELETE&table=a&filter=id%3Deq.1&table=b&event=*&table=c")
        #expect(feed.bindings.map(\.table) == ["a", "b", "c"])
        #expect(feed.bindings.map(\.schema) == ["s", "s", "s"])
        #expect(feed.bindings.map(\.event) == [.delete, .all, .delete])
        #expect(feed.bindings.map(\.filter) == ["id=eq.1", nil, nil])
    }

    @Test func `what a client accepts says the form`() throws {
        let forms: [(String?, FeedForm.Format)] = [
            (nil, .page), ("*/*", .page), ("application/json", .page), ("application/x-ndjson", .lines),
            ("application/ndjson", .lines), ("text/event-stream", .events), ("TEXT/Event-Stream ; q=1", .events),
            ("text/html, application/x-ndjson;q=0.5, */*;q=0.1", .lines),
            ("application/json;q=0.2, text/event-stream;q=0.9", .events),
            ("application/json, text/event-stream", .page), ("application/json;q=0, application/jsonl", .lines),
        ]
        for (accept, format) in forms {
            #expect(try read("table=t", accept: accept).form.format == format, "\(accept ?? "nothing")")
        }
        for accept in ["text/html", "application/json;q=0", "image/*, text/plain"] {
            #expect(try refusal("table=t", accept: accept) == .notAcceptable)
        }
        #expect(try read("table=t", version: "1.0").form.framing == .untilClose)
    }

    @Test func `server-sent events go on unless they are not to, and others only where they are to`() throws {
        #expect(try read("table=t", accept: "text/event-stream").isLive)
        #expect(try !read("table=t&live=false", accept: "text/event-stream").isLive)
        #expect(try !read("table=t", accept: "application/x-ndjson").isLive)
        #expect(try read("table=t&live=1").isLive)
        #expect(try read("table=t", accept: "text/event-stream").limit == nil)
        #expect(try read("table=t&limit=3", accept: "text/event-stream").limit == 3)
        let snapshot = try read("table=t&snapshot=true", accept: "text/event-stream")
        #expect(snapshot.bindings[0].options[.snapshot] == true && snapshot.bindings[0].options[.moves] == nil)
        guard case .parameter("snapshot", _)? = try refusal("table=t&snapshot=true") else {
            Issue.record("rows have no place in a page")
            return
        }
        #expect(try read("table=t&limit=\(Limits.maximumFeedPageChanges)").limit == Limits.maximumFeedPageChanges)
    }

    @Test func `who comes back by itself goes on from what it got last`() throws {
        let feed = try read("table=t&after=00000000000000aa.7", lastID: "00000000000000aa.9")
        #expect(feed.after == EventLogPosition(epoch: 0xaa, offset: 9))
        guard case .parameter("Last-Event-ID", _)? = try refusal("table=t", lastID: "x") else {
            Issue.record("an id that is no position is not passed over")
            return
        }
    }

    @Test func `what is none of it is named, with what may have been meant`() throws {
        #expect(try refusal("tabel=t") == .unknownParameter("tabel", nearest: "table"))
        #expect(try refusal("table=t&sellect=id") == .unknownParameter("sellect", nearest: "select"))
        #expect(try refusal("table=t&quux=id") == .unknownParameter("quux", nearest: nil))
        for (query, name) in [
            ("", "table"), ("schema=s", "table"), ("table=", "table"), ("table=t&schema=", "schema"),
            ("table=t&event=TRUNCATE", "event"), ("table=t&limit=0", "limit"), ("table=t&limit=x", "limit"),
            ("table=t&limit=10001", "limit"), ("table=t&live=maybe", "live"), ("table=t&moves=2", "moves"),
            ("table=t&after=", "after"), ("table=t&after=00000000000000aa.-1", "after"),
            ("table=*&select=id", "select"),
            (String(repeating: "table=t&", count: 129), "table"),
        ] {
            guard case .parameter(name, _)? = try refusal(query) else {
                Issue.record("\(query): \(String(describing: try refusal(query)))")
                continue
            }
        }
    }

    @Test func `a refusal is JSON with a code, and a conflict says from where to go on`() throws {
        let conflict = FeedRefusal.mustFetchAgain(.olderThanRetention, from: "00000000000000aa.7").response
        #expect(conflict.status == .conflict)
        #expect(
            String(decoding: conflict.body, as: UTF8.self)
                == #"{"error":"The event log does not reach back to that position: fetch again what is shown, then go on after "#
                + #"00000000000000aa.7","code":"MustFetchAgain","reason":"older_than_retention","position":"00000000000000aa.7"}"#
        )
        let unknown = FeedRefusal.unknownParameter("a\"b", nearest: nil).response
        #expect(unknown.status == .badRequest)
        #expect(
            String(decoding: unknown.body, as: UTF8.self)
                == #"{"error":"There is no parameter a\"b","code":"UnknownParameter","parameter":"a\"b"}"#)
        #expect(FeedRefusal.tooMany("x").response.headers.contains(HTTPHeader("retry-after", "1")))
        #expect(FeedRefusal.noToken.response.headers.contains(HTTPHeader("www-authenticate", "Bearer")))
    }
}
