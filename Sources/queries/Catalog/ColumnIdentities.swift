import Change

/// Map from the columns of a stored schema to the present columns of the table.
///
/// A name alone does not identify a column, because another column may have had the name when the row was written. If
/// the column's definition is older than the row, its name identifies it. Otherwise the order of columns does:
/// PostgreSQL sends columns in the order of their numbers and never reuses a number. A column that neither identifies
/// is unknown.
public struct ColumnIdentities: Sendable, Hashable {
    public enum Identity: Sendable, Hashable {
        /// The stored column is the table's column with this slot.
        case column(Int)
        /// The stored column has been dropped from the table.
        case dropped
        /// A column that cannot be identified. Its value must not be used. The slot, if any, is a column whose value
        /// may be missing for this reason.
        case unknown(Int?)
    }

    public let places: [Identity]

    private struct Candidate {
        let number: Int
        /// Slot of the column in the table; nil if the column was dropped.
        let slot: Int?
        /// True if a row may lack this column although it has columns with higher numbers.
        let isOptional: Bool
    }

    /// Creates the map for rows with the schema `relation`.
    ///
    /// - Parameter lsn: the commit position of the transaction that wrote the rows; zero if unknown.
    public init(of relation: Relation, in table: CatalogTable, at lsn: LSN) {
        let count = relation.columns.count
        var places = [Identity?](repeating: nil, count: count)
        var numbers = [Int](repeating: 0, count: count)
        let names = Dictionary(
            relation.columns.enumerated().map { ($1.name, $0) }, uniquingKeysWith: { first, _ in first })
        var candidates: [Candidate] = []
        let isListSure = table.listedSince.isBehind(lsn)
        for (slot, column) in table.columns.enumerated() {
            if column.since.isBehind(lsn) {
                guard let place = names[column.name] else { continue }
                places[place] = .column(slot)
                numbers[place] = column.number
            } else if !isListSure || column.isPublished {
                candidates.append(Candidate(number: column.number, slot: slot, isOptional: !isListSure))
            }
        }
        for dropped in table.dropped where !dropped.since.isBehind(lsn) {
            candidates.append(Candidate(number: dropped.number, slot: nil, isOptional: true))
        }
        candidates.sort { $0.number < $1.number }
        var start = 0
        while start < count {
            guard places[start] == nil else {
                start += 1
                continue
            }
            let end = places[start...].firstIndex { $0 != nil } ?? count
            let first = start == 0 ? 0 : numbers[start - 1]
            let last = end == count ? Int.max : numbers[end]
            Self.match(
                start..<end, candidates.filter { first < $0.number && $0.number < last }, isLast: end == count, &places)
            start = end
        }
        self.places = places.map { $0 ?? .unknown(nil) }
    }

    /// Assigns a candidate column to each place for which only one candidate is possible, regardless of which optional
    /// candidates the row has.
    private static func match(
        _ run: Range<Int>, _ candidates: [Candidate], isLast: Bool, _ places: inout [Identity?]
    ) {
        var taken: Set<Int> = []
        for place in run {
            let (before, after) = (place - run.lowerBound, run.upperBound - place - 1)
            let fitting = candidates.indices.filter { index in
                let earlier = candidates[..<index]
                let later = candidates[(index + 1)...]
                let sureEarlier = earlier.filter { !$0.isOptional }.count
                // Columns that were added after the row was written have higher numbers than its last column.
                let sureLater = isLast ? 0 : later.filter { !$0.isOptional }.count
                return sureEarlier <= before && before <= earlier.count && sureLater <= after && after <= later.count
            }
            guard fitting.count == 1, let only = fitting.first else { continue }
            places[place] = candidates[only].slot.map { .column($0) } ?? .dropped
            if let slot = candidates[only].slot { taken.insert(slot) }
        }
        // For these places no candidate is certain, so the remaining candidates have no value.
        var lacking = candidates.compactMap(\.slot).filter { !taken.contains($0) }[...]
        for place in run where places[place] == nil { places[place] = .unknown(lacking.popFirst()) }
    }
}

extension LSN {
    /// True if a definition that is unchanged since this position applies to a row that was committed at `lsn`.
    public func isBehind(_ lsn: LSN) -> Bool { self == .zero || lsn > self }
}

extension CatalogColumn {
    /// Returns the present label for a stored text of an enumeration; nil if the label may have been renamed.
    public func label(_ text: String, at lsn: LSN) -> String? {
        let unsure = labels.filter { !$0.since.isBehind(lsn) }
        if labels.contains(where: { $0.text == text && $0.since.isBehind(lsn) }) { return text }
        return unsure.count == 1 ? unsure[0].text : nil
    }

    /// True if a value that was committed at `lsn` still has the same meaning, because no part of the column's type has
    /// changed since.
    public func isSure(at lsn: LSN) -> Bool {
        partsSince.isBehind(lsn) && labels.allSatisfy { $0.since.isBehind(lsn) }
    }
}

extension CatalogTable {
    /// Positions at which some part of the table's definition changed, so that earlier rows may mean something else.
    public var turningPoints: Set<LSN> {
        var points = Set(columns.flatMap { [$0.since, $0.partsSince] + $0.labels.map(\.since) })
        points.formUnion(dropped.map(\.since))
        points.formUnion([publishedSince, listedSince])
        points.remove(.zero)
        return points
    }
}
