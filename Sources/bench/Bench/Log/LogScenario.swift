import EventLog
import System

/// Benchmark of the event log alone, compared with SQLite and with the bare disk.
struct LogScenario: Scenario {
    let name = "log"
    let summary = "Appending to the event log beside SQLite and the bare disk; scanning it."
    let discussion = """
        Appends 500-byte entries in batches of 1, 16, 128 and 1024, each batch made durable by one fdatasync: to the \
        event log as the hub writes it, to SQLite (WAL, synchronous=FULL, exclusive locking, one transaction a batch), \
        and, as the measure of what the disk can do, as plain writes of as many bytes into a file that is preallocated \
        and filled with zeros. All in turns, in the same directory.

        Then a log of some hundred MiB is verified as recovery does it, beside a plain checksum over the same files: with \
        the files in memory, and after the kernel was asked to forget them (posix_fadvise, so that others on the machine \
        keep their cache; a host's own cache below us stays).
        """

    private static let scan = "recovery scan"
    private static let payload = (0..<500).map { UInt8(truncatingIfNeeded: $0 &* 31) }

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let place = try Workplace(below: settings.directory)
        let library = try SQLiteLibrary()
        var series = [1, 16, 128, 1024].map { AppendSeries(batch: $0) }.filter { settings.includes($0.name) }
        let rounds = settings.rounds(usually: 7)
        for round in 0..<rounds {
            settings.progress("appending, round \(round + 1) of \(rounds)")
            for index in series.indices {
                try series[index].measure(place, library, Self.payload, seconds: settings.isQuick ? 0.2 : 1)
            }
        }
        let results = series.flatMap(\.results)
        return settings.includes(Self.scan) ? results + (try scan(place, settings)) : results
    }

    private func scan(_ place: Workplace, _ settings: BenchSettings) throws -> [BenchResult] {
        settings.progress("writing a log to scan")
        defer { place.remove("scan") }
        let scan = try RecoveryScan(
            place.directory("scan"), bytes: (settings.isQuick ? 64 : 768) << 20, payload: Self.payload)
        let rounds = settings.rounds(usually: 7)
        settings.progress("scanning")
        _ = try scan.plainChecksum()
        var warm = (scan: Samples(), plain: Samples())
        var cold = (scan: Samples(), plain: Samples())
        for _ in 0..<rounds {
            warm.scan.add(try scan.verify() / 1e9)
            warm.plain.add(try scan.plainChecksum() / 1e9)
        }
        for _ in 0..<rounds {
            try scan.makeCold()
            cold.scan.add(try scan.verify() / 1e9)
            try scan.makeCold()
            cold.plain.add(try scan.plainChecksum() / 1e9)
        }
        return [
            result("warm", warm.scan, warm.plain, .valueAtLeast(5)),
            result("cold", cold.scan, cold.plain, .ratioAtLeast(0.9)),
        ]
    }

    private func result(_ state: String, _ scan: Samples, _ plain: Samples, _ target: Target) -> BenchResult {
        BenchResult(
            scenario: name, caseName: "\(Self.scan), \(state)", metric: "checked", unit: "GB/s", values: scan,
            baseline: .init("plain checksum", plain), target: target)
    }
}

private struct AppendSeries {
    let batch: Int
    var name: String { "\(batch) per fdatasync" }
    private var log = Samples()
    private var sqlite = Samples()
    private var disk = Samples()

    init(batch: Int) { self.batch = batch }

    mutating func measure(
        _ place: Workplace, _ library: SQLiteLibrary, _ payload: [UInt8], seconds: Double
    ) throws {
        log.add(
            try alone(place) { directory in
                var appender = try LogAppender(directory, payload: payload)
                return try appender.rate(batch: batch, seconds: seconds)
            })
        sqlite.add(
            try alone(place) { directory in
                var appender = try SQLiteAppender(library, path: directory.path + "/sqlite.db", payload: payload)
                return try appender.rate(batch: batch, seconds: seconds)
            })
        disk.add(
            try alone(place) { directory in
                var appender = try DiskAppender(directory, batch: batch, payloadBytes: payload.count)
                return try appender.rate(batch: batch, seconds: seconds)
            })
    }

    /// Runs `body` with an empty directory, which is removed afterwards.
    private func alone(_ place: Workplace, _ body: (DiskDirectory) throws -> Double) throws -> Double {
        defer { place.remove("append") }
        return try body(place.directory("append"))
    }

    var results: [BenchResult] {
        [
            result("SQLite", sqlite, batch == 128 ? .ratioAtLeast(3) : nil),
            result("the disk alone", disk, batch == 1 ? .ratioAtLeast(0.85) : nil),
        ]
    }

    private func result(_ baseline: String, _ values: Samples, _ target: Target?) -> BenchResult {
        BenchResult(
            scenario: "log", caseName: name, metric: "appended", unit: "entries/s", values: log,
            baseline: .init(baseline, values), target: target)
    }
}
