import Synchronization

/// Measurements of one table: the number of its deliveries, and their delay after the commit.
///
/// Recording takes no lock and is possible from any thread. A reader may see an observation in the count before it is
/// included in the sum.
public final class TableMeter: Sendable {
    /// Exponents of the bucket bounds, which are powers of two in nanoseconds: 1 ms, 4 ms, 17 ms … 69 s. A histogram
    /// has far more buckets, but these exist once for each table.
    static let exponents = Array(stride(from: 20, through: 36, by: 2))
    private static let bucketCount = 10

    private let deliveries = Atomic<UInt64>(0)
    private let buckets: InlineArray<10, Atomic<UInt64>>
    private let sum = Atomic<UInt64>(0)
    private let last = Atomic<UInt64>(0)

    init() {
        precondition(
            Self.bucketCount == Self.exponents.count + 1, "each bound has a bucket, and what is beyond has one")
        buckets = InlineArray { _ in Atomic(0) }
    }

    /// Records deliveries of a table's changes.
    ///
    /// - Parameters:
    ///   - deliveries: number of changes of the table in one part of a transaction, counted once for each channel.
    ///   - nanoseconds: time from the commit until the hub passed the changes to sockets.
    public func record(deliveries count: Int, after nanoseconds: UInt64) {
        precondition(count >= 0, "a counter only grows")
        deliveries.wrappingAdd(UInt64(count), ordering: .relaxed)
        let place = Self.exponents.firstIndex { nanoseconds < 1 << UInt64($0) } ?? Self.exponents.count
        buckets[place].wrappingAdd(1, ordering: .relaxed)
        sum.wrappingAdd(nanoseconds, ordering: .relaxed)
        last.store(nanoseconds, ordering: .relaxed)
    }

    fileprivate var deliveryCount: UInt64 { deliveries.load(ordering: .relaxed) }
    fileprivate var counts: [UInt64] { (0..<Self.bucketCount).map { buckets[$0].load(ordering: .relaxed) } }
    fileprivate var seconds: Double { Double(sum.load(ordering: .relaxed)) / 1e9 }
    fileprivate var lastSeconds: Double { Double(last.load(ordering: .relaxed)) / 1e9 }
}

/// Meters of a project's tables. The first `limit` tables have one each; all other tables share one. A table keeps its
/// meter until the project ends.
public final class TableMeters: Sendable {
    private let limit: Int
    private let byName = Mutex<[String: TableMeter]>([:])
    private let other = TableMeter()

    public init(limit: Int) {
        precondition(limit >= 0, "as many tables as there may be, or none")
        self.limit = limit
    }

    /// Returns the meter of a table. Look up a meter once and keep it, because this call takes a lock.
    public func meter(of table: String) -> TableMeter {
        byName.withLock { byName in
            if let known = byName[table] { return known }
            guard byName.count < limit else { return other }
            let new = TableMeter()
            byName[table] = new
            return new
        }
    }

    /// Meters of all tables, sorted by table name. The meter that all other tables share is the last one.
    fileprivate var all: [(table: String, meter: TableMeter)] {
        let named = byName.withLock { $0.map { (table: $0.key, meter: $0.value) } }.sorted { $0.table < $1.table }
        // No table is called "other" here, because table names begin with their schema.
        return other.deliveryCount > 0 ? named + [(table: "other", meter: other)] : named
    }
}

/// Figure of each table, as a metric.
public final class TableFigures: Sendable {
    public enum Figure: Sendable { case deliveries, delay, lastDelay }

    let name: String
    let help: String
    private let figure: Figure
    private let meters: TableMeters

    init(_ name: String, _ help: String, _ figure: Figure, of meters: TableMeters) {
        (self.name, self.help, self.figure, self.meters) = (name, help, figure, meters)
    }
}

extension TableFigures: Instrument {
    var typeName: String {
        switch figure {
        case .deliveries: Counter.typeName
        case .delay: Histogram.typeName
        case .lastDelay: Gauge.typeName
        }
    }

    func appendSamples(_ labels: [MetricLine.Label], to text: inout [UInt8]) {
        for (table, meter) in meters.all {
            let labels = [(name: "table", value: table)] + labels
            switch figure {
            case .deliveries: MetricLine.append(name, labels, meter.deliveryCount, to: &text)
            case .lastDelay: MetricLine.append(name, labels, meter.lastSeconds, to: &text)
            case .delay: appendDelay(of: meter, labels, to: &text)
            }
        }
    }

    private func appendDelay(of meter: TableMeter, _ labels: [MetricLine.Label], to text: inout [UInt8]) {
        var count: UInt64 = 0
        for (place, added) in meter.counts.enumerated() {
            count += added
            let bound =
                place < TableMeter.exponents.count
                ? "\(Double(1 << UInt64(TableMeter.exponents[place])) / 1e9)" : "+Inf"
            MetricLine.append("\(name)_bucket", [("le", bound)] + labels, count, to: &text)
        }
        MetricLine.append("\(name)_sum", labels, meter.seconds, to: &text)
        MetricLine.append("\(name)_count", labels, count, to: &text)
    }
}
