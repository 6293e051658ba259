import Asking
import Change
import Diagnostics
import Postgres

/// Label of an enumeration, with the LSN after which rows with its text mean this label.
public struct LabelAge: Sendable, Hashable {
    public var text: String
    public var since: LSN

    public init(text: String, since: LSN) {
        self.text = text
        self.since = since
    }
}

/// Number of a dropped column, with the LSN after which no row has the column.
public struct DroppedColumn: Sendable, Hashable {
    public var number: Int
    public var since: LSN

    public init(number: Int, since: LSN) {
        self.number = number
        self.since = since
    }
}

/// Positions (LSNs) after which definitions of tables, columns and labels are unchanged. Empty if the catalog is read
/// in an open transaction or from a record.
struct DefinitionAges {
    struct Column {
        var number: Int
        /// Version of the definition: `pg_attribute.xmin`.
        var version: UInt32
        var isDropped: Bool
        var since: LSN
    }

    fileprivate(set) var columns: [UInt32: [Column]] = [:]
    /// Labels of each enum type, by the type's oid.
    fileprivate(set) var labels: [UInt32: [LabelAge]] = [:]
    /// LSNs after which composite types have their present fields, by the type's oid.
    fileprivate(set) var composites: [UInt32: LSN] = [:]
    /// LSNs after which the publication includes the tables as now, by the table's oid.
    fileprivate(set) var publications: [UInt32: LSN] = [:]
    /// LSN before which the hub cannot tell how tables, columns and types were defined.
    fileprivate(set) var begin = LSN.zero
    /// Version of the publication's row in the catalog, which holds its options.
    fileprivate(set) var publicationVersion = ""

    /// Returns the LSN after which the column's definition is unchanged; `never` if it has just been changed again.
    func since(_ column: TableAttribute) -> LSN {
        guard let known = columns[column.table]?.first(where: { $0.number == column.number }) else { return .zero }
        // The column was changed between two queries. The next reading learns of the new definition.
        return known.version == column.definedBy ? known.since : .never
    }

    func dropped(of table: UInt32) -> [DroppedColumn] {
        (columns[table] ?? []).filter(\.isDropped).map { DroppedColumn(number: $0.number, since: $0.since) }
    }
}

extension CatalogReader {
    /// Returns the LSNs after which the definitions of these tables are unchanged. `types` must contain all types of
    /// the tables' columns.
    func ages(of heads: [TableHead], _ types: TypeBook) throws(PostgresError) -> DefinitionAges {
        var ages = DefinitionAges()
        // The hub never decides about rows by an open transaction or a record, so these need no ages.
        guard asked.sharesTime else { return ages }
        let tables = PostgresArray.literal(heads.map { String($0.oid) })
        let kinds = PostgresArray.literal(types.oids.map { String($0) })
        let columns = try query(columnAges, [slot, tables])
        let labels = try query(labelAges, [slot, kinds])
        let fields = try query(fieldAges, [slot, kinds])
        let moments = try query(momentText, [slot, publication])
        guard let row = moments.first, let position = row[0].flatMap({ LSN($0) }),
            let visible = row[1].flatMap({ VisibleTransactions($0) })
        else { throw CatalogReader.unreadable }
        let reading = DefinitionBook.Reading(
            position: position, firstRunning: visible.firstRunning, firstUnassigned: visible.firstUnassigned)
        let confirmed = row[2].flatMap { LSN($0) }
        ages.publicationVersion = row[3] ?? ""
        ages.begin = definitions.beginning(at: confirmed ?? position)
        for row in columns.values {
            guard let table = row.number(0), let number = row[1].flatMap({ Int($0) }), let version = row.number(2)
            else {
                throw CatalogReader.unreadable
            }
            let since = definitions.sinceOfColumn(
                .column(table: table, number: number), version: String(version),
                finishedBefore: row.flag(4) ? confirmed : nil, reading)
            ages.columns[table, default: []].append(
                DefinitionAges.Column(number: number, version: version, isDropped: row.flag(3), since: since))
        }
        for row in labels.values {
            guard let type = row.number(0), let label = row.number(1), let version = row[2], let text = row[3] else {
                throw CatalogReader.unreadable
            }
            let since = definitions.sinceOfOther(
                .label(label), version: version, finishedBefore: row.flag(4) ? confirmed : nil, reading)
            ages.labels[type, default: []].append(LabelAge(text: text, since: since))
        }
        for row in fields.values {
            guard let type = row.number(0), let relation = row.number(1), let number = row[2].flatMap({ Int($0) }),
                let version = row[3]
            else { throw CatalogReader.unreadable }
            let since = definitions.sinceOfOther(
                .column(table: relation, number: number), version: version,
                finishedBefore: row.flag(4) ? confirmed : nil, reading)
            ages.composites[type] = max(ages.composites[type] ?? .zero, since)
        }
        for head in heads where head.isPublished {
            ages.publications[head.oid] = definitions.sinceOfPublication(
                of: head.oid, version: head.publishedBy + "|" + ages.publicationVersion, reading)
        }
        return ages
    }

    /// Returns SQL that is true if all transactions that the replication slot has not sent yet began after the
    /// transaction which wrote this version of the row.
    private func isFinished(_ row: String) -> String {
        "COALESCE(age(\(row).xmin) > (SELECT age(s.catalog_xmin) FROM pg_replication_slots s WHERE s.slot_name = $1::text), false)"
    }

    private var columnAges: String {
        """
        SELECT a.attrelid, a.attnum, a.xmin, a.attisdropped, \(isFinished("a")) FROM pg_attribute a
        WHERE a.attrelid = ANY ($2::oid[]) AND a.attnum > 0 ORDER BY a.attrelid, a.attnum
        """
    }

    private var labelAges: String {
        """
        SELECT e.enumtypid, e.oid, e.xmin, e.enumlabel, \(isFinished("e")) FROM pg_enum e
        WHERE e.enumtypid = ANY ($2::oid[]) ORDER BY e.enumtypid, e.enumsortorder
        """
    }

    private var fieldAges: String {
        """
        SELECT t.oid, a.attrelid, a.attnum, a.xmin, \(isFinished("a"))
        FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid
        WHERE t.oid = ANY ($2::oid[]) AND t.typrelid <> 0 AND a.attnum > 0 ORDER BY t.oid, a.attnum
        """
    }

    /// SQL for an LSN after everything that earlier statements saw, with the snapshot, the slot's confirmed LSN and the
    /// publication's version at the same moment.
    private var momentText: String {
        """
        SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END,
            pg_current_snapshot()::text,
            (SELECT s.confirmed_flush_lsn FROM pg_replication_slots s WHERE s.slot_name = $1::text),
            (SELECT p.xmin::text FROM pg_publication p WHERE p.pubname = $2::text)
        """
    }
}
