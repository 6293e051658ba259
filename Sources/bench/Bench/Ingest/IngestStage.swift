import Change
import Embedded
import Postgres
import Replication
import System

/// Private PostgreSQL that has the WAL of every `IngestShape`, and a slot at the beginning of each shape's WAL.
final class IngestStage {
    private static let drainSlot = "drain"

    let cluster: PrivateCluster
    let connection: Connection
    private let systemIdentifier: UInt64
    private var ends: [String: LSN] = [:]

    init(_ place: Workplace) throws {
        var options = PrivateCluster.Options()
        // Commits are durable, as in production. Only work that would disturb a measurement now and then is postponed.
        options.settings = [
            "shared_buffers=512MB", "max_wal_size=16GB", "checkpoint_timeout=1h", "autovacuum=off",
            "logical_decoding_work_mem=64MB",
        ]
        cluster = try PrivateCluster(directory: place.path + "/postgres", options: options)
        try cluster.start()
        connection = try cluster.connect()
        let answer = try connection.query("SELECT system_identifier FROM pg_control_system()")
        guard let text = answer.first?[0], let number = UInt64(text) else { throw BenchFailure("no identity") }
        systemIdentifier = number
    }

    func close() { cluster.stop() }

    /// Produces the shape's WAL once, and records the position of its end.
    func load(_ shape: IngestShape) throws {
        try connection.execute(shape.create)
        // Each shape has its own publication, so that a measurement of one shape receives nothing of another.
        try connection.execute(
            "CREATE TABLE \(shape.marker) (at timestamptz);"
                + "CREATE PUBLICATION \(shape.publication) FOR TABLE \(shape.table), \(shape.marker)")
        if let prepare = shape.prepare { try connection.execute(prepare) }
        try connection.query("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", [shape.table])
        let loader = try cluster.connect()
        // Commits of this session do not wait for the disk. The commit of the marker below makes all of them durable.
        try loader.execute("SET synchronous_commit = off")
        try loader.execute(shape.load)
        let end = try connection.query("SELECT pg_current_wal_insert_lsn()").first?[0]
        guard let end = end.flatMap({ LSN($0) }) else { throw BenchFailure("no position in the WAL") }
        ends[shape.table] = end
        // A row that is committed after the end tells a receiving program immediately that the end has been reached.
        try connection.execute("INSERT INTO \(shape.marker) VALUES (now())")
        try connection.execute("CHECKPOINT")
    }

    /// Returns the position at which the shape's WAL ends.
    func end(of shape: IngestShape) -> LSN { ends[shape.table] ?? .zero }

    /// Calls `body` with a slot for one measurement. The slot is a copy that begins where the shape's WAL begins.
    func withSlot<T>(_ shape: IngestShape, _ body: (_ slot: String, _ position: LSN) throws -> T) throws -> T {
        try connection.query(
            "SELECT pg_copy_logical_replication_slot($1, $2)", [shape.table, Self.drainSlot])
        defer { dropSlot() }
        guard let position = try SlotStatus.read(Self.drainSlot, connection)?.confirmed else {
            throw BenchFailure("the copy of slot \(shape.table) has no position")
        }
        return try body(Self.drainSlot, position)
    }

    /// Drops the slot. Tries again for some seconds, because the walsender may not yet have noticed that its client
    /// ended.
    private func dropSlot() {
        for _ in 0..<500 {
            if (try? connection.query("SELECT pg_drop_replication_slot($1)", [Self.drainSlot])) != nil { return }
            Pause.milliseconds(10)
        }
    }

    func awaitNoWalsender() throws {
        let sql = "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'walsender'"
        for _ in 0..<500 where try !connection.query(sql).isEmpty { Pause.milliseconds(10) }
        // The walsender's process ends a moment after PostgreSQL has removed it from the list.
        Pause.milliseconds(30)
    }

    var source: UInt64 { systemIdentifier }

    /// Nanoseconds of processor time that the server's ended processes have used. After a measurement, they include the
    /// walsender that sent the WAL.
    var endedProcessesNanoseconds: UInt64 {
        guard let first = TextFile.read(cluster.directory + "/data/postmaster.pid")?.split(separator: "\n").first,
            let status = TextFile.read("/proc/\(first)/stat"), let name = status.lastIndex(of: ")")
        else { return 0 }
        let fields = status[name...].split(separator: " ")
        // Fields 16 and 17 of proc(5) are cutime and cstime, in ticks of 10 ms; field 2 is the name.
        return fields[14...15].compactMap { UInt64($0) }.reduce(0, +) * 10_000_000
    }
}
