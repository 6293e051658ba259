import Bytes
import Change
import TestSupport
import Testing

@testable import Messages

/// Columns of a message in the table.
private let current = [
    "topic", "extension", "payload", "event", "private", "updated_at", "inserted_at", "id", "binary_payload",
]

private func relation(_ columns: [String], named name: String = "messages_2026_03_01") -> Relation {
    Relation(
        oid: 7, schema: "realtime", name: name, identity: .primaryKey,
        columns: columns.map { Column(name: $0, typeOID: 25, typeName: "text", isIdentity: false, isPrimaryKey: false) }
    )
}

/// Message in plain values.
private struct Plain: Equatable {
    var id = "5f0c3b1e-6a55-4d5c-9a44-0d9a1f6e7c11"
    var topic = "room:1"
    var event = "note"
    var json: String?
    var bytes: [UInt8]?
    var isPrivate = true
    var insertedAt: Int64 = 1_772_359_200_123_456
    var isBroadcast = true
}

private enum Outcome: Equatable {
    case message(Plain)
    case flawed(DatabaseMessage.Flaw)
    case noInsert
    case unreadable
}

private let row: [String: String] = [
    "topic": "room:1", "extension": "broadcast", "payload": #"{"t": "hi"}"#, "event": "note", "private": "t",
    "updated_at": "2026-03-01 10:00:00", "inserted_at": "2026-03-01 10:00:00.123456",
    "id": "5f0c3b1e-6a55-4d5c-9a44-0d9a1f6e7c11",
]

private func stored(_ operation: Operation, _ image: [UInt8]) -> [UInt8] {
    var writer = ByteWriter()
    let info = TransactionInfo(xid: 1, commitLSN: LSN(1), endLSN: LSN(2), commitTime: 0)
    TransactionCodec.begin(info, firstIndex: 0, to: &writer)
    TransactionCodec.append(
        operation, relation: 1, oldImage: operation == .delete ? .full : .none,
        old: operation == .delete ? image.span.bytes : RawSpan(),
        new: operation == .delete ? RawSpan() : image.span.bytes,
        to: &writer)
    TransactionCodec.finish(endLSN: LSN(2), changeCount: 1, in: &writer)
    return writer.copied()
}

private func image(_ values: [String?]) -> [UInt8] {
    var writer = ByteWriter()
    writer.append(big: UInt16(values.count))
    for value in values {
        guard let value else {
            writer.append(UInt8(ascii: "n"))
            continue
        }
        writer.append(UInt8(ascii: "t"))
        writer.append(big: UInt32(value.utf8.count))
        writer.append(value)
    }
    return writer.copied()
}

private func read(
    _ row: [String: String], columns: [String] = current, _ operation: Operation = .insert
) throws -> Outcome {
    let layout = try #require(MessageLayout(relation(columns)))
    return try read(stored(operation, image(columns.map { row[$0] })), layout)
}

private func read(_ stored: [UInt8], _ layout: MessageLayout) throws -> Outcome {
    var part = try TransactionPart(stored.span.bytes)
    guard let change = try part.next() else { return .unreadable }
    do throws(ByteError) {
        switch try DatabaseMessage.read(change, layout) {
        case .noInsert: return .noInsert
        case .flawed(let flaw): return .flawed(flaw)
        case .message(let message):
            var plain = Plain(
                id: message.id.text, topic: message.topic.text, event: message.event.text,
                isPrivate: message.isPrivate, insertedAt: message.insertedAt, isBroadcast: message.isBroadcast)
            if message.isBinary {
                var bytes = ByteWriter()
                message.appendBinary(to: &bytes)
                plain.bytes = bytes.copied()
                #expect(message.payloadByteCount == bytes.count)
            } else {
                plain.json = message.json.text
                #expect(message.payloadByteCount == message.json.byteCount)
            }
            return .message(plain)
        }
    } catch { return .unreadable }
}

@Suite(.within(minutes: 10)) struct DatabaseMessageTests {
    @Test func `a row is a message`() throws {
        #expect(try read(row) == .message(Plain(json: #"{"t": "hi"}"#)))
    }

    @Test func `columns are found by name`() throws {
        for columns in [current.reversed(), current.sorted(), ["more"] + current] {
            #expect(try read(row, columns: columns) == .message(Plain(json: #"{"t": "hi"}"#)))
        }
    }

    @Test func `an older table has no binary payload`() throws {
        #expect(try read(row, columns: current.dropLast()) == .message(Plain(json: #"{"t": "hi"}"#)))
    }

    @Test func `bytes are decoded`() throws {
        var binary = row
        binary["payload"] = nil
        binary["binary_payload"] = #"\x00ff10Ab"#
        #expect(try read(binary) == .message(Plain(bytes: [0, 255, 16, 0xab])))
        binary["binary_payload"] = #"\x"#
        #expect(try read(binary) == .message(Plain(bytes: [])))
    }

    @Test(arguments: [#"\x0"#, #"\xgg"#, "", "abc", #"\000"#])
    func `bytes in another form are no message`(text: String) throws {
        var binary = row
        binary["payload"] = nil
        binary["binary_payload"] = text
        #expect(try read(binary) == .flawed(.notBytes))
    }

    @Test(
        arguments: [
            ("id", .noID), ("topic", .noTopic), ("event", .noEvent), ("payload", .noPayload), ("private", .noNamespace),
            ("inserted_at", .noTime),
        ] as [(String, DatabaseMessage.Flaw)])
    func `what a message must have`(column: String, flaw: DatabaseMessage.Flaw) throws {
        var lacking = row
        lacking[column] = nil
        #expect(try read(lacking) == .flawed(flaw))
    }

    @Test func `texts may be empty, and namespaces are two`() throws {
        var odd = row
        odd["topic"] = ""
        odd["event"] = ""
        odd["private"] = "f"
        odd["extension"] = "presence"
        let expected = Plain(topic: "", event: "", json: row["payload"], isPrivate: false, isBroadcast: false)
        #expect(try read(odd) == .message(expected))
    }

    @Test(
        arguments: [
            ("1970-01-01 00:00:00", 0), ("1970-01-01 00:00:00.5", 500_000), ("1969-12-31 23:59:59.999999", -1),
            ("2026-03-01 10:00:00.123456", 1_772_359_200_123_456), ("2026-03-01 10:00:00+02", 1_772_352_000_000_000),
            ("2024-02-29 24:00:00", 1_709_251_200_000_000),
        ] as [(String, Int64)])
    func `moments are read`(text: String, time: Int64) throws {
        var timed = row
        timed["inserted_at"] = text
        #expect(try read(timed) == .message(Plain(json: row["payload"], insertedAt: time)))
    }

    @Test(
        arguments: [
            "infinity", "-infinity", "", "2026-02-30 10:00:00", "0044-03-15 10:00:00 BC", "12026-03-01 10:00:00",
            "2026-03-01T10:00:00", "2026-03-01 10:00", "2026-03-01 10:00:00 x",
        ])
    func `what is no moment is a flaw`(text: String) throws {
        var timed = row
        timed["inserted_at"] = text
        #expect(try read(timed) == .flawed(.noTime))
    }

    @Test func `only inserts are messages`() throws {
        for operation in [Operation.update, .delete, .truncate] { #expect(try read(row, operation) == .noInsert) }
    }

    @Test func `a row of another width is refused`() throws {
        let layout = try #require(MessageLayout(relation(current)))
        #expect(try read(stored(.insert, image(["a", "b"])), layout) == .unreadable)
    }

    @Test func `other tables have no layout`() {
        #expect(MessageLayout(relation(current, named: "subscription")) == nil)
        #expect(MessageLayout(relation(["topic", "payload", "id"])) == nil)
        var layouts = MessageLayouts()
        #expect(!layouts.learn(1, relation(current, named: "todos")) && layouts.isEmpty)
        #expect(layouts.learn(2, relation(current)) && layouts.layout(of: 2) != nil && layouts.layout(of: 1) == nil)
    }

    @Test func `arbitrary rows are refused or read, and nothing crashes`() throws {
        let layout = try #require(MessageLayout(relation(current)))
        let whole = image(current.map { row[$0] })
        var state: UInt64 = 88_172_645_463_325_252
        for _ in 0..<20_000 {
            var bytes = whole
            for _ in 0..<4 {
                state ^= state << 13
                state ^= state >> 7
                state ^= state << 17
                bytes[Int(state % UInt64(bytes.count))] = UInt8(truncatingIfNeeded: state >> 24)
            }
            _ = try read(stored(.insert, bytes), layout)
        }
    }
}
