import Bytes
import Change
import Replication

/// State of a replicated log beside its entries: what a node without a log needs to begin one that continues there.
public struct ClusterState: Sendable, Equatable {
    /// True if the log has not begun.
    public var isNew: Bool
    /// System identifier of the database; zero for a new log.
    public var system: UInt64
    public var epoch: UInt64
    /// Offset of the next change.
    public var offset: UInt64
    public var position: LSN
    public var lineage: Lineage?
    /// Publication of database messages, with the point from which the log has all of them.
    public var messages: FollowedPublication?
    /// Publication of the tables that decide memberships, and the position from which the log has all their changes.
    public var memberships: FollowedMemberships?
    /// Slot with which a new log is about to begin; nil if there is none.
    public var beginning: String?

    public init(
        isNew: Bool, system: UInt64, epoch: UInt64, offset: UInt64, position: LSN, lineage: Lineage?,
        messages: FollowedPublication?, memberships: FollowedMemberships?, beginning: String?
    ) {
        self.isNew = isNew
        self.system = system
        self.epoch = epoch
        self.offset = offset
        self.position = position
        self.lineage = lineage
        self.messages = messages
        self.memberships = memberships
        self.beginning = beginning
    }
}

extension ClusterState {
    func append(to writer: inout ByteWriter) {
        writer.append(UInt8(isNew ? 1 : 0))
        writer.append(little: system)
        writer.append(little: epoch)
        writer.append(little: offset)
        writer.append(little: position.rawValue)
        Optional.append(lineage, to: &writer) { $0.append(to: &$1) }
        Optional.append(messages, to: &writer) { $0.append(to: &$1) }
        Optional.append(memberships, to: &writer) { $0.append(to: &$1) }
        Optional.append(beginning, to: &writer) { text, writer in
            writer.append(little: UInt16(text.utf8.count))
            writer.append(text)
        }
    }

    init(_ reader: inout ByteReader) throws(ByteError) {
        isNew = try reader.uint8() == 1
        system = try reader.littleUInt64()
        epoch = try reader.littleUInt64()
        offset = try reader.littleUInt64()
        position = LSN(try reader.littleUInt64())
        lineage = try reader.uint8() == 1 ? try Lineage(&reader) : nil
        messages = try reader.uint8() == 1 ? try FollowedPublication(&reader) : nil
        memberships = try reader.uint8() == 1 ? try FollowedMemberships(&reader) : nil
        beginning = try reader.uint8() == 1 ? try reader.span(Int(reader.littleUInt16())).text : nil
    }
}

extension Optional {
    /// Appends a flag, and the value if there is one.
    static func append(
        _ value: Wrapped?, to writer: inout ByteWriter, _ body: (Wrapped, inout ByteWriter) -> Void
    ) {
        writer.append(UInt8(value == nil ? 0 : 1))
        if let value { body(value, &writer) }
    }
}

extension Lineage {
    func append(to writer: inout ByteWriter) {
        writer.append(little: timeline)
        writer.append(little: database)
        writer.append(little: publication ?? 0)
    }

    init(_ reader: inout ByteReader) throws(ByteError) {
        self.init(timeline: try reader.littleUInt32(), database: try reader.littleUInt32())
        let number = try reader.littleUInt32()
        publication = number == 0 ? nil : number
    }
}

extension FollowedPublication {
    func append(to writer: inout ByteWriter) {
        writer.append(little: number)
        writer.append(little: since.rawValue)
        writer.append(little: offset)
        writer.append(little: UInt64(bitPattern: time))
    }

    init(_ reader: inout ByteReader) throws(ByteError) {
        self.init(
            number: try reader.littleUInt32(), since: LSN(try reader.littleUInt64()),
            offset: try reader.littleUInt64(), time: Int64(bitPattern: try reader.littleUInt64()))
    }
}

extension FollowedMemberships {
    func append(to writer: inout ByteWriter) {
        writer.append(little: number)
        writer.append(little: since.rawValue)
    }

    init(_ reader: inout ByteReader) throws(ByteError) {
        self.init(number: try reader.littleUInt32(), since: LSN(try reader.littleUInt64()))
    }
}
