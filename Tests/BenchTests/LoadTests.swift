import Bytes
import System
import TestSupport
import Testing

@testable import Bench

/// Workers that run as threads of the test, but are addressed like processes.
private final class Stage {
    let clients: Dialogue
    let server: Dialogue
    let port: UInt16

    init() throws {
        clients = try Self.worker("clients") { try? LoadGenerator.run(input: $0, output: $1) }
        server = try Self.worker("server") { try? BareServer.run(input: $0, output: $1) }
        port = try #require(try server.ask("listen").numbers["port"].flatMap { UInt16(exactly: $0) })
    }

    static func worker(_ name: String, _ body: @escaping @Sendable (Int32, Int32) -> Void) throws -> Dialogue {
        let (toWorker, fromWorker) = (try Pipe(), try Pipe())
        _ = try BackgroundThread(name) {
            body(toWorker.reading, fromWorker.writing)
            ByteStream.close(toWorker.reading)
            ByteStream.close(fromWorker.writing)
        }
        return Dialogue(sending: toWorker.writing, receiving: fromWorker.reading, name: name)
    }

    func connect(_ count: Int, first: Int = 0) throws {
        let answer = try clients.ask("connect \(port) /socket/websocket?n={n} \(first) \(count)")
        #expect(answer.numbers["connected"] == Int64(count))
        try server.ask("ready \(count)")
    }

    /// Repeats the messages until the clients answer. The server of the test does not know when clients have joined.
    func answer(whileSaying messages: [String]) throws -> WorkerAnswer {
        var last: (any Error)?
        for _ in 0..<500 {
            for message in messages { try server.ask("send 1 1 1 " + message) }
            do {
                return try clients.answer(to: "join", milliseconds: 20)
            } catch let failure as BenchFailure where failure.message.contains("does not answer") {
                last = failure
            }
        }
        throw try #require(last)
    }

    func report(_ line: String = "await 5000") throws -> LoadReport {
        try #require(LoadReport(try clients.ask(line)))
    }
}

private func change(owner: Int = 0) -> String {
    #"[null,null,"realtime:a","postgres_changes",{"ids":[1],"data":{"columns":[{"name":"seq","type":"int8"}],"#
        + #""record":{"id":1,"owner":\#(owner),"seq":{seq},"at":{at},"text":"{n} é"}}}]"#
}

extension String {
    /// Text in which the time is replaced by one as a database writes it.
    fileprivate var replacingMoment: String {
        split(separator: "{at}", omittingEmptySubsequences: false).joined(separator: #""2026-01-01T00:00:00Z""#)
    }
}

@Suite(.within(minutes: 10)) struct LoadTests {
    @Test func `every client gets every change, one by one and many together`() throws {
        let stage = try Stage()
        try stage.connect(300)
        var next = 1
        for (count, together) in [(1, 1), (16, 1), (16, 16), (320, 32)] {
            try stage.clients.ask("expect \(next) \(count)")
            let sent = try stage.server.ask("send \(count) \(together) \(next) \(change())")
            let report = try stage.report()
            #expect(report.isFaultless)
            #expect(report.received == Int64(300 * count))
            #expect(report.latency.count == UInt64(300 * count))
            #expect(sent.numbers["deliveries"] == Int64(300 * count))
            #expect(sent.numbers["cpu_ns"] ?? 0 > 0)
            next += count
        }
    }

    @Test func `what is waited for may be a part of what is expected`() throws {
        let stage = try Stage()
        try stage.connect(10)
        try stage.clients.ask("expect 5 4")
        #expect(try stage.clients.ask("sample").texts["sample"]?.isEmpty == true)
        for (count, first) in [(1, 5), (2, 6), (1, 8)] {
            try stage.server.ask("send \(count) 1 \(first) " + change())
            let sent = first + count - 5
            let report = try stage.report("await 5000 \(sent)")
            #expect(report.received == Int64(10 * sent))
            #expect(report.isFaultless == (sent == 4))
        }
        let sample = try stage.clients.ask("sample").texts["sample"]
        #expect(sample?.contains(#""seq":5,"#) == true)
    }

    @Test func `notices what is missing, doubled, skipped, another's or no change`() throws {
        let stage = try Stage()
        try stage.connect(10)
        func outcome(_ messages: [String]) throws -> LoadReport {
            try stage.clients.ask("expect 5 4 {n%1}")
            for message in messages { try stage.server.ask("send " + message) }
            return try stage.report("await 300")
        }
        #expect(try outcome(["4 1 5 " + change()]).isFaultless)
        let missing = try outcome(["3 1 5 " + change()])
        #expect(!missing.isFaultless && missing.missing == 10 && missing.received == 30)
        let doubled = try outcome(["2 1 5 " + change(), "3 1 6 " + change()])
        #expect(!doubled.isFaultless && doubled.doubled == 10 && doubled.missing == 0)
        let skipped = try outcome(["2 1 5 " + change(), "2 1 8 " + change()])
        #expect(!skipped.isFaultless && skipped.skipped == 10)
        let foreign = try outcome(["4 1 5 " + change(), "1 1 9 " + change(owner: 1)])
        #expect(!foreign.isFaultless && foreign.foreign == 10 && foreign.received == 40)
        _ = try outcome(["4 1 5 " + change(), "1 1 9 " + change()])
        let extra = try stage.report("report")
        #expect(!extra.isFaultless && extra.expected == 40 && extra.received == 50)
        for odd in ["x", "[1]", #"[null,null,"t","postgres_changes",{}]"#, #"["1","1","t","phx_close",{}]"#] {
            _ = try outcome(["4 1 5 " + change(), "1 1 1 " + odd])
            let report = try stage.report("report")
            #expect(report.malformed == 10 && !report.isFaultless, "\(odd)")
        }
    }

    @Test func `clients that take turns each expect their own, and notice what is another's`() throws {
        let stage = try Stage()
        try stage.connect(4)
        try stage.clients.ask("expect 8 6 - 4")
        try stage.server.ask("send 6 1 8 \(change())")
        let report = try stage.report()
        // Two changes are expected for the first two clients, and one for each other client. The server of the test
        // sends every change to all clients.
        #expect(report.expected == 6 && report.received == 6 && report.skipped == 0)
        #expect(try eventually { try stage.report("report").foreign == 18 })
        #expect(try !stage.report("report").isFaultless)
    }

    @Test func `whoever is slow reads no more at once than it is told, and everything in the end`() throws {
        let stage = try Stage()
        try stage.connect(4)
        try stage.clients.ask("expect 1 20")
        try stage.clients.ask("slow 100 5")
        try stage.server.ask("send 20 20 1 " + change())
        let report = try stage.report("await 30000")
        #expect(report.isFaultless)
        #expect(report.reads >= report.bytes / 100)
        try stage.clients.ask("slow 0 0")
        try stage.clients.ask("expect 21 20")
        try stage.server.ask("send 20 20 21 " + change())
        #expect(try stage.report().isFaultless)
    }

    @Test func `clients that are cut are not taken for clients that a server closed`() throws {
        let stage = try Stage()
        try stage.connect(4)
        try stage.clients.ask("expect 1 1")
        try stage.clients.ask("cut")
        let report = try stage.report("report")
        #expect(report.connected == 0 && report.closed == 0)
        #expect(report.expected == 4 && report.missing == 4)
    }

    @Test func `a moment that is no number is not measured`() throws {
        let stage = try Stage()
        try stage.connect(2)
        try stage.clients.ask("expect 1 3")
        try stage.server.ask("send 3 1 1 \(change().replacingMoment)")
        let report = try stage.report()
        #expect(report.isFaultless && report.received == 6 && report.latency.count == 0)
    }

    @Test func `waits until every client is subscribed`() throws {
        let stage = try Stage()
        try stage.connect(20, first: 100)
        let join = #"join realtime:room:{n} {"config":{"postgres_changes":[{"event":"*","filter":"owner=eq.{n%7}"}]}}"#
        try stage.clients.tell(join)
        let answer = try stage.answer(whileSaying: [
            #"["1","1","realtime:room","phx_reply",{"status":"ok","response":{}}]"#,
            #"[null,"h","phoenix","phx_reply",{"status":"ok","response":{}}]"#,
            #"["1",null,"realtime:room","system",{"extension":"postgres_changes","status":"ok","#
                + #""message":"Subscribed to PostgreSQL","channel":"room"}]"#,
        ])
        #expect(answer.numbers["joined"] == 20)
    }

    @Test func `says what a server refused`() throws {
        let stage = try Stage()
        try stage.connect(2)
        try stage.clients.tell("join realtime:a {}")
        let refusal =
            #"["1","1","realtime:a","phx_reply",{"status":"error","response":{"reason":"Unauthorized"}}]"#
        let failure = #expect(throws: BenchFailure.self) { try stage.answer(whileSaying: [refusal]) }
        #expect(failure?.message.contains("Unauthorized") == true)
    }

    @Test(arguments: [
        "", "connect", "connect 1 / 0", "connect 99999 / 0 1", "connect 1 / -1 1", "connect 1 / 0 99999999", "join a",
        "expect 1", "expect 1 -1", "await", "await -1", "await 1 x", "await 1 1 1", "heartbeat x", "fly", "window 0",
        "talk", "talk 100 1 1 6", "talk 100 1 1 6 4", "talk 100 1 0 6 6", "talk 100 1 1 6 1", "track 1 both {}",
        "track 1 all", "track 1 all {}", "watch", "depart 0", "depart 1", "slow", "slow 5", "slow 0 5", "slow 5 0",
        "back 1 / 5 t", "back 99999 / 5 t {}", "back 1 / x t {}",
    ])
    func `refuses what it is not made for`(line: String) throws {
        let clients = try Stage.worker("clients") { try? LoadGenerator.run(input: $0, output: $1) }
        #expect(throws: BenchFailure.self) { try clients.ask(line) }
        #expect(try clients.ask("report").numbers["connected"] == 0)
    }

    @Test func `hears of a server that is not there, and of one that goes`() throws {
        let stage = try Stage()
        try stage.connect(3)
        try stage.clients.ask("expect 1 1")
        stage.server.close()
        var report = try stage.report("report")
        for _ in 0..<500 where report.closed < 3 { report = try stage.report("await 20") }
        #expect(report.closed == 3 && report.connected == 0 && !report.isFaultless)
        let clients = try Stage.worker("clients") { try? LoadGenerator.run(input: $0, output: $1) }
        let failure = #expect(throws: BenchFailure.self) { try clients.ask("connect \(stage.port) / 0 3") }
        #expect(failure?.message.contains("Connection refused") == true)
    }

    @Test func `a baseline of fan-out is measured with the same clients`() throws {
        let workers = try (0..<2).map { _ in
            try Stage.worker("clients") { try? LoadGenerator.run(input: $0, output: $1) }
        }
        let fanout = try BareFanout(
            server: Stage.worker("server") { try? BareServer.run(input: $0, output: $1) },
            fleet: LoadFleet(workers: workers, clients: 101))
        for together in [1, 4] {
            let (cost, report) = try fanout.send(8, together: together, template: change())
            #expect(cost.deliveries == 808)
            #expect(report.received == 808 && report.connected == 101)
            #expect(cost.deliveriesPerProcessorSecond > 0)
        }
        fanout.close()
    }
}

@Suite(.within(minutes: 10)) struct LoadPartsTests {
    @Test func `a text knows its client`() {
        let text = ClientText("{\"a\":{\"n\":{n}},\"b\":\"{n%10}\",{n%0},{nx}{n")
        #expect(text.text(client: 123) == "{\"a\":{\"n\":123},\"b\":\"3\",{n%0},{nx}{n")
        #expect(ClientText("").text(client: 1) == "")
        #expect(ClientText("{n/6}:{n/1}:{n/0}").text(client: 13) == "2:13:{n/0}")
    }

    @Test func `a template is filled in and else left as it is`() {
        var writer = ByteWriter()
        ChangeTemplate("{\"seq\":{seq},\"at\":{at},\"{\":{}}{se").append(sequence: 7, at: 9, to: &writer)
        let text = writer.copied()
        #expect(text == Array("{\"seq\":7,\"at\":9,\"{\":{}}{se".utf8))
    }

    @Test func `percentiles are right within three percent, and are added up`() throws {
        var (one, two) = (LatencyHistogram(), LatencyHistogram())
        for value in 1...100_000 { if value.isMultiple(of: 2) { one.add(Int64(value)) } else { two.add(Int64(value)) } }
        one.add(two)
        #expect(one.count == 100_000 && one.maximum == 100_000)
        for share in [0.01, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let found = try #require(one.percentile(share))
            #expect((found / (share * 100_000) - 1).magnitude < 0.03, "\(share): \(found)")
        }
        #expect(LatencyHistogram(text: one.text) == one)
        #expect(LatencyHistogram().percentile(0.5) == nil)
        var edges = LatencyHistogram()
        for value in [Int64.min, -1, 0, .max] { edges.add(value) }
        #expect(edges.count == 4 && edges.percentile(0.5) == 0)
        for text in ["", "x", "1 2", "1 2:x", "1 99999:1", "1 -1:1"] { #expect(LatencyHistogram(text: text) == nil) }
    }

    @Test func `reports of several processes make one`() throws {
        var (one, two) = (LoadReport(), LoadReport())
        (one.expected, one.received, one.firstMicroseconds, one.lastMicroseconds) = (4, 3, 100, 200)
        (two.expected, two.received, two.firstMicroseconds, two.lastMicroseconds) = (5, 5, 50, 150)
        two.latency.add(70)
        let again = try #require(WorkerAnswer(line: two.answer.line).flatMap { LoadReport($0) })
        #expect(again == two && two.isFaultless)
        one.add(again)
        #expect(one.expected == 9 && one.missing == 1 && one.firstMicroseconds == 50 && one.lastMicroseconds == 200)
        #expect(one.latency.count == 1 && !one.isFaultless)
    }

    @Test func `looks at frames however long and however cut`() {
        func frames(_ bytes: [UInt8]) -> Int? {
            let frame = ServerFrame(bytes.span.bytes, at: 0)
            return frame?.payload.count
        }
        #expect(frames([]) == nil && frames([0x81]) == nil)
        #expect(frames([0x81, 0]) == 0 && frames([0x81, 2, 1]) == nil && frames([0x81, 2, 1, 2, 3]) == 2)
        #expect(frames([0x81, 126, 0]) == nil)
        #expect(frames([0x81, 126, 1, 0] + [UInt8](repeating: 0, count: 256)) == 256)
        #expect(frames([0x81, 127, 0, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3]) == 3)
        #expect(frames([0x81, 127] + [UInt8](repeating: 0xff, count: 8)) == nil)
    }
}
