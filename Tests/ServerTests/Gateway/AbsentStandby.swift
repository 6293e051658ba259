import Embedded
import Postgres
import System
import TestSupport
import Testing

/// Commits that wait for a standby's confirmation. PostgreSQL's log and the hub's log have these commits, but no
/// snapshot of the database shows them.
///
/// Requires a stage with its own cluster. Other statements of the test must set `synchronous_commit = local`, so that
/// they do not wait.
extension GatewayStage {
    /// Makes each commit with `synchronous_commit = on` wait, as if the standby had disconnected.
    func standbyStaysAway() throws {
        try set("synchronous_commit = on")
        try set("synchronous_standby_names = 'nobody'")
        try reload { $0 == "nobody" }
    }

    /// Ends the wait, so that every waiting commit continues.
    func standbyIsBack() throws {
        try database.cluster.connect().execute("ALTER SYSTEM RESET synchronous_standby_names")
        try reload { $0 == "" }
    }

    private func set(_ setting: String) throws {
        try database.cluster.connect().execute("ALTER SYSTEM SET \(setting)")
    }

    private func reload(until isSo: (String) -> Bool) throws {
        try database.cluster.connect().execute("SELECT pg_reload_conf()")
        #expect(
            try eventually {
                let rows = try database.cluster.connect().execute("SHOW synchronous_standby_names")
                return isSo(rows.first?.first.flatMap { $0 } ?? "-")
            })
    }

    func waitingForStandby() throws -> Int {
        let count = try database.cluster.connect()
            .execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        return count.first?.first.flatMap { $0 }.flatMap { Int($0) } ?? -1
    }

    /// Runs the statement on a new thread and connection. The thread ends with the statement.
    func writeInBackground(_ sql: String) throws -> BackgroundThread {
        let target = database.target
        let filled = names.filled(sql)
        return try BackgroundThread("writer") { _ = try? Connection(target).execute(filled) }
    }
}

enum AbsentStandby {
    /// Alternately blocks commits for a while and lets them continue for a while. At the end, no commit is blocked.
    static func comesAndGoes(_ stage: GatewayStage, seed: UInt64, until end: Bell) throws {
        var random = SeededRandom(seed: seed)
        while !end.rang {
            try stage.standbyStaysAway()
            BackgroundThread.rest(nanoseconds: UInt64.random(in: 20...400, using: &random) * 1_000_000)
            try stage.standbyIsBack()
            BackgroundThread.rest(nanoseconds: UInt64.random(in: 0...100, using: &random) * 1_000_000)
        }
    }
}
