import Bytes
import Change
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct PresenceCodecTests {
    private static func mark(_ event: PresenceMark.Event, _ topic: String, meta: String = "{}") -> PresenceMark {
        PresenceMark(
            event: event, isPrivate: event == .left, time: 1_770_000_000_000_000, topic: Array(topic.utf8),
            key: Array("user-1".utf8), ref: Array("GKtE1a2b3c4d5e6f".utf8), meta: Array(meta.utf8))
    }

    private static let marks = [
        mark(.joined, "room:1", meta: #"{"name":"Ünal"}"#), mark(.left, ""), mark(.updated, "room:2", meta: ""),
    ]

    private static func encoded(_ marks: [PresenceMark]) -> [UInt8] {
        var writer = ByteWriter()
        PresenceCodec.encode(marks, to: &writer)
        return writer.copied()
    }

    @Test func `comes back as it was`() throws {
        #expect(try PresenceCodec.decode(Self.encoded(Self.marks).span.bytes) == Self.marks)
        #expect(try PresenceCodec.decode(Self.encoded([]).span.bytes) == [])
    }

    @Test func `tells how much room a mark takes`() {
        let empty = Self.encoded([]).count
        for mark in Self.marks { #expect(Self.encoded([mark]).count == empty + mark.byteCount) }
    }

    @Test func `refuses every truncation, and what follows the end`() {
        let bytes = Self.encoded(Self.marks)
        for count in 0..<bytes.count {
            #expect(throws: ByteError.self) { _ = try PresenceCodec.decode(Array(bytes.prefix(count)).span.bytes) }
        }
        #expect(throws: ByteError.self) { _ = try PresenceCodec.decode((bytes + [0]).span.bytes) }
    }

    @Test(arguments: [(0, 2), (5, 0), (5, 5), (6, 2)])
    func `refuses another version, an unknown event, and a flag that is none`(place: Int, value: UInt8) {
        var bytes = Self.encoded(Self.marks)
        bytes[place] = value
        #expect(throws: ByteError.self) { _ = try PresenceCodec.decode(bytes.span.bytes) }
    }

    @Test func `arbitrary bytes are refused or come back as they were`() {
        var state: UInt64 = 88_172_645_463_325_252
        for _ in 0..<20_000 {
            var bytes = Self.encoded(Self.marks)
            for _ in 0..<3 {
                state ^= state << 13
                state ^= state >> 7
                state ^= state << 17
                bytes[Int(state % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: state >> 32)
            }
            guard let marks = try? PresenceCodec.decode(bytes.span.bytes) else { continue }
            #expect(Self.encoded(marks) == bytes)
        }
    }

    @Test func `a topic longer than its length can say is not storable`() {
        var mark = Self.marks[0]
        mark.topic = [UInt8](repeating: 97, count: 65_536)
        #expect(!PresenceCodec.isStorable(mark))
        mark.topic.removeLast()
        #expect(PresenceCodec.isStorable(mark))
    }
}

@Suite(.within(minutes: 5)) struct MessageTableTests {
    private func relation(_ schema: String, _ name: String) -> Relation {
        Relation(oid: 1, schema: schema, name: name, identity: .primaryKey, columns: [])
    }

    @Test(arguments: ["messages", "messages_2026_03_01", "messages_1999_12_31"])
    func `the table and its partitions are one`(name: String) {
        #expect(MessageTable.holds(relation("realtime", name)))
        #expect(!MessageTable.holds(relation("public", name)))
    }

    @Test(
        arguments: [
            "messages_", "messages_2026_03", "messages_2026-03-01", "messages_2026_03_011", "messages_old", "message",
            "messages_٢٠٢٦_٠٣_٠١", "messages2026_03_01", "subscription",
        ])
    func `what only looks like one is none`(name: String) {
        #expect(!MessageTable.holds(relation("realtime", name)))
    }
}
