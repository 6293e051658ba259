import Change
import Diagnostics

/// Recorder of deliveries by table, with their delay since the commit. It records once for each part of a transaction
/// and keeps references to the meters, so that it takes no lock.
struct TableDelays {
    /// Metrics of all tables.
    private let meters: TableMeters
    /// Metrics of tables, by the fingerprints of their schemas.
    private var known: [UInt64: TableMeter] = [:]
    /// Numbers of deliveries of the current part of a transaction, by table.
    private var delivered: [(table: UInt64, meter: TableMeter, count: Int)] = []
    /// Number of recent tables among which the recorder looks for the same table. If a part changes between many
    /// tables, a table may be recorded twice.
    private static let lookedBack = 8

    init(_ meters: TableMeters) { self.meters = meters }

    mutating func note(_ count: Int, of fingerprint: UInt64, _ relation: Relation) {
        if let place = delivered.suffix(Self.lookedBack).lastIndex(where: { $0.table == fingerprint }) {
            delivered[place].count += count
        } else {
            delivered.append((table: fingerprint, meter: meter(fingerprint, relation), count: count))
        }
    }

    private mutating func meter(_ fingerprint: UInt64, _ relation: Relation) -> TableMeter {
        if let meter = known[fingerprint] { return meter }
        if known.count >= Limits.maximumCachedRelations { known.removeAll() }
        let meter = meters.meter(of: "\(relation.schema).\(relation.name)")
        known[fingerprint] = meter
        return meter
    }

    mutating func tell(after nanoseconds: UInt64) {
        for (_, meter, count) in delivered { meter.record(deliveries: count, after: nanoseconds) }
        delivered.removeAll(keepingCapacity: true)
    }
}
