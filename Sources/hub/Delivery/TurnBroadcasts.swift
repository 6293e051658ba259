import Bytes
import Channels
import Protocol

/// Broadcasts of one loop in one turn, sent to the other loops. They are written once, and each loop reads them in
/// place.
public final class TurnBroadcasts: Sendable {
    public struct Entry: Sendable {
        let form: BroadcastForm
        public let isPrivate: Bool
        /// Index of the first byte. The bytes are the topic without prefix, then the event, the id and the payload.
        let start: Int
        let topicBytes: Int
        let eventBytes: Int
        let idBytes: Int
        public let payloadBytes: Int
        /// Log offset of a message that came from the database; nil for all other broadcasts.
        public let offset: UInt64?
    }

    private let bytes: [UInt8]
    public let entries: [Entry]

    fileprivate init(_ bytes: [UInt8], _ entries: [Entry]) {
        self.bytes = bytes
        self.entries = entries
    }

    public var byteCount: Int { bytes.count }

    // MARK: Between nodes

    /// Appends the stored form: number of entries u32, the entries, the bytes.
    public func append(to writer: inout ByteWriter) {
        writer.append(little: UInt32(entries.count))
        for entry in entries {
            assert(entry.offset == nil, "each node reads the database's messages by itself")
            writer.append(entry.form.rawValue)
            writer.append(UInt8(entry.isPrivate ? 1 : 0))
            for count in [entry.topicBytes, entry.eventBytes, entry.idBytes, entry.payloadBytes] {
                writer.append(little: UInt32(count))
            }
        }
        writer.append(bytes)
    }

    /// Reads the stored form; nil if it is invalid.
    public convenience init?(_ reader: inout ByteReader) {
        guard let count = try? reader.littleUInt32(), Int(count) <= reader.remaining / 18 else { return nil }
        var entries: [Entry] = []
        var start = 0
        for _ in 0..<count {
            guard let form = (try? reader.uint8()).flatMap({ BroadcastForm(rawValue: $0) }),
                let isPrivate = try? reader.uint8(), let topic = try? reader.littleUInt32(),
                let event = try? reader.littleUInt32(), let id = try? reader.littleUInt32(),
                let payload = try? reader.littleUInt32()
            else { return nil }
            entries.append(
                Entry(
                    form: form, isPrivate: isPrivate == 1, start: start, topicBytes: Int(topic), eventBytes: Int(event),
                    idBytes: Int(id), payloadBytes: Int(payload), offset: nil))
            start += Int(topic) + Int(event) + Int(id) + Int(payload)
        }
        guard start == reader.remaining else { return nil }
        self.init(reader.rest().copied(), entries)
    }

    /// Calls `body` with the topic and the content of one broadcast.
    public func read(_ entry: Entry, _ body: (_ topic: RawSpan, _ broadcast: borrowing Broadcast) -> Void) {
        let bytes = bytes
        let all = bytes.rawBytes
        var at = entry.start
        let topic = all.extracting(at..<at + entry.topicBytes)
        at += entry.topicBytes
        let event = all.extracting(at..<at + entry.eventBytes)
        at += entry.eventBytes
        let id = all.extracting(at..<at + entry.idBytes)
        at += entry.idBytes
        let payload = all.extracting(at..<at + entry.payloadBytes)
        body(topic, Broadcast(entry.form, event: event, payload: payload, id: id))
    }
}

/// Collector of one turn's broadcasts.
public struct BroadcastGathering: ~Copyable {
    private var bytes: [UInt8] = []
    private var entries: [TurnBroadcasts.Entry] = []

    public init() {}

    public mutating func add(_ broadcast: borrowing Broadcast, topic: RawSpan, isPrivate: Bool, offset: UInt64? = nil) {
        entries.append(
            TurnBroadcasts.Entry(
                form: broadcast.form, isPrivate: isPrivate, start: bytes.count, topicBytes: topic.byteCount,
                eventBytes: broadcast.event.byteCount, idBytes: broadcast.id.byteCount,
                payloadBytes: broadcast.payload.byteCount, offset: offset))
        append(topic)
        append(broadcast.event)
        append(broadcast.id)
        append(broadcast.payload)
    }

    private mutating func append(_ span: RawSpan) {
        // SAFETY: the bytes are copied while the span lives.
        unsafe span.withUnsafeBytes { unsafe bytes.append(contentsOf: $0) }
    }

    public mutating func take() -> TurnBroadcasts? {
        guard !entries.isEmpty else { return nil }
        let batch = TurnBroadcasts(bytes, entries)
        bytes = []
        entries = []
        return batch
    }
}
