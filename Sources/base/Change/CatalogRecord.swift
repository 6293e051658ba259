import Bytes

/// Record of all answers that PostgreSQL gave to the hub's queries about its catalog at one time. The hub's code can
/// query the record instead of PostgreSQL, and so repeat earlier decisions exactly.
public struct CatalogRecord: Sendable, Equatable {
    /// Answer to one query. `question` is the query's fingerprint.
    public struct Answer: Sendable, Equatable {
        public var question: UInt64
        /// Error code if the query failed; nil otherwise. A failed query has no rows.
        public var failure: String?
        public var rows: [[String?]]

        public init(question: UInt64, failure: String? = nil, rows: [[String?]] = []) {
            self.question = question
            self.failure = failure
            self.rows = rows
        }
    }

    /// Time of the record in microseconds since 1970, UTC.
    public var time: Int64
    /// Offset in the log from which all loops of the hub evaluated changes by this record.
    public var since: UInt64
    /// Offset from which, up to `since`, a loop may have evaluated changes by this record or by one that is not
    /// recorded. The loops receive a new catalog one after the other, and the catalog may change twice in a short time.
    public var unknownFrom: UInt64
    public var serverVersion: UInt32
    public var publication: String
    /// Transactions of the catalog marks at which the hub waited for this record and for no older one. Matters for
    /// records of older hub versions, whose `since` was the end of the log: the hub evaluated the changes after these
    /// marks by this record, too.
    public var awaited: [UInt32]
    /// Roles whose rights the record contains.
    public var roles: [String]
    public var answers: [Answer]

    public init(
        time: Int64, since: UInt64, unknownFrom: UInt64, serverVersion: UInt32, publication: String, awaited: [UInt32],
        roles: [String],
        answers: [Answer]
    ) {
        self.time = time
        self.since = since
        self.unknownFrom = unknownFrom
        self.serverVersion = serverVersion
        self.publication = publication
        self.awaited = awaited
        self.roles = roles
        self.answers = answers
    }

    /// Returns a query's fingerprint. `before` is the fingerprint of the previous query in the same transaction, which
    /// is part of the new one.
    public static func question(_ sql: String, _ parameters: [String?], behind before: UInt64?) -> UInt64 {
        var hash = KeyHash(seed: 7)
        if let before { hash.combine(before) }
        hash.combine(text: sql)
        for parameter in parameters {
            hash.combine(parameter == nil ? 0 : 1)
            hash.combine(text: parameter ?? "")
        }
        return hash.value
    }

    /// True if both records have the same content, regardless of when they were made.
    public func hasSameContent(as other: CatalogRecord) -> Bool {
        serverVersion == other.serverVersion && publication == other.publication && roles == other.roles
            && answers == other.answers
    }

    /// True if every query that both records contain has the same answer in both. Records of the same catalog may
    /// contain different roles.
    public func agrees(with other: CatalogRecord) -> Bool {
        let known = Dictionary(answers.map { ($0.question, $0) }) { first, _ in first }
        return serverVersion == other.serverVersion && publication == other.publication
            && other.answers.allSatisfy { answer in known[answer.question].map { $0 == answer } ?? true }
    }
}

extension CatalogRecord: LogNote {
    public var byteCount: Int { CatalogRecordCodec.byteCount(of: self) }
    public var isStorable: Bool { byteCount <= Int(Int32.max) }
    public var keys: [UInt64] { [RowKey.catalog] }

    public static func encode(_ records: some Collection<CatalogRecord>, to writer: inout ByteWriter) {
        CatalogRecordCodec.encode(records, to: &writer)
    }
}

/// Stored form of catalog records, several in one entry:
///
/// ```
/// entry  = version u8 · number of records u32 · record*
/// record = time i64 · since u64 · unknown from u64 · server version u32 · publication
///           · number of transactions u32 · u32* · number of roles u32 · role* · number of answers u32 · answer*
/// answer = question u64 · failure (none is empty) · number of rows u32 · row*
/// row    = number of values u32 · value*
/// text   = length u32 · bytes;  value = length u32 (all ones: NULL) · bytes
/// ```
public enum CatalogRecordCodec {
    private static let version: UInt8 = 1
    private static let null = UInt32.max

    static func byteCount(of record: CatalogRecord) -> Int {
        func size(_ text: String?) -> Int { 4 + (text?.utf8.count ?? 0) }
        let answers = record.answers.reduce(0) { total, answer in
            answer.rows.reduce(total + 12 + size(answer.failure)) { total, row in
                row.reduce(total + 4) { $0 + size($1) }
            }
        }
        return 40 + size(record.publication) + 4 * record.awaited.count + record.roles.reduce(0) { $0 + size($1) }
            + answers
    }

    public static func encode(_ records: some Collection<CatalogRecord>, to writer: inout ByteWriter) {
        writer.append(version)
        writer.append(little: UInt32(records.count))
        for record in records { append(record, to: &writer) }
    }

    private static func append(_ record: CatalogRecord, to writer: inout ByteWriter) {
        writer.append(little: UInt64(bitPattern: record.time))
        writer.append(little: record.since)
        writer.append(little: record.unknownFrom)
        writer.append(little: record.serverVersion)
        append(record.publication, to: &writer)
        writer.append(little: UInt32(record.awaited.count))
        for xid in record.awaited { writer.append(little: xid) }
        writer.append(little: UInt32(record.roles.count))
        for role in record.roles { append(role, to: &writer) }
        writer.append(little: UInt32(record.answers.count))
        for answer in record.answers {
            writer.append(little: answer.question)
            append(answer.failure ?? "", to: &writer)
            writer.append(little: UInt32(answer.rows.count))
            for row in answer.rows {
                writer.append(little: UInt32(row.count))
                for value in row { append(value, to: &writer) }
            }
        }
    }

    private static func append(_ text: String?, to writer: inout ByteWriter) {
        guard let text else { return writer.append(little: null) }
        writer.append(little: UInt32(text.utf8.count))
        writer.append(Array(text.utf8))
    }

    public static func decode(_ bytes: RawSpan) throws(ByteError) -> [CatalogRecord] {
        var reader = ByteReader(bytes)
        guard try reader.uint8() == version else { throw ByteError(expected: "catalogs of version 1", offset: 0) }
        // No capacity is reserved, because damaged bytes may contain a wrong count.
        var records: [CatalogRecord] = []
        for _ in 0..<(try reader.littleUInt32()) { records.append(try record(&reader)) }
        try reader.expectEnd()
        return records
    }

    @_lifetime(reader: copy reader)
    private static func record(_ reader: inout ByteReader) throws(ByteError) -> CatalogRecord {
        var record = CatalogRecord(
            time: Int64(bitPattern: try reader.littleUInt64()), since: try reader.littleUInt64(),
            unknownFrom: try reader.littleUInt64(), serverVersion: try reader.littleUInt32(),
            publication: try text(&reader), awaited: [],
            roles: [], answers: [])
        for _ in 0..<(try reader.littleUInt32()) { record.awaited.append(try reader.littleUInt32()) }
        for _ in 0..<(try reader.littleUInt32()) { record.roles.append(try text(&reader)) }
        for _ in 0..<(try reader.littleUInt32()) {
            var answer = CatalogRecord.Answer(question: try reader.littleUInt64())
            let failure = try text(&reader)
            answer.failure = failure.isEmpty ? nil : failure
            for _ in 0..<(try reader.littleUInt32()) {
                var row: [String?] = []
                for _ in 0..<(try reader.littleUInt32()) { row.append(try value(&reader)) }
                answer.rows.append(row)
            }
            record.answers.append(answer)
        }
        return record
    }

    @_lifetime(reader: copy reader)
    private static func text(_ reader: inout ByteReader) throws(ByteError) -> String {
        guard let text = try value(&reader) else { throw ByteError(expected: "a text", offset: reader.offset) }
        return text
    }

    @_lifetime(reader: copy reader)
    private static func value(_ reader: inout ByteReader) throws(ByteError) -> String? {
        let length = try reader.littleUInt32()
        return length == null ? nil : String(decoding: try reader.span(Int(length)).copied(), as: UTF8.self)
    }
}
