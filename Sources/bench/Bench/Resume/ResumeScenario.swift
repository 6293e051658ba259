import Postgres
import System

/// Benchmark of clients that resume and of slow clients: that they receive every change, and at what cost.
struct ResumeScenario: Scenario {
    let name = "resume"
    let summary = "Clients that were cut and come back, a log of 1,000,000 changes, positions, slow clients."
    let discussion = """
        Starts a private PostgreSQL and a hub for each part, with clients that are known again by their logins, as \
        Supabase's are, and ask for nothing.

        "storm": clients whose sockets are all cut, and which come back evenly within ten seconds when 1,000 changes were \
        made of which one in a hundred is for each. Meanwhile others, which stayed, take a change in a hundredth of a second; \
        beside what these waited when nothing else happened.

        "one client": it goes on from a position when 1,000,000 changes were made (a thousand in each transaction) of which one in \
        10,000 is for it: by a filter for a column that is no key, for which all have to be read, and by a filter for rows by \
        their primary key, for which whole segments (of 2 MiB here) are passed over. From its join until it has the \
        last one. The baseline of reading is a bare loop over the same log, from change to change \
        without a look at the rows; that of passing over is reading.

        "departed": sessions that were there for a moment, as many in one go as sockets are good for, and again under other \
        names: what the hub's memory grows by from the first time to the last, for each session that was there.

        "slow": clients of a whole table that read 16 KiB in a second, while 1,000,000 changes are made of which each has to \
        get every one: what the hub's memory is above what it was before, at most.

        Every client checks that each change came once and in order, those that are slow as far as they have come; nobody's \
        connection may be closed. Else there are no figures.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let place = try Workplace(below: settings.directory)
        settings.progress("starting a private PostgreSQL")
        let stage = try ServingStage(place)
        defer { stage.close() }
        var results: [BenchResult] = []
        if settings.includes("storm") { results += try ReturningStorm(stage, settings).run() }
        if settings.includes("one client") { results += try LongRead(stage, settings).run() }
        if settings.includes("departed") { results += try DepartedSessions(stage, settings).run() }
        if settings.includes("slow") { results += try SlowCrowd(stage, settings).run() }
        return results
    }

    static func void(_ part: String, _ report: LoadReport) -> BenchFailure {
        BenchFailure(
            "void (resume, \(part)): of \(report.expected) changes \(report.missing) are missing, \(report.doubled) came "
                + "twice or late, \(report.skipped) were passed over, \(report.foreign + report.malformed) mean nothing, "
                + "\(report.closed) clients lost their connection")
    }
}

/// Clients of one table that the hub recognizes when they return: each has a login session.
final class KnownClients {
    private static let topic = "realtime:bench"
    private static let path = "/socket/websocket?vsn=2.0.0&apikey={token}"

    let fleet: LoadFleet
    private let hub: HubProcess
    private let payload: String

    /// Creates clients and joins them. `sessions` is the beginning of the names of their login sessions.
    init(
        _ count: Int, _ stage: ServingStage, _ hub: HubProcess, table: String, filter: String?, sessions: String
    ) throws {
        self.hub = hub
        let filter = filter.map { #","filter":"\#($0)""# } ?? ""
        payload =
            #"{"config":{"postgres_changes":[{"event":"*","schema":"public","table":"\#(table)"\#(filter)}]}}"#
        fleet = try LoadFleet(clients: count, errors: stage.place.path + "/clients.log")
        try fleet.heartbeat(seconds: 0)
        try fleet.sign(
            secret: stage.secret,
            claims: #"{"role":"\#(ServingStage.role)","sub":"{n}","session_id":"\#(sessions)-{n}","exp":4102444800}"#)
        try fleet.connect(port: hub.port, path: Self.path)
        try fleet.join(topic: Self.topic, payload: payload)
    }

    func comeBack(milliseconds: Int) throws -> Int64 {
        try fleet.comeBack(
            port: hub.port, path: Self.path, milliseconds: milliseconds, topic: Self.topic, payload: payload)
    }
}

extension ServingStage {
    /// Starts a hub with a grace period of one hour.
    func startPatientHub(_ table: String, _ more: [String] = []) throws -> HubProcess {
        try startHub(table, loops: 0, TalkLane.unlimited + ["--catch-up-grace", "1h"] + more)
    }

    /// Inserts rows, a thousand in each transaction. The rows belong to the owners in turn, and the rows of each owner
    /// are numbered separately.
    func load(_ table: String, first: Int64, count: Int, owners: Int) throws {
        try connection.execute("SET synchronous_commit = off")
        defer { _ = try? connection.execute("RESET synchronous_commit") }
        var done = 0
        while done < count {
            let rows = min(1000, count - done)
            try connection.query(
                """
                INSERT INTO \(table)
                SELECT n, (n - 1) % $3::bigint, (n - 1) / $3::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
                       'Expense of a shared trip, split evenly between four of us'
                FROM generate_series($1::bigint, $1::bigint + $2::bigint - 1) AS n
                """, [String(first + Int64(done)), String(rows), String(owners)])
            done += rows
        }
    }
}
