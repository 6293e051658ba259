import Change
import Diagnostics

/// Says of each table what a part of a transaction delivered of it, and how long after the commit: once for the part, with
/// what is kept from before, so that no lock is taken for it.
struct TableDelays {
    private let meters: TableMeters
    /// By the fingerprints of their schemas.
    private var known: [UInt64: TableMeter] = [:]
    /// Of the part at hand.
    private var delivered: [(table: UInt64, meter: TableMeter, count: Int)] = []
    /// Changes of a table mostly stand near each other; of a part that jumps between many, a table may be told twice.
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
