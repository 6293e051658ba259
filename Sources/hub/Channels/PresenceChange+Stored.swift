import Bytes

/// Stored form of presence changes, for other nodes: number u32, then for each change the tracker, the topic, the key
/// and the presences that begin and end.
extension PresenceChange {
    public static func append(_ changes: [PresenceChange], to writer: inout ByteWriter) {
        writer.append(little: UInt32(changes.count))
        for change in changes { change.append(to: &writer) }
    }

    private func append(to writer: inout ByteWriter) {
        writer.append(little: tracker.loop)
        writer.append(little: tracker.channel)
        writer.append(UInt8(topic.isPrivate ? 1 : 0))
        Self.append(topic.subTopic.copied(), to: &writer)
        Self.append(key, to: &writer)
        for meta in [joined, left] {
            writer.append(UInt8(meta == nil ? 0 : 1))
            meta?.append(to: &writer)
        }
    }

    private static func append(_ bytes: [UInt8], to writer: inout ByteWriter) {
        writer.append(little: UInt32(bytes.count))
        writer.append(bytes)
    }

    /// Reads the stored form; nil if it is invalid.
    public static func list(_ reader: inout ByteReader) -> [PresenceChange]? {
        do throws(ByteError) {
            let count = Int(try reader.littleUInt32())
            guard count <= reader.remaining / 20 else { return nil }
            var changes: [PresenceChange] = []
            for _ in 0..<count { changes.append(try PresenceChange(&reader)) }
            return changes
        } catch {
            return nil
        }
    }

    private init(_ reader: inout ByteReader) throws(ByteError) {
        let tracker = PresenceTracker(loop: try reader.littleUInt16(), channel: try reader.littleUInt64())
        let isPrivate = try reader.uint8() == 1
        let topic = TopicName(try reader.span(Int(reader.littleUInt32())), isPrivate: isPrivate)
        let key = try reader.span(Int(reader.littleUInt32())).copied()
        let joined = try reader.uint8() == 1 ? try PresenceMeta(&reader) : nil
        let left = try reader.uint8() == 1 ? try PresenceMeta(&reader) : nil
        self.init(tracker: tracker, topic: topic, key: key, joined: joined, left: left)
    }
}

extension PresenceMeta {
    fileprivate func append(to writer: inout ByteWriter) {
        ref.appendStored(to: &writer)
        writer.append(little: start)
        writer.append(little: UInt32(json.count))
        writer.append(json)
    }

    fileprivate init(_ reader: inout ByteReader) throws(ByteError) {
        let ref = try PresenceRef(stored: &reader)
        let start = try reader.littleUInt16()
        let json = try reader.span(Int(reader.littleUInt32())).copied()
        guard json.first == UInt8(ascii: "{"), json.last == UInt8(ascii: "}"), Int(start) <= json.count else {
            throw ByteError(expected: "a presence", offset: reader.offset)
        }
        self.init(stored: ref, start, json)
    }
}

extension PresenceRef {
    fileprivate func appendStored(to writer: inout ByteWriter) {
        writer.append(little: time)
        writer.append(little: origin)
    }

    fileprivate init(stored reader: inout ByteReader) throws(ByteError) {
        self.init(time: try reader.littleUInt64(), origin: try reader.littleUInt32())
    }
}
