import Bytes
import Change
import Replication

/// Record of a batch: one thing that happens to the log of every node, in the same order. Long contents are ranges of the
/// batch's bytes.
public enum ClusterRecord: Sendable {
    /// Schema to which later parts of the same batch refer.
    case schema(Range<Int>)
    /// Transaction, or a part of a large one.
    case part(PartRecord)
    /// The log has reached this position without a change.
    case progress(LSN)
    /// Changes were lost: the gap, the database that follows, and the epoch that begins.
    case gap(Gap, system: UInt64, epoch: UInt64)
    /// The log is about to begin with a slot that does not exist yet.
    case beginning(slot: String)
    /// The log begins.
    case begin(system: UInt64, position: LSN, gap: Gap?, epoch: UInt64)
    case lineage(Lineage)
    case messages(FollowedPublication?)
    case memberships(FollowedMemberships?)
    /// The parts of the unfinished transaction do not count.
    case abandon
    /// A node holds the slot from here on.
    case tenure(node: String, ClusterState)
    /// The feeder holds the slot no longer.
    case resigned
    /// State of the log here, for nodes that begin to read here.
    case state(ClusterState)
}

/// Transaction, or a part of a large one, as it lies in a batch.
public struct PartRecord: Sendable {
    public let isLast: Bool
    public let changeCount: UInt32
    /// Fingerprints of the schemas to which the changes refer.
    public let schemas: [UInt64]
    public let keys: [UInt64]
    public let marks: [UInt32]
    /// Range of the batch with the stored form of the changes (`TransactionCodec`).
    public let payload: Range<Int>

    init(_ reader: inout ByteReader, endingAt end: Int) throws(ByteError) {
        isLast = try reader.uint8() == 1
        changeCount = try reader.littleUInt32()
        schemas = try Self.numbers(&reader)
        keys = try Self.numbers(&reader)
        marks = try Self.numbers(&reader).map { UInt32(truncatingIfNeeded: $0) }
        let count = reader.remaining
        payload = end - count..<end
    }

    private static func numbers(_ reader: inout ByteReader) throws(ByteError) -> [UInt64] {
        let count = Int(try reader.littleUInt32())
        guard count <= reader.remaining / 8 else { throw ByteError(expected: "fewer numbers", offset: reader.offset) }
        var numbers: [UInt64] = []
        numbers.reserveCapacity(count)
        for _ in 0..<count { numbers.append(try reader.littleUInt64()) }
        return numbers
    }
}

/// Stored form of a record: kind u8 · length of the content u32 · content. Numbers are little-endian.
enum RecordKind: UInt8 {
    case schema = 1
    case part, progress, gap, beginning, begin, lineage, messages, memberships, abandon, tenure, resigned, state
}

/// Reader of a batch's records, in order.
public struct RecordReader: ~Escapable {
    private var reader: ByteReader

    @_lifetime(copy batch)
    public init(_ batch: RawSpan, from offset: Int = 0) throws(ByteError) {
        reader = ByteReader(batch)
        try reader.skip(offset)
    }

    /// Offset of the next record.
    public var offset: Int { reader.offset }

    /// Reads the next record; nil after the last one.
    public mutating func next() throws(ByteError) -> ClusterRecord? {
        guard reader.remaining > 0 else { return nil }
        guard let kind = RecordKind(rawValue: try reader.uint8()) else {
            throw ByteError(expected: "a record of a kind that this version knows", offset: reader.offset)
        }
        let length = Int(try reader.littleUInt32())
        var content = ByteReader(try reader.span(length))
        switch kind {
        case .schema: return .schema(reader.offset - length..<reader.offset)
        case .part: return .part(try PartRecord(&content, endingAt: reader.offset))
        case .progress: return .progress(LSN(try content.littleUInt64()))
        case .gap:
            let (system, epoch) = (try content.littleUInt64(), try content.littleUInt64())
            return .gap(try GapCodec.decode(content.rest()), system: system, epoch: epoch)
        case .beginning: return .beginning(slot: content.rest().text)
        case .begin:
            let (system, position) = (try content.littleUInt64(), LSN(try content.littleUInt64()))
            let epoch = try content.littleUInt64()
            let gap = content.remaining == 0 ? nil : try GapCodec.decode(content.rest())
            return .begin(system: system, position: position, gap: gap, epoch: epoch)
        case .lineage: return .lineage(try Lineage(&content))
        case .messages: return .messages(content.remaining == 0 ? nil : try FollowedPublication(&content))
        case .memberships: return .memberships(content.remaining == 0 ? nil : try FollowedMemberships(&content))
        case .abandon: return .abandon
        case .tenure:
            let node = try content.span(Int(content.littleUInt16())).text
            return .tenure(node: node, try ClusterState(&content))
        case .resigned: return .resigned
        case .state: return .state(try ClusterState(&content))
        }
    }
}

/// Batch that is being written: records in their stored form.
public struct BatchBuilder: ~Copyable {
    private var bytes = ByteWriter(capacity: 64 << 10)
    /// Fingerprints of the schemas that the batch has.
    private var schemas: Set<UInt64> = []
    /// Length of the batch before the first part of the transaction that is being added; nil between transactions.
    private var transactionStart: Int?

    public init() {}

    public var count: Int { bytes.count }
    public var isEmpty: Bool { bytes.isEmpty }
    public var content: RawSpan {
        @_lifetime(borrow self)
        get { bytes.bytes }
    }

    public mutating func removeAll() {
        bytes.removeAll()
        bytes.shrink(to: 4 << 20)
        schemas.removeAll(keepingCapacity: true)
        guard transactionStart != nil else { return }
        transactionStart = 0
        hasEarlierParts = true
    }

    /// Removes the parts of the unfinished transaction. Returns true if earlier batches have some of them.
    public mutating func dropTransaction() -> Bool {
        guard let start = transactionStart else { return false }
        bytes.truncate(to: start)
        // Schemas of the removed parts were removed with them.
        schemas.removeAll(keepingCapacity: true)
        defer { hasEarlierParts = false }
        transactionStart = nil
        return hasEarlierParts
    }

    /// True if an earlier batch has parts of the unfinished transaction.
    private var hasEarlierParts = false

    private mutating func record(_ kind: RecordKind, _ body: (inout ByteWriter) -> Void) {
        bytes.append(kind.rawValue)
        let start = bytes.count
        bytes.append(little: UInt32(0))
        body(&bytes)
        bytes.set(little: UInt32(bytes.count - start - 4), at: start)
    }

    public mutating func add(_ part: borrowing StorablePart) {
        if transactionStart == nil { transactionStart = bytes.count }
        for schema in part.schemas where schemas.insert(schema.fingerprint).inserted {
            record(.schema) { $0.append(schema.encoded) }
        }
        let payload = part.payload
        let (isLast, changes) = (part.isLast, part.changeCount)
        let (prints, keys, marks) = (part.schemas.map(\.fingerprint), part.keys, part.marks)
        bytes.append(RecordKind.part.rawValue)
        let start = bytes.count
        bytes.append(little: UInt32(0))
        bytes.append(UInt8(isLast ? 1 : 0))
        bytes.append(little: changes)
        Self.append(prints, to: &bytes)
        Self.append(keys, to: &bytes)
        Self.append(marks.map { UInt64($0) }, to: &bytes)
        bytes.append(payload)
        bytes.set(little: UInt32(bytes.count - start - 4), at: start)
        guard isLast else { return }
        transactionStart = nil
        hasEarlierParts = false
    }

    private static func append(_ numbers: [UInt64], to writer: inout ByteWriter) {
        writer.append(little: UInt32(numbers.count))
        for number in numbers { writer.append(little: number) }
    }

    public mutating func add(progress position: LSN) { record(.progress) { $0.append(little: position.rawValue) } }

    public mutating func add(_ gap: Gap, system: UInt64, epoch: UInt64) {
        record(.gap) { writer in
            writer.append(little: system)
            writer.append(little: epoch)
            GapCodec.encode(gap, to: &writer)
        }
    }

    public mutating func add(beginning slot: String) { record(.beginning) { $0.append(slot) } }

    public mutating func add(begin system: UInt64, at position: LSN, after gap: Gap?, epoch: UInt64) {
        record(.begin) { writer in
            writer.append(little: system)
            writer.append(little: position.rawValue)
            writer.append(little: epoch)
            if let gap { GapCodec.encode(gap, to: &writer) }
        }
    }

    public mutating func add(_ lineage: Lineage) { record(.lineage) { lineage.append(to: &$0) } }

    public mutating func add(messages publication: FollowedPublication?) {
        record(.messages) { publication?.append(to: &$0) }
    }

    public mutating func add(memberships publication: FollowedMemberships?) {
        record(.memberships) { publication?.append(to: &$0) }
    }

    public mutating func addAbandon() { record(.abandon) { _ in } }

    public mutating func add(tenureOf node: String, _ state: ClusterState) {
        record(.tenure) { writer in
            writer.append(little: UInt16(node.utf8.count))
            writer.append(node)
            state.append(to: &writer)
        }
    }

    public mutating func addResigned() { record(.resigned) { _ in } }

    public mutating func add(_ state: ClusterState) { record(.state) { state.append(to: &$0) } }
}
