import Asking
import Diagnostics
import Policy
import Postgres

/// Query for the existing rows that a binding selects: the delivered columns of the rows that match the filter, ordered
/// by primary key. The caller runs the query as the subscriber's role, so that the table's policies and privileges
/// apply.
public struct TableSelection: Sendable {
    public enum Refusal: Error, Sendable, Hashable {
        /// The role may not read the primary key, or may not read the table at all.
        case notReadable
        case noPrimaryKey
        /// The filter is not valid for the table any more.
        case otherTable
        /// The filter reads the row before a change, so it selects events and not rows.
        case onlyEvents
    }

    public let table: CatalogTable
    /// Slots of the selected columns, in the order of the output.
    public let columns: [Int]
    /// Values of the filter's constants, for the parameters `$1` and so on.
    public let constants: [String]
    /// True if policies decide which rows of the table the query returns.
    public let isJudged: Bool
    private let condition: String?

    /// Values of one column, to which a query is limited, as PostgreSQL writes them.
    public struct Values: Sendable, Hashable {
        public let slot: Int
        public let texts: [String]

        public init(slot: Int, texts: [String]) {
            self.slot = slot
            self.texts = texts
        }
    }

    /// Creates the query.
    ///
    /// - Parameters:
    ///   - filter: the client's filter text, which was checked when the binding was resolved.
    ///   - values: values of a column that the rows must have; nil for any.
    public init(
        _ binding: TableBinding, filter: String?, with values: Values? = nil, text: TextRules
    ) throws(Refusal) {
        switch binding.access {
        case .readable: break
        case .noPrimaryKey where binding.policy == nil: throw .noPrimaryKey
        case .noPrimaryKey, .unauthorized: throw .notReadable
        }
        table = binding.table
        isJudged = binding.policy != nil
        columns = binding.delivered.filter { binding.table.columns[$0].isKnown }
        var conditions: [String] = []
        var constants: [String] = []
        if let filter {
            guard let check = TableSelection.check(filter, binding.table, text) else { throw .otherTable }
            guard check.oldSlots.isEmpty else { throw .onlyEvents }
            let made = check.condition { TableSelection.column($0, of: binding.table) }
            conditions.append("(\(made.sql))")
            constants = made.constants
        }
        if let values {
            let column = TableSelection.column(values.slot, of: binding.table)
            conditions.append("\(column) = ANY ($\(constants.count + 1))")
            constants.append(TextArray.literal(values.texts[...]))
        }
        condition = conditions.isEmpty ? nil : conditions.joined(separator: " AND ")
        self.constants = constants
    }

    private static func check(_ filter: String, _ table: CatalogTable, _ text: TextRules) -> FilterCheck? {
        // PostgreSQL refuses columns that the role may not read, so they need no check.
        let settings = FilterCheck.Settings(
            maximumListElements: Limits.maximumFilterListElements, maximumKeys: Limits.maximumFilterKeys,
            maximumWork: Limits.maximumFilterWork, text: text)
        guard let parsed = try? Filter.parse(filter, within: BindingResolver.bounds) else { return nil }
        return try? FilterCheck(parsed, columns: table.facts, settings: settings)
    }

    /// True if the query calls only functions that come with PostgreSQL, whichever role runs it.
    public var callsNothing: Bool { !isJudged && !columns.contains { table.columns[$0].isGenerated } }

    // MARK: As SQL

    /// Returns the SELECT statement. Its first output column has one digit for each large column. The digit is 1 if the
    /// text has more than `longest` bytes; the value is then omitted.
    public func sql(longest: Int, atMost count: Int) -> String {
        let large = largeColumns.map { "CASE WHEN \(length(of: $0)) > \(longest) THEN '1' ELSE '0' END" }
        let marks = large.isEmpty ? "''" : "pg_catalog.concat(\(large.joined(separator: ", ")))"
        let values = columns.map { slot in
            isLarge(slot) ? "CASE WHEN \(length(of: slot)) <= \(longest) THEN \(column(slot)) END" : column(slot)
        }
        let order = table.primaryKey.map(column).joined(separator: ", ")
        return """
            SELECT \(([marks] + values).joined(separator: ", "))
            FROM \(Quoted.identifier(table.schema)).\(Quoted.identifier(table.name)) AS tw
            WHERE \(condition ?? "true") ORDER BY \(order) LIMIT \(count)
            """
    }

    /// Slots of the selected columns whose values can be large, in the order of `columns`.
    public var largeColumns: [Int] { columns.filter(isLarge) }

    public func isLarge(_ slot: Int) -> Bool { !SmallTypes.oids.contains(table.columns[slot].facts.type.oid) }

    private func length(of slot: Int) -> String { "pg_catalog.octet_length(CAST(\(column(slot)) AS pg_catalog.text))" }

    private func column(_ slot: Int) -> String { TableSelection.column(slot, of: table) }

    private static func column(_ slot: Int, of table: CatalogTable) -> String {
        "tw." + Quoted.identifier(table.columns[slot].name)
    }

    /// Text that changes whenever the numbers or types of the selected columns change.
    public var shape: String {
        columns.map { "\(table.columns[$0].number):\(table.columns[$0].typeOID)" }.joined(separator: ",")
    }

    public var columnNumbers: String {
        "{" + columns.map { "\(table.columns[$0].number)" }.joined(separator: ",") + "}"
    }
}

/// Types whose values always have short texts.
private enum SmallTypes {
    static let oids: Set<UInt32> = [
        16, 18, 19, 20, 21, 23, 26, 650, 700, 701, 774, 790, 829, 869, 1082, 1083, 1114, 1184, 1186, 1266, 2950,
    ]
}
