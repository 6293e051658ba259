import Diagnostics
import Foundation
import Postgres
import System
import TestSupport
import Testing

@testable import Server
@testable import Settings

extension GatewayTraffic {
    /// Tests of a burst of changes. A client that reads must not count as slow, and a client that does not read must
    /// not delay others.
    @Suite(.serialized) struct PaceTests {
        /// Number of rows updated at once, from `TW_BULK`. The default suits a build without optimisation.
        private static let rows = ProcessInfo.processInfo.environment["TW_BULK"].flatMap { Int($0) } ?? 20_000
        private static let readers = ProcessInfo.processInfo.environment["TW_READERS"].flatMap { Int($0) } ?? 10

        @Test func `a bulk update reaches all who read, and one who does not is sent away`() throws {
            let outbox = 1 << 20
            let stage = try GatewayStage(
                """
                CREATE TABLE items (id int PRIMARY KEY, v text);
                INSERT INTO items SELECT g, repeat('v', 100) FROM generate_series(1, \(Self.rows)) g;
                GRANT SELECT ON items TO READER;
                """, publication: "FOR ALL TABLES", [(Setting(\.outboxBytes), "1MB")])
            let idle = try stage.caller(receiveBuffer: 4096)
            try idle.subscribe("realtime:a", [binding("items")])
            let readers = try (0..<Self.readers).map { _ in try stage.caller() }
            for reader in readers { try reader.subscribe("realtime:a", [binding("items")]) }
            let outcomes = (0..<readers.count).map { _ in Awaited<String>() }
            let threads = try zip(readers, outcomes).map { reader, outcome in
                try BackgroundThread("reader") { outcome.set(Self.read(reader)) }
            }
            let ended = Bell()
            let metrics = stage.processMetrics
            let most = Awaited<Int>()
            let watching = try BackgroundThread("watch") {
                var held = 0
                while !ended.rang {
                    held = max(held, Int(metrics.outboxBytes.value))
                    BackgroundThread.rest(nanoseconds: 5_000_000)
                }
                most.set(held)
            }
            let fallen = metrics.connectionsFellBehind.value
            try stage.run("UPDATE items SET v = v")
            #expect(eventually { metrics.connectionsFellBehind.value > fallen })
            #expect(throws: Farewell(code: 1013, reason: "too slow: connect again and fetch what was missed")) {
                while true { _ = try idle.text() }
            }
            threads.forEach { $0.join() }
            ended.ring()
            watching.join()
            #expect(outcomes.map { $0.wait() } == Array(repeating: "all in order", count: readers.count))
            // Sockets share frames. Together they hold only the frames of the slowest socket, and shared parts of their
            // chunks.
            #expect(most.wait() ?? .max < 16 * outbox)
        }

        private static func read(_ reader: Caller) -> String {
            let mark = Data(#""record":{"id":"#.utf8)
            var next = 1
            do {
                while next <= rows {
                    guard let id = try reader.textNumber(after: mark) else { continue }
                    guard id == next else { return "\(id) came instead of \(next)" }
                    next += 1
                }
                return "all in order"
            } catch {
                return "\(error) before \(next)"
            }
        }
    }
}
