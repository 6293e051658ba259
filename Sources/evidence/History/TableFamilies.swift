import Change
import EventLog

/// Which schemas of the log are of one table, under whatever name: a table keeps its oid when it is renamed, given another
/// schema or altered. Within one database, that is: behind a gap to another one, or to an older state of the same, an oid
/// may be any table's.
struct TableFamilies {
    /// One table of one database.
    struct Identity: Hashable {
        var era: Int
        var oid: UInt32
    }

    private var eras: [UInt64: Int] = [:]
    /// In the order of the log, each once an era.
    private(set) var schemas: [(relation: RecordedRelation, identity: Identity)] = []
    private var names: [Identity: Set<TableName>] = [:]

    /// - Parameter withKept: also the schemas of rows that were read from the database. Of a table that nothing has touched the
    ///   log has no others.
    init(_ log: HistoryLog, withKept: Bool = false) throws {
        let breaks = Set(
            try EventLogReader.gaps(in: log.directory).filter { gap in
                // SAFETY: any byte is a valid UInt8, and the array outlives the call.
                let known = try? GapCodec.decode(unsafe gap.payload.span.bytes)
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
                // SAFETY: any byte is a valid UInt8, and the array outlives the call.
                guard let relation = try? RecordedRelation(stored: unsafe schema.span.bytes) else { return }
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

    /// All names of all tables with that oid.
    func names(of relation: RecordedRelation) -> Set<TableName> {
        Set(names.filter { $0.key.oid == relation.relation.oid }.flatMap(\.value))
    }

    /// The tables that were once called so.
    func tables(called name: TableName) -> Set<Identity> {
        Set(names.filter { $0.value.contains(name) }.keys)
    }
}

/// All names that tables have in the log, by oid: whoever masks a column of `users` means it also where `users` was called
/// `people`. What two databases have under one oid is masked in both, which hides too much and never too little.
struct TableNames {
    private var names: [UInt32: Set<TableName>] = [:]

    /// Looks into the log only where it matters.
    init(_ log: HistoryLog) throws(EventLogError) {
        guard log.masking.knowsTables else { return }
        for relation in try log.relations() { note(relation.relation) }
    }

    mutating func note(_ relation: Relation) {
        names[relation.oid, default: []].insert(TableName(schema: relation.schema, name: relation.name))
    }

    subscript(relation: Relation) -> Set<TableName> { names[relation.oid] ?? [] }
}
