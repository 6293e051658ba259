import EventLog
import Postgres
import System

/// Benchmark of the cost of the ledger, the hub's record of its clients. Hubs with different settings make the same
/// deliveries per second. The benchmark compares the loops' processor time and the bytes on the disk.
final class LedgerRace {
    /// Number of subscribers that each change has.
    enum Shape: String, CaseIterable {
        case everybody = "for everybody"
        case one = "for one of them"
    }

    /// Values of the hub's setting `ledger` that the benchmark compares. The first one is the baseline for the others.
    private static let modes = ["off", "exceptions", "ranges", "full"]
    private static let ofDefault = "ranges"

    private let shape: Shape
    private let clients: Int
    private let lanes: [LedgerLane]

    init(_ shape: Shape, _ stage: ServingStage, _ place: Workplace, _ settings: BenchSettings) throws {
        self.shape = shape
        clients = settings.isQuick ? 200 : 4000
        var lanes: [LedgerLane] = []
        for mode in Self.modes {
            settings.progress("\(clients) clients of a hub with ledger = \(mode), changes \(shape.rawValue)")
            lanes.append(try LedgerLane(mode, shape, clients, stage, settings))
        }
        self.lanes = lanes
        for lane in lanes { try lane.warmUp() }
    }

    func close() { for lane in lanes { lane.close() } }

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        // There are many short rounds, so that a disturbance of the machine affects neighbouring rounds equally.
        let rounds = settings.rounds(usually: 61)
        for round in 0..<rounds {
            settings.progress("the ledger, \(shape.rawValue): round \(round + 1) of \(rounds)")
            for lane in round % 2 == 0 ? lanes : lanes.reversed() { try lane.send() }
        }
        guard let off = lanes.first else { return [] }
        return try lanes.flatMap { lane -> [BenchResult] in
            let caseName = "\(clients) clients, changes \(shape.rawValue), ledger \(lane.mode)"
            return [
                BenchResult(
                    scenario: "fanout", caseName: caseName, metric: "loop thread's time a delivery", unit: "us",
                    values: Samples(lane.microseconds),
                    baseline: lane === off ? nil : .init("ledger off", Samples(off.microseconds)),
                    target: lane.mode == Self.ofDefault ? .ratioAtLeast(0.95) : nil, isLessBetter: true),
                BenchResult(
                    scenario: "fanout", caseName: caseName, metric: "deliveries", unit: "1/s",
                    values: Samples(lane.rates)),
                BenchResult(
                    scenario: "fanout", caseName: caseName, metric: "the ledger's bytes a delivery", unit: "bytes",
                    values: Samples([try lane.ledgerBytesPerDelivery()])),
            ]
        }
    }
}

/// Hub of the benchmark of the ledger, and its subscribers.
private final class LedgerLane {
    private static let firstSequence: Int64 = 1_000_000
    private static let deliveriesPerSecond = 40_000
    private static let transactionsPerSecond = 10
    /// Milliseconds after which all notes about clients have been written to the log.
    private static let settlingMilliseconds = 3_000

    let mode: String
    private(set) var microseconds: [Double] = []
    private(set) var rates: [Double] = []
    private let shape: LedgerRace.Shape
    private let stage: ServingStage
    private let hub: HubProcess
    private let fleet: LoadFleet
    private let table: String
    private let log: String
    private let rowsOfTransaction: Int
    private let transactions: Int
    private var next = LedgerLane.firstSequence
    private var bytesBefore = 0
    private var deliveries = 0

    init(
        _ mode: String, _ shape: LedgerRace.Shape, _ clients: Int, _ stage: ServingStage, _ settings: BenchSettings
    ) throws {
        (self.mode, self.shape, self.stage) = (mode, shape, stage)
        table = "ledger_\(shape == .one ? "one" : "all")_\(mode)"
        let together = Self.deliveriesPerSecond / Self.transactionsPerSecond
        rowsOfTransaction = shape == .one ? (settings.isQuick ? 50 : together) : max(1, together / clients)
        transactions = settings.isQuick ? 3 : Self.transactionsPerSecond / 2
        try stage.makeTable(table)
        hub = try stage.startHub(table, loops: 1, backend: "epoll", ["--ledger", mode])
        log = stage.logOfLastHub
        fleet = try stage.connect(clients, to: hub, table: table, filter: shape == .one ? "owner=eq.{n}" : nil)
        try ProcessorPin.put([hub.processID], on: ProcessorPin.servers)
        try ProcessorPin.put(fleet.processIDs, on: ProcessorPin.clients)
    }

    func close() {
        fleet.close()
        stage.end(hub)
    }

    func warmUp() throws {
        try send()
        (microseconds, rates, deliveries) = ([], [], 0)
        Pause.milliseconds(Self.settlingMilliseconds)
        bytesBefore = try ledgerBytes()
    }

    /// Commits transactions at equal intervals, and waits until all clients have received their changes.
    func send() throws {
        let before = try hub.use()
        let rows = Int64(transactions * rowsOfTransaction)
        try fleet.expect(first: next, each: rows, stride: shape == .one ? fleet.count : 1)
        let began = Clock.monotonicNanoseconds()
        for transaction in 0..<transactions {
            let due = began + UInt64(transaction * 1_000_000_000 / Self.transactionsPerSecond)
            let now = Clock.monotonicNanoseconds()
            if now < due { BackgroundThread.rest(nanoseconds: due - now) }
            try insert()
        }
        _ = try fleet.awaitAll(milliseconds: 60_000)
        let seconds = Double(Clock.monotonicNanoseconds() - began) / 1e9
        // If the hub sends duplicates, they arrive during this pause. It also makes the kernel's figures exact: they
        // are so only for threads at rest.
        Pause.milliseconds(50)
        let report = try fleet.report()
        guard report.isFaultless else {
            throw BenchFailure(
                "void (fanout, ledger = \(mode)): of \(report.expected) changes \(report.missing) are missing, "
                    + "\(report.doubled) came twice or late, \(report.foreign + report.malformed) mean nothing")
        }
        let after = try hub.use()
        deliveries += Int(report.received)
        microseconds.append(after.nanoseconds(since: before, threads: "loop-") / Double(report.received) / 1000)
        rates.append(Double(report.received) / seconds)
    }

    /// Commits rows in one transaction. Each row is for one client: the one whose number is the row's number modulo the
    /// number of clients.
    private func insert() throws {
        try stage.connection.query(
            """
            INSERT INTO \(table)
            SELECT n, n % $3::bigint, n, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
                   'Expense of a shared trip, split evenly between four of us'
            FROM generate_series($1::bigint, $1::bigint + $2::bigint - 1) AS n
            """, [String(next), String(rowsOfTransaction), String(fleet.count)])
        next += Int64(rowsOfTransaction)
    }

    func ledgerBytesPerDelivery() throws -> Double {
        Pause.milliseconds(Self.settlingMilliseconds)
        return Double(try ledgerBytes() - bytesBefore) / Double(max(1, deliveries))
    }

    private func ledgerBytes() throws -> Int {
        var reader = try EventLogReader(directory: DiskDirectory(log))
        var bytes = 0
        while try reader.next() {
            if reader.entry.kind == .ledger { bytes += reader.entry.header.byteCount }
        }
        return bytes
    }
}
