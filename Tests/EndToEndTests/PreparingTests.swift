import Embedded
import Foundation
import Postgres
import TestSupport
import Testing

extension EndToEndPrograms {
    /// Tests of a hub that creates missing database objects. Each test has its own cluster, because roles belong to a
    /// whole cluster.
    @Suite(.serialized) struct PreparingTests {
        private static let seeding = ["SEED_SELF_HOST": "true"]

        private func said(_ hub: ServedHub) throws -> [String] {
            try String(contentsOfFile: hub.output, encoding: .utf8).split(separator: "\n").map(String.init)
        }

        private func hear(_ event: String, _ hub: ServedHub) throws {
            do {
                try eventually(event) { try said(hub).contains { $0.contains(event) } }
            } catch {
                Issue.record("\(try said(hub).suffix(20).joined(separator: "\n"))")
                throw error
            }
        }

        private func hasWhatIsNeeded(_ connection: Connection) throws -> Bool {
            try connection.execute(
                """
                SELECT to_regclass('realtime.messages') IS NOT NULL AND to_regprocedure('auth.uid()') IS NOT NULL
                   AND EXISTS (SELECT FROM pg_publication WHERE pubname = 'supabase_realtime')
                   AND to_regrole('tidewire_policies') IS NOT NULL
                """
            ).values == [["t"]]
        }

        @Test func `an empty database gets all that is needed, when it can be reached, and once`() throws {
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let database = try TestDatabase(on: cluster)
            let hub = ServedHub(database: database)
            defer { hub.kill() }
            cluster.stop()
            try hub.start(environment: Self.seeding)
            try hear("; trying again", hub)
            try cluster.start()
            try hear(" streaming ", hub)
            let connection = try cluster.connect(database: database.name)
            #expect(try hasWhatIsNeeded(connection))
            #expect(
                try said(hub).contains {
                    $0.contains("created in the database") && $0.contains("role tidewire_policies")
                })
            hub.kill()
            let made = try said(hub).count { $0.contains("created in the database") }
            try hub.start(environment: Self.seeding)
            try hear("the database has everything that the hub needs", hub)
            #expect(try said(hub).count { $0.contains("created in the database") } == made)
        }

        @Test func `without being asked it makes nothing but the publications`() throws {
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let database = try TestDatabase(on: cluster)
            let hub = ServedHub(database: database)
            defer { hub.kill() }
            try hub.start()
            try hear(" streaming ", hub)
            #expect(try !hasWhatIsNeeded(database.connection))
        }

        @Test func `somebody else's lock does not keep the hub from streaming`() throws {
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let database = try TestDatabase(on: cluster)
            // Another process holds this lock while it prepares the database, or keeps holding it if the process stops
            // halfway.
            try database.run(
                "CREATE PUBLICATION supabase_realtime; SELECT pg_advisory_lock(\(Installation.advisoryLock))")
            let hub = ServedHub(database: database)
            defer { hub.kill() }
            try hub.start(environment: Self.seeding)
            try hear(" streaming ", hub)
            #expect(try said(hub).count { $0.contains("sqlstate=55P03") } == 1)
        }

        @Test func `what the login may not make is said with who may, and the rest goes on`() throws {
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let database = try TestDatabase(on: cluster)
            try database.run(
                """
                CREATE ROLE plain LOGIN REPLICATION PASSWORD 'one'; CREATE TABLE t (id int PRIMARY KEY); GRANT SELECT ON t TO plain;
                CREATE PUBLICATION supabase_realtime FOR TABLE t
                """)
            let hub = ServedHub(database: database)
            defer { hub.kill() }
            let url = cluster.url(user: "plain", password: "one", database: database.name)
            try hub.start(
                ["--database-prepare", "on"], environment: ["TIDEWIRE_DATABASE_URL": url])
            try hear(" streaming ", hub)
            let refusals = try said(hub).filter { $0.contains("applied nothing of this file") }
            #expect(
                !refusals.isEmpty
                    && refusals.allSatisfy { $0.contains("tidewire db apply") && $0.contains("sqlstate=42501") })
            #expect(try !hasWhatIsNeeded(database.connection))
        }
    }
}
