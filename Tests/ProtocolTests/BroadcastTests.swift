import Bytes
import Protocol
import TestSupport
import Testing

/// Frame of a broadcast for one receiver.
struct SentFrame: Equatable {
    let kind: BroadcastFrame
    let bytes: [UInt8]
    var text: String { String(decoding: bytes, as: UTF8.self) }
}

@Suite(.within(minutes: 5)) struct BroadcastTests {
    private let id = "5f0c3b1e-6a55-4d5c-9a44-0d9a1f6e7c11"

    private func send(
        _ form: BroadcastForm, _ version: SerializerVersion, event: String = "m", payload: [UInt8],
        topic: String = "realtime:r", id: String = "", isReplayed: Bool = false, joinRef: String = ""
    ) -> SentFrame {
        var writer = ByteWriter()
        let event = Array(event.utf8)
        let id = Array(id.utf8)
        let broadcast = Broadcast(
            form, event: event.span.bytes, payload: payload.span.bytes, id: id.span.bytes, isReplayed: isReplayed)
        let kind = MessageEncoder(version).appendBroadcast(
            broadcast, topic: Array(topic.utf8).span.bytes, joinRef: Array(joinRef.utf8).span.bytes, to: &writer)
        return SentFrame(kind: kind, bytes: writer.copied())
    }

    private func send(
        _ form: BroadcastForm, _ version: SerializerVersion, event: String = "m", _ payload: String,
        topic: String = "realtime:r", id: String = "", isReplayed: Bool = false, joinRef: String = ""
    ) -> SentFrame {
        send(
            form, version, event: event, payload: Array(payload.utf8), topic: topic, id: id, isReplayed: isReplayed,
            joinRef: joinRef)
    }

    /// Returns the frames that receivers of both protocol versions get for a client's frame.
    private func relay(_ frame: [UInt8], isBinary: Bool, from version: SerializerVersion) throws -> [SentFrame] {
        var decoder = MessageDecoder(maximumTopicBytes: 1024, maximumRefBytes: 64)
        if isBinary { return try frames(of: try decoder.decodeBinary(frame.span.bytes, version)) }
        return try frames(of: try decoder.decodeText(frame.span.bytes, version))
    }

    private func frames(of message: borrowing ClientMessage) throws -> [SentFrame] {
        let broadcast = try Broadcast.said(by: message)
        var frames: [SentFrame] = []
        for receiver in [SerializerVersion.v1, .v2] {
            var writer = ByteWriter()
            let kind = MessageEncoder(receiver).appendBroadcast(broadcast, topic: message.topic, to: &writer)
            frames.append(SentFrame(kind: kind, bytes: writer.copied()))
        }
        return frames
    }

    private let pushed: [UInt8] = [
        0x03, 0x01, 0x01, 0x0A, 0x01, 0x00, 0x01, 0x31, 0x37, 0x72, 0x65, 0x61, 0x6C, 0x74, 0x69, 0x6D, 0x65, 0x3A,
        0x72, 0x6D, 0x7B, 0x22, 0x61, 0x22, 0x3A, 0x31, 0x7D,
    ]

    @Test func `kind 3 with JSON becomes kind 4, and an object for version 1`() throws {
        let frames = try relay(pushed, isBinary: true, from: .v2)
        #expect(
            frames[0].text
                == #"{"topic":"realtime:r","event":"broadcast","#
                + #""payload":{"event":"m","payload":{"a":1},"type":"broadcast"},"ref":null}"#)
        #expect(frames[0].kind == .text && frames[1].kind == .binary)
        #expect(frames[1].bytes == [4, 10, 1, 0, 1] + Array(#"realtime:rm{"a":1}"#.utf8))
    }

    @Test func `the worked example of kind 4 with metadata`() {
        let frame = send(.json, .v2, #"{"a":1}"#, id: "x")
        #expect(
            frame.bytes == [
                0x04, 0x0A, 0x01, 0x0A, 0x01, 0x72, 0x65, 0x61, 0x6C, 0x74, 0x69, 0x6D, 0x65, 0x3A, 0x72, 0x6D, 0x7B,
                0x22, 0x69, 0x64, 0x22, 0x3A, 0x22, 0x78, 0x22, 0x7D, 0x7B, 0x22, 0x61, 0x22, 0x3A, 0x31, 0x7D,
            ])
    }

    @Test func `kind 3 with bytes becomes kind 4, and nothing for version 1`() throws {
        var frame = pushed
        frame[6] = 0
        frame += [0, 255]
        let frames = try relay(frame, isBinary: true, from: .v2)
        #expect(frames[0] == SentFrame(kind: .none, bytes: []))
        #expect(frames[1].bytes == [4, 10, 1, 0, 0] + Array(#"realtime:rm{"a":1}"#.utf8) + [0, 255])
    }

    @Test func `metadata of a push does not go on`() throws {
        var frame: [UInt8] = [3, 0, 0, 1, 1, 7, 1]
        frame += Array(#"tm{"a":1}[ 1 ]"#.utf8)
        let frames = try relay(frame, isBinary: true, from: .v2)
        #expect(frames[1].bytes == [4, 1, 1, 0, 1] + Array("tm[ 1 ]".utf8))
    }

    @Test(arguments: SerializerVersion.allCases)
    func `a text push goes on verbatim, whatever else is in it`(version: SerializerVersion) throws {
        let payload = #"{ "type":"broadcast", "event":"é\u00e9","payload":{"x":1.50},"mine":[ ],"type":2}"#
        let text =
            version == .v1
            ? #"{"topic":"realtime:r","event":"broadcast","payload":\#(payload),"ref":"7"}"#
            : #"["3","7","realtime:r","broadcast",\#(payload)]"#
        let frames = try relay(Array(text.utf8), isBinary: false, from: version)
        #expect(
            frames[0].text == #"{"topic":"realtime:r","event":"broadcast","payload":\#(payload),"ref":null}"#)
        #expect(frames[1].text == #"[null,null,"realtime:r","broadcast",\#(payload)]"#)
        #expect(frames.allSatisfy { $0.kind == .text })
    }

    @Test(arguments: ["null", "[]", #""{}""#, "1", "true"])
    func `trap 6: a text push whose payload is no object is not sent`(payload: String) throws {
        let text = Array(#"["3","7","realtime:r","broadcast", \#(payload)]"#.utf8)
        #expect(throws: BroadcastError.notAnObject) { try relay(text, isBinary: false, from: .v2) }
    }

    @Test(arguments: ["", "{", #"{"a":1} x"#, "{'a':1}", "\u{1}"])
    func `JSON that is none is not sent, as no text could hold it`(payload: String) throws {
        let frame = [3, 0, 0, 1, 1, 0, 1] + Array("tm".utf8) + Array(payload.utf8)
        #expect(throws: BroadcastError.notJSON) { try relay(frame, isBinary: true, from: .v2) }
    }

    @Test func `a push of the old kind is not sent`() throws {
        let frame: [UInt8] = [0, 0, 0, 1, 9] + Array("tbroadcast{}".utf8)
        #expect(throws: BroadcastError.opaque) { try relay(frame, isBinary: true, from: .v2) }
    }

    @Test func `a REST batch is text for everybody`() {
        let payload = #"{"payload":{"x": 1},"event":"m","type":"broadcast"}"#
        let named = #"{"payload":{"x": 1},"event":"m","type":"broadcast","meta":{"id":"\#(id)"}}"#
        let v2 = send(.batch, .v2, #"{"x": 1}"#)
        #expect(v2.kind == .text && v2.text == #"[null,null,"realtime:r","broadcast",\#(payload)]"#)
        #expect(
            send(.batch, .v1, #"{"x": 1}"#, id: id).text
                == #"{"topic":"realtime:r","event":"broadcast","payload":\#(named),"ref":null}"#)
        #expect(send(.batch, .v2, #"{"x": 1}"#, id: id).text.hasSuffix("\(named)]"))
    }

    @Test func `a row of the database has its id as metadata`() {
        let metadata = #"{"id":"\#(id)"}"#
        let v2 = send(.json, .v2, "{}", id: id)
        #expect(v2.bytes == [4, 10, 1, 45, 1] + Array("realtime:rm\(metadata){}".utf8) && metadata.utf8.count == 45)
        #expect(
            send(.json, .v1, "{}", id: id).text
                == #"{"topic":"realtime:r","event":"broadcast","#
                + #""payload":{"event":"m","payload":{},"type":"broadcast","meta":\#(metadata)},"ref":null}"#)
        #expect(send(.binary, .v2, "xyz", id: id).bytes == [4, 10, 1, 45, 0] + Array("realtime:rm\(metadata)xyz".utf8))
        #expect(send(.binary, .v1, "xyz", id: id).kind == .none)
    }

    @Test func `what is replayed is text, and has the join_ref of who joined`() {
        let meta = #"{"replayed":true,"id":"\#(id)"}"#
        let payload = #"{"event":"note","payload":{"t":"hi"},"type":"broadcast","meta":\#(meta)}"#
        let v2 = send(.json, .v2, event: "note", #"{"t":"hi"}"#, id: id, isReplayed: true, joinRef: "\"3\"")
        #expect(v2.kind == .text && v2.text == #"["3",null,"realtime:r","broadcast",\#(payload)]"#)
        let v1 = send(.json, .v1, event: "note", #"{"t":"hi"}"#, id: id, isReplayed: true, joinRef: "\"3\"")
        #expect(v1.text == #"{"topic":"realtime:r","event":"broadcast","payload":\#(payload),"ref":null}"#)
        let binary = send(.binary, .v2, "x", id: id, isReplayed: true, joinRef: "\"3\"")
        #expect(
            binary.kind == .binary
                && binary.bytes == [4, 10, 1, UInt8(meta.utf8.count), 0] + Array("realtime:rm\(meta)x".utf8))
        #expect(send(.binary, .v1, "x", id: id, isReplayed: true).kind == .none)
        #expect(send(.json, .v1, "{}", isReplayed: true).text.contains(#""meta":{"replayed":true}}"#))
    }

    @Test func `trap 5: what is too long for one byte falls back to text, counted in bytes`() {
        let fits = String(repeating: "é", count: 127) + "e"
        let tooLong = String(repeating: "é", count: 128)
        #expect(send(.json, .v2, event: fits, "{}").kind == .binary)
        #expect(
            send(.json, .v2, event: tooLong, "{}").text
                == #"[null,null,"realtime:r","broadcast",{"event":"\#(tooLong)","payload":{},"type":"broadcast"}]"#)
        #expect(send(.json, .v2, "{}", topic: fits).bytes[1] == 255)
        #expect(send(.json, .v2, "{}", topic: tooLong).kind == .text)
        #expect(send(.json, .v2, "{}", id: String(repeating: "a", count: 246)).bytes[3] == 255)
        #expect(send(.json, .v2, "{}", id: String(repeating: "a", count: 247)).kind == .text)
        #expect(send(.binary, .v2, "{}", topic: tooLong) == SentFrame(kind: .none, bytes: []))
        #expect(send(.binary, .v2, event: tooLong, "{}") == SentFrame(kind: .none, bytes: []))
    }

    @Test func `an event's name is escaped in text and raw in bytes`() {
        #expect(send(.json, .v1, event: "a\"\n", "1").text.contains(#""event":"a\"\n""#))
        #expect(send(.json, .v2, event: "a\"\n", "1").bytes == [4, 10, 3, 0, 1] + Array("realtime:ra\"\n1".utf8))
    }
}
