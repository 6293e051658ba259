import Bytes
import Change
import EventLog

/// Tables in the log, each with all its schemas, under any name. A table keeps its oid when it is renamed, moved to
/// another schema or altered. That holds within one database only. After a gap that leads to another database, or to an
/// older state of the same one, an oid may belong to any table.
struct TableFamilies {
    /// Table of one database.
    struct Identity: Hashable {
        /// Number of changes of the database before the schema, such as a switch to another database or a restored
        /// backup.
        var era: Int
        var oid: UInt32
    }

    private var eras: [UInt64: Int] = [:]
    /// Schemas in the order of the log. A schema is listed once for each era (`Identity.era`).
    private(set) var schemas: [(relation: RecordedRelation, identity: Identity)] = []
    private var names: [Identity: Set<TableName>] = [:]

    /// - Parameter withKept: true to include the schemas of rows that were read from the database. For a table without
    ///   changes, the log has no others.
    init(_ log: HistoryLog, withKept: Bool = false) throws {
        let breaks = Set(
            try EventLogReader.gaps(in: log.directory).filter { gap in
                let known = try? GapCodec.decode(gap.payload.rawBytes)
                return known?.reason.mayChangeDatabase ?? true
            }.map(\.epoch))
        var eras: [UInt64: Int] = [:]
        var source: UInt64?
        var seen: Set<[UInt64]> = []
        var found: [(relation: RecordedRelation, identity: Identity)] = []
        try EventLogReader.visitSchemas(in: log.directory) { payload, header in
            if eras[header.epoch] == nil {
                let isOther = breaks.contains(header.epoch) || (source != nil && source != header.source)
                eras[header.epoch] = (eras.values.max() ?? 0) + (isOther ? 1 : 0)
                source = header.source
            }
            let fingerprint = RelationCodec.fingerprint(of: payload)
            let era = eras[header.epoch] ?? 0
            guard seen.insert([UInt64(era), fingerprint]).inserted,
                let relation = try? RecordedRelation(stored: payload)
            else { return }
            found.append((relation, Identity(era: era, oid: relation.relation.oid)))
        }
        if withKept {
            try KeptRowsReader.visitSchemas(log) { schema, epoch in
                guard let relation = try? RecordedRelation(stored: schema.rawBytes) else { return }
                let era = eras[epoch] ?? 0
                guard seen.insert([UInt64(era), relation.fingerprint]).inserted else { return }
                found.append((relation, Identity(era: era, oid: relation.relation.oid)))
            }
        }
        self.eras = eras
        schemas = found
        for (relation, identity) in found { names[identity, default: []].insert(relation.table) }
    }

    func identity(of relation: RecordedRelation, in epoch: UInt64) -> Identity {
        Identity(era: eras[epoch] ?? 0, oid: relation.relation.oid)
    }

    /// Returns all names of all tables with that oid.
    func names(of relation: RecordedRelation) -> Set<TableName> {
        Set(names.filter { $0.key.oid == relation.relation.oid }.flatMap(\.value))
    }

    /// Returns the tables that once had this name.
    func tables(called name: TableName) -> Set<Identity> {
        Set(names.filter { $0.value.contains(name) }.keys)
    }
}

/// All names of tables in the log, by oid. A mask for a column of `users` also applies where `users` was called
/// `people`. If two databases have tables with the same oid, both are masked: that hides too much, and never too
/// little.
struct TableNames {
    private var names: [UInt32: Set<TableName>] = [:]

    /// Reads the log only if names of tables matter to the masking.
    init(_ log: HistoryLog) throws(EventLogError) {
        guard log.masking.knowsTables else { return }
        for relation in try log.relations() { note(relation.relation) }
    }

    mutating func note(_ relation: Relation) {
        names[relation.oid, default: []].insert(TableName(schema: relation.schema, name: relation.name))
    }

    subscript(relation: Relation) -> Set<TableName> { names[relation.oid] ?? [] }
}
