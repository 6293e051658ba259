import Diagnostics
import Embedded
import TestSupport
import Testing

@testable import Delivery
@testable import Server

extension GatewayTraffic {
    /// Tests that costly filters slow down only the client that asked for them.
    @Suite(.serialized) struct FilterBudgetTests {
        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, n int, body text);
            CREATE TABLE fences (id int PRIMARY KEY);
            GRANT SELECT ON notes, fences TO READER;
            """

        private func stage(on cluster: PrivateCluster? = nil) throws -> GatewayStage {
            try GatewayStage(Self.tables, publication: "FOR TABLE notes, fences", on: cluster)
        }

        /// Returns conditions that take long to evaluate on a large value of the letter `a` only. Each binding has
        /// different ones.
        private static func costly(_ number: Int) -> String {
            let conditions = (0..<50).map { "body.like.%a%a%a%a%a%\(number)x\($0)" }
            return binding("notes", filter: "or=(\(conditions.joined(separator: ",")))")
        }

        @Test func `a connection whose filters take too long is left out for a while, and told`() throws {
            // The test uses its own cluster. Roles of other tests cause new bindings, during which a channel with many
            // filters misses changes.
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let stage = try stage(on: cluster)
            let (heavy, light) = (try stage.caller(), try stage.caller())
            try heavy.subscribe("realtime:plain", [binding("fences")])
            try heavy.subscribe("realtime:heavy", (0..<100).map(Self.costly) + [binding("fences")])
            try light.subscribe("realtime:light", [binding("notes", filter: "body=like.%aa%"), binding("fences")])
            // The filters are evaluated on small values.
            try stage.run("INSERT INTO notes VALUES (1, 1, 'aaaa'); INSERT INTO fences VALUES (1)")
            #expect(try light.ids(2) == [1, 1])
            #expect(try heavy.change("realtime:heavy").id == 1)
            try stage.run("INSERT INTO notes SELECT g, 1, repeat('a', 20000) FROM generate_series(2, 6) g")
            try stage.run("INSERT INTO fences VALUES (2)")
            #expect(try light.ids(6) == [2, 3, 4, 5, 6, 2])
            let told = try heavy.first { $0.isTrouble }
            #expect(told.topic == "realtime:heavy" && told.said?.contains("take more time") == true)
            // The connection's other channels continue, but it may not join channels with filters.
            #expect(try heavy.change("realtime:plain").id == 1)
            #expect(try heavy.change("realtime:plain").id == 2)
            let ref = try heavy.push("realtime:more", "phx_join", Caller.join([binding("notes", filter: "n=eq.1")]))
            let refusal = try heavy.first { $0.ref == ref }
            #expect(refusal.status == "error" && "\(refusal.payload)".contains("TooMuchFilterWork"))
            // Later the channel receives changes again, and a notice that it missed some.
            _ = try heavy.first { $0.topic == "realtime:heavy" && $0.isSubscription }
            _ = try heavy.first { $0.topic == "realtime:heavy" && $0.isTrouble }
            try stage.run("INSERT INTO fences VALUES (3)")
            // Changes that the hub sent in the same turn as the last notice may have arrived, too.
            _ = try heavy.first { $0.topic == "realtime:heavy" && $0.event == "postgres_changes" && $0.id == 3 }
            #expect(try light.ids(1) == [3])
            #expect(!light.takeUnheard().contains { $0.isTrouble })
        }

        /// Checks deleted rows, and rows that lack a value, because other code evaluates filters on them.
        @Test(arguments: ["UPDATE notes SET n = n + 1", "UPDATE notes SET body = 'b'", "DELETE FROM notes"])
        func `whoever is left out is told, whatever the change is`(change: String) throws {
            // The test uses its own cluster. New roles would make the hub bind the channel again at the moment of the
            // change, and then it would evaluate no filter.
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let stage = try stage(on: cluster)
            try stage.run("INSERT INTO notes SELECT g, 1, repeat('a', 20000) FROM generate_series(1, 5) g")
            let (heavy, light) = (try stage.caller(), try stage.caller())
            try light.subscribe("realtime:light", [binding("fences")])
            try stage.run("INSERT INTO fences VALUES (1)")
            #expect(try light.ids(1) == [1])
            try heavy.subscribe("realtime:heavy", (0..<100).map(Self.costly), more: #","tidewire":{"moves":true}"#)
            try stage.run("\(change); INSERT INTO fences VALUES (2)")
            #expect(try light.ids(1) == [2])
            _ = try heavy.first { $0.isTrouble && $0.said?.contains("take more time") == true }
            #expect(!light.takeUnheard().contains { $0.isTrouble })
        }

        @Test func `filters of a connection have a number of values, which it gets back`() throws {
            let stage = try stage()
            let caller = try stage.caller()
            let parts = stage.processMetrics.filterParts
            func lists(_ count: Int) -> [String] {
                (0..<count).map { number in
                    let values = (0..<1000).map { "\(number * 1000 + $0)" }
                    return binding("notes", filter: "n=in.(\(values.joined(separator: ",")))")
                }
            }
            try caller.join("realtime:a", lists(10))
            #expect(parts.value == 10_000)
            let ref = try caller.push("realtime:b", "phx_join", Caller.join(lists(7)))
            let refusal = try caller.first { $0.ref == ref }
            #expect(refusal.status == "error" && "\(refusal.payload)".contains("TooManyFilterValues"))
            // A channel that joins again counts only once.
            try caller.join("realtime:a", lists(12))
            try caller.join("realtime:c", lists(4))
            #expect(parts.value == 16_000)
            caller.hangUp()
            #expect(eventually { parts.value == 0 })
        }

        /// Checks large joins of several clients: the hub handles them one after another, and answers each as it
        /// answers a small join.
        @Test func `large joins wait for each other`() throws {
            let stage = try stage()
            let callers = try (0..<8).map { _ in try stage.caller() }
            let refs = try callers.enumerated().map { number, caller in
                let lists = (0..<40).map { list in
                    let values = (0..<25).map { String(repeating: "\(number)", count: 90) + "\($0 + 25 * list)" }
                    return binding("notes", filter: "body=in.(\(values.joined(separator: ",")))")
                }
                return try caller.push("realtime:large", "phx_join", Caller.join(lists))
            }
            for (caller, ref) in zip(callers, refs) {
                #expect(try caller.first { $0.ref == ref }.status == "ok")
                _ = try caller.first { $0.isSubscription }
            }
            try stage.run("INSERT INTO notes SELECT g, 1, repeat(g::text, 90) || '7' FROM generate_series(0, 7) g")
            for (number, caller) in callers.enumerated() { #expect(try caller.ids(1) == [number]) }
        }

        /// Checks that connections with few filter values have their own allowance, separate from connections with
        /// many.
        @Test func `few and many values of connections do not crowd each other out`() throws {
            let few = 10
            let metrics = ProcessMetrics()
            let budget = HolderBudget(
                .init(limit: few * 4, ofHolder: few * 4, few: few, timesForFew: 8), metrics.filterParts,
                metrics.filtersRefused)
            for _ in 0..<32 { try budget.take(few, of: 0) }
            #expect(throws: ProcessMetrics.RoomRefused.project) { try budget.take(1, of: 0) }
            try budget.take(0, of: 0)
            try budget.take(few * 2, of: 0)
            // The values that the connection used while it had few now count as part of its many.
            try budget.take(few, of: few)
            #expect(throws: ProcessMetrics.RoomRefused.project) { try budget.take(1, of: few) }
            try budget.take(few, of: 0)
            budget.give(back: few * 2, of: few * 2)
            try budget.take(1, of: few)
            #expect(throws: ProcessMetrics.RoomRefused.connection) { try budget.take(few * 4, of: few + 1) }
        }
    }
}
