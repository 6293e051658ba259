import Diagnostics
import System
import TestSupport
import Testing

@testable import Server
@testable import Settings

extension Gateways {
    /// Tests of HTTP requests on a connection before it becomes a WebSocket, and instead of one.
    @Suite(.serialized) struct RequestTests {
        private static let table = "CREATE TABLE notes (id int PRIMARY KEY); GRANT SELECT ON notes TO READER;"

        private func stage(_ settings: [(Setting, String)] = []) throws -> GatewayStage {
            try GatewayStage(Self.table, publication: "FOR ALL TABLES", settings)
        }

        private static func get(_ path: String, method: String = "GET") -> String {
            "\(method) \(path) HTTP/1.1\r\nHost: h\r\n\r\n"
        }

        @Test func `requests that come together are answered one after the other`() throws {
            let stage = try stage()
            let caller = try Caller(port: stage.hub.port)
            try caller.send(Self.get("/healthcheck") + Self.get("/api/ping") + Self.get("/nowhere"))
            #expect(try caller.answer().body == "ok")
            #expect(try caller.answer().body == #"{"message":"Success"}"#)
            #expect(try caller.answer().status.contains("404"))
        }

        @Test func `frames right behind the upgrade are read`() throws {
            let stage = try stage()
            let caller = try Caller(port: stage.hub.port)
            try caller.send(
                Array((Self.get("/healthcheck") + Caller.upgrade(stage.token())).utf8)
                    + Caller.frame(#"[null,"1","phoenix","heartbeat",{}]"#))
            #expect(try caller.answer().body == "ok")
            #expect(try caller.read(through: "\r\n\r\n").hasPrefix("HTTP/1.1 101"))
            #expect(try caller.next().ref == "1")
        }

        @Test func `a flood of requests is answered, and others are served meanwhile`() throws {
            let stage = try stage()
            let caller = try Caller(port: stage.hub.port)
            try caller.send(String(repeating: Self.get("/healthcheck"), count: 1000))
            try stage.caller().fence()
            #expect(try (0..<1000).map { _ in try caller.answer().body } == Array(repeating: "ok", count: 1000))
        }

        @Test func `a head alone is sent for HEAD, and the connection lives on`() throws {
            let stage = try stage()
            let caller = try Caller(port: stage.hub.port)
            try caller.send(Self.get("/healthcheck", method: "HEAD"))
            #expect(try caller.read(through: "\r\n\r\n").contains("content-length: 2"))
            try caller.send(Self.get("/ready"))
            let answer = try caller.answer()
            #expect(answer.status.contains("200") && answer.body.contains(#""ready":true"#))
        }

        @Test func `metrics say what the process takes, and each help can be read alone`() throws {
            let stage = try stage()
            let caller = try Caller(port: stage.hub.port)
            try caller.send(Self.get("/metrics"))
            let text = try caller.answer().body
            #expect(HelpTexts.faults(in: text) == [])
            var values: [Substring: Double] = [:]
            for line in text.split(separator: "\n") where line.hasPrefix("process_") {
                let parts = line.split(separator: " ")
                values[parts[0]] = Double(parts[1])
            }
            #expect(
                values.keys.sorted() == [
                    "process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes",
                    "process_start_time_seconds", "process_virtual_memory_bytes",
                ])
            #expect(values.values.allSatisfy { $0 > 0 })
            #expect(text.contains(#"tidewire_build_info{version="\#(Product.version)",swift="\#(Product.swift)"} 1"#))
        }

        @Test func `joins beyond the channels' number are refused, and a flood of them is cut`() throws {
            let stage = try stage([(Setting(\.channelsPerClient), "1"), (Setting(\.channelErrorBackoff), "5s")])
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")])
            var frames: [UInt8] = []
            for number in 0..<5000 {
                frames += Caller.frame(#"["\#(number)","\#(number)","realtime:t\#(number)","phx_join",{}]"#)
            }
            try? caller.send(frames)
            #expect(throws: Farewell.self) { while true { _ = try caller.next() } }
            let other = try stage.caller()
            try other.subscribe("realtime:a", [binding("notes")])
        }

        @Test func `everybody is sent away with 1012 when the hub ends`() throws {
            let stage = try stage()
            let callers = try (0..<5).map { _ in try stage.caller() }
            for caller in callers { try caller.subscribe("realtime:a", [binding("notes")]) }
            let stopping = try BackgroundThread("stop") { stage.stop() }
            for caller in callers {
                #expect(throws: Farewell(code: 1012, reason: "the server restarts")) { _ = try caller.next() }
                caller.hangUp()
            }
            stopping.join()
        }
    }
}
