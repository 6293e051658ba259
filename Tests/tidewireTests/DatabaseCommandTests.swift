import Embedded
import Postgres
import TestSupport
import Testing

@testable import Console
@testable import tidewire

@Suite(.serialized, .within(minutes: 10)) struct DatabaseCommandTests {
    private static let secret = "a secret of this test that is long enough"

    private func runCommand(_ words: String..., answers: (() -> String?)? = nil) async -> Run {
        await run(words, commands: [DatabaseCommand(), DoctorCommand()], answers: answers)
    }

    @Test func `apply without yes shows a plan and does nothing`() async throws {
        let database = try TestDatabase(on: TestCluster.fresh(clientRoles: false))
        let result = await runCommand("db", "apply", "--database-url", database.url)
        #expect(result.exitCode == .usage)
        #expect(result.output.contains("\nrealtime/030_messages.sql\n  would create"))
        #expect(result.output.contains("  would create table realtime.messages\n"))
        #expect(result.errors == "nothing was applied; add --yes to apply it\n")
        #expect(try database.value("SELECT count(*) FROM pg_namespace WHERE nspname = 'realtime'") == "0")
        #expect(try database.value("SELECT count(*) FROM pg_roles WHERE rolname = 'anon'") == "0")
        database.cluster.stop()
    }

    @Test(arguments: [
        ("user", #"password authentication failed for user "stranger""#, "check user and password"),
        ("database", #"database "nowhere" does not exist"#, "check the database"),
    ]) func `says why a database does not let us in, and not that it may be away`(
        wrong: String, message: String, hint: String
    ) async throws {
        let database = try TestDatabase(on: TestCluster.fresh(clientRoles: false))
        defer { database.cluster.stop() }
        let isUser = wrong == "user"
        let url =
            isUser
            ? database.cluster.url(user: "stranger", password: "x") : database.cluster.url(database: "nowhere")
        for words in [["doctor"], ["slot", "status"]] {
            let result = await run(
                words + ["--database-url", url], commands: [DoctorCommand(), SlotCommand()])
            #expect(result.exitCode == .unreachable)
            #expect(result.errors.contains(message), "\(result.errors)")
            #expect(result.errors.contains(hint) && !result.errors.contains("running"), "\(result.errors)")
            #expect(!result.errors.contains(":x@"), "\(result.errors)")
        }
    }

    @Test func `apply asks a person`() async throws {
        let database = try TestDatabase(on: TestCluster.fresh(clientRoles: false))
        let no = await runCommand("db", "apply", "--database-url", database.url, answers: { "n" })
        #expect(no.exitCode == .usage && no.errors.hasPrefix("Apply this? [y/N] "))
        #expect(try database.value("SELECT count(*) FROM pg_namespace WHERE nspname = 'realtime'") == "0")
        let yes = await runCommand("db", "apply", "--database-url", database.url, answers: { "y" })
        #expect(yes.exitCode == .ok)
        #expect(yes.output.contains("  created table realtime.messages\n"))
        #expect(yes.errors.contains("role tidewire has no password yet"))
        database.cluster.stop()
    }

    @Test func `apply then check, and a second time nothing`() async throws {
        let database = try TestDatabase(on: TestCluster.fresh(clientRoles: false))
        let before = await runCommand("doctor", "--jwt-secret", Self.secret, "--database-url", database.url)
        #expect(before.exitCode == .notFound)
        #expect(before.output.contains("checks failed."))
        let applied = await runCommand(
            "db", "apply", "--yes", "--ddl-messages", "--json", "--database-url", database.url)
        #expect(applied.exitCode == .ok, "\(applied.errors)")
        let lines = applied.output.split(separator: "\n")
        #expect(lines.count == 2 * (SQLFile.foundation + SQLFile.extras).count)
        #expect(lines.contains { $0.hasPrefix(#"{"kind":"applied","file":"realtime/090_upkeep.sql","made":["#) })
        let after = await runCommand("doctor", "--jwt-secret", Self.secret, "--database-url", database.url)
        #expect(after.exitCode == .ok, "\(after.output)")
        #expect(after.output.contains("\nThe database is ready. "))
        let json = await runCommand("doctor", "--json", "--jwt-secret", Self.secret, "--database-url", database.url)
        #expect(
            json.output.contains(
                #"{"area":"server","name":"wal_level","state":"ok","required":true,"detail":"logical","hint":null,"sql":null}"#
            ))
        let again = await runCommand("db", "apply", "--database-url", database.url)
        #expect(again.exitCode == .ok)
        #expect(again.errors == "nothing is missing; nothing was applied\n")
        database.cluster.stop()
    }

    @Test func `the hub's own logins are enough, and no more`() async throws {
        let database = try TestDatabase(on: TestCluster.fresh(clientRoles: false))
        for file in SQLFile.foundation { try file.apply(database.connection) }
        try database.run("ALTER ROLE tidewire PASSWORD 'h'; ALTER ROLE tidewire_policies PASSWORD 'p'")
        let url = { (role: String, password: String) in
            database.cluster.url(user: role, password: password, database: database.name)
        }
        let result = await runCommand(
            "doctor", "--jwt-secret", Self.secret, "--database-url", url("tidewire", "h"), "--policy-database-url",
            url("tidewire_policies", "p"))
        #expect(result.exitCode == .ok, "\(result.output)")
        #expect(!result.output.contains("  wrong"), "\(result.output)")
        #expect(result.output.contains("  ok       tidewire_internal: 0 tables"), "\(result.output)")
        #expect(
            result.output.contains("  ok       tidewire_policies: can become anon and authenticated, and nothing else"))
        let swapped = await runCommand(
            "doctor", "--jwt-secret", Self.secret, "--database-url", url("tidewire_policies", "p"),
            "--policy-database-url",
            url("tidewire", "h"))
        #expect(swapped.exitCode == .notFound)
        #expect(swapped.output.contains("  wrong    replication: tidewire_policies may not read the change stream"))
        #expect(swapped.output.contains("  wrong    tidewire: may make replication slots"))
        database.cluster.stop()
    }

    @Test func `a login that may not is told what to do`() async throws {
        let database = try TestDatabase(on: TestCluster.fresh(clientRoles: false))
        try database.run("CREATE ROLE weak LOGIN PASSWORD 'w'")
        let url = database.cluster.url(user: "weak", password: "w", database: database.name)
        let result = await runCommand("db", "apply", "--yes", "--database-url", url)
        #expect(result.exitCode == .notFound)
        #expect(result.errors.contains("010_roles.sql cannot be applied: permission denied to create role"))
        #expect(
            result.errors.contains("Nothing was applied.") && result.errors.contains("give a login that is a superuser")
        )
        #expect(try database.value("SELECT count(*) FROM pg_roles WHERE rolname = 'anon'") == "0")
        database.cluster.stop()
    }

    @Test func `who is not let in is told what to check, and not whether the server runs`() async throws {
        let database = try TestDatabase()
        let role = "barred_\(UInt32.random(in: 0 ... .max))"
        try database.run("CREATE ROLE \(role) LOGIN PASSWORD 'right'")
        try database.run("SELECT pg_create_logical_replication_slot('\(database.slot)', 'pgoutput')")
        defer { _ = try? database.run("SELECT pg_drop_replication_slot('\(database.slot)')") }
        let commands: [any Command] = [DatabaseCommand(), DoctorCommand(), SlotCommand()]
        func ask(_ words: [String], _ url: String) async -> Run {
            await run(words + ["--database-url", url], commands: commands)
        }
        let wrong = database.cluster.url(user: role, password: "wrong", database: database.name)
        let none = "postgresql://\(role)@127.0.0.1:\(database.cluster.port)/\(database.name)"
        for words in [["db", "apply"], ["doctor"], ["slot", "status"]] {
            for url in [wrong, none] {
                let result = await ask(words, url)
                #expect(result.exitCode == .unreachable && !result.errors.lowercased().contains("running"))
                #expect(result.errors.contains("check user and password in the database URL"), "\(result.errors)")
            }
        }
        let right = database.cluster.url(user: role, password: "right", database: database.name)
        let drop = await ask(["slot", "drop", "--yes", "--slot", database.slot], right)
        #expect(drop.exitCode == .notFound)
        #expect(drop.errors.contains("give a login with REPLICATION, or a superuser"), "\(drop.errors)")
        let missing = database.cluster.url(database: "nowhere_" + role)
        #expect(await ask(["doctor"], missing).errors.contains("check the database in the database URL"))
    }

    @Test func `a database that is not there is said`() async {
        for command in [["db", "apply"], ["doctor"]] {
            let commands: [any Command] = [DatabaseCommand(), DoctorCommand()]
            let result = await run(
                command + ["--database-url", "postgresql://x@127.0.0.1:1/none"], commands: commands)
            #expect(result.exitCode == .unreachable)
            #expect(await run(command, commands: commands).exitCode == .usage)
        }
    }
}
