import Bytes

/// Change of presence in a topic: a client joined, left or updated its state.
///
/// Presence is kept in the hub's memory. The log stores these marks beside the changes. After an incident, they show
/// which clients were present when a change was delivered.
public struct PresenceMark: Sendable, Equatable {
    public enum Event: UInt8, Sendable, CaseIterable {
        case joined = 1
        case left = 2
        case updated = 3
        /// Marks are missing here, because their queue was full. The metadata says how many.
        case missing = 4

        public var name: String {
            switch self {
            case .joined: "joined"
            case .left: "left"
            case .updated: "updated"
            case .missing: "missing"
            }
        }
    }

    public var event: Event
    public var isPrivate: Bool
    /// Time of the event in microseconds since 1970, UTC.
    public var time: Int64
    public var topic: [UInt8]
    public var key: [UInt8]
    /// Reference that distinguishes the presences (metas) of one key.
    public var ref: [UInt8]
    /// State that the client tracks, a JSON object. After the client left, its last state.
    public var meta: [UInt8]

    public init(
        event: Event, isPrivate: Bool, time: Int64, topic: [UInt8], key: [UInt8], ref: [UInt8], meta: [UInt8]
    ) {
        self.event = event
        self.isPrivate = isPrivate
        self.time = time
        self.topic = topic
        self.key = key
        self.ref = ref
        self.meta = meta
    }

    /// Length of the stored form in bytes.
    public var byteCount: Int { PresenceCodec.fixedBytes + topic.count + key.count + ref.count + meta.count }
}

/// Stored form of presence, several marks in one entry:
///
/// ```
/// entry = version u8 · number of marks u32 · mark*
/// mark  = event u8 · private u8 · time i64 · length of topic u16 · of key u16 · of ref u16 · of meta u32
///         · topic · key · ref · meta
/// ```
public enum PresenceCodec {
    private static let version: UInt8 = 1
    static let fixedBytes = 20

    /// True if every part of the mark fits its length field.
    public static func isStorable(_ mark: PresenceMark) -> Bool {
        let longest = Int(UInt16.max)
        return mark.topic.count <= longest && mark.key.count <= longest && mark.ref.count <= longest
            && mark.meta.count <= Int(Int32.max)
    }

    public static func encode(_ marks: some Collection<PresenceMark>, to writer: inout ByteWriter) {
        writer.append(version)
        writer.append(little: UInt32(marks.count))
        for mark in marks { append(mark, to: &writer) }
    }

    private static func append(_ mark: PresenceMark, to writer: inout ByteWriter) {
        precondition(isStorable(mark), "a mark's parts have a largest size")
        writer.append(mark.event.rawValue)
        writer.append(mark.isPrivate ? UInt8(1) : 0)
        writer.append(little: UInt64(bitPattern: mark.time))
        for part in [mark.topic, mark.key, mark.ref] { writer.append(little: UInt16(part.count)) }
        writer.append(little: UInt32(mark.meta.count))
        for part in [mark.topic, mark.key, mark.ref, mark.meta] { writer.append(part) }
    }

    public static func decode(_ bytes: RawSpan) throws(ByteError) -> [PresenceMark] {
        var reader = ByteReader(bytes)
        guard try reader.uint8() == version else { throw ByteError(expected: "presence of version 1", offset: 0) }
        let count = try reader.littleUInt32()
        // No capacity is reserved, because damaged bytes may contain a wrong count.
        var marks: [PresenceMark] = []
        for _ in 0..<count { marks.append(try mark(&reader)) }
        try reader.expectEnd()
        return marks
    }

    @_lifetime(reader: copy reader)
    private static func mark(_ reader: inout ByteReader) throws(ByteError) -> PresenceMark {
        guard let event = PresenceMark.Event(rawValue: try reader.uint8()) else {
            throw ByteError(expected: "joined, left, updated or missing", offset: reader.offset - 1)
        }
        let isPrivate = try reader.uint8()
        guard isPrivate <= 1 else { throw ByteError(expected: "private or not", offset: reader.offset - 1) }
        let time = Int64(bitPattern: try reader.littleUInt64())
        let topicLength = Int(try reader.littleUInt16())
        let keyLength = Int(try reader.littleUInt16())
        let refLength = Int(try reader.littleUInt16())
        let metaLength = Int(try reader.littleUInt32())
        return PresenceMark(
            event: event, isPrivate: isPrivate == 1, time: time, topic: try reader.span(topicLength).copied(),
            key: try reader.span(keyLength).copied(), ref: try reader.span(refLength).copied(),
            meta: try reader.span(metaLength).copied())
    }
}
