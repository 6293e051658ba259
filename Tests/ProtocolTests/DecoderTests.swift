import Bytes
import Protocol
import TestSupport
import Testing

/// Decoded message as plain values.
struct Decoded: Equatable {
    var event: ClientEvent
    var form: PayloadForm
    var topic: String
    var name: String
    var userEvent: String
    var joinRef: String
    var ref: String
    var payload: [UInt8]

    init(_ message: borrowing ClientMessage) {
        event = message.event
        form = message.form
        topic = message.topic.text
        name = message.eventName.text
        userEvent = message.userEvent.text
        joinRef = message.joinRef.text
        ref = message.ref.text
        payload = message.payload.copied()
    }

    var payloadText: String { String(decoding: payload, as: UTF8.self) }

    static func text(_ frame: [UInt8], _ version: SerializerVersion) throws(MessageError) -> Decoded {
        var decoder = MessageDecoder(maximumTopicBytes: 64, maximumRefBytes: 20)
        return Decoded(try decoder.decodeText(frame.span.bytes, version))
    }

    static func text(_ frame: String, _ version: SerializerVersion) throws(MessageError) -> Decoded {
        try text(Array(frame.utf8), version)
    }

    static func binary(_ frame: [UInt8], _ version: SerializerVersion = .v2) throws(MessageError) -> Decoded {
        var decoder = MessageDecoder(maximumTopicBytes: 64, maximumRefBytes: 20)
        return Decoded(try decoder.decodeBinary(frame.span.bytes, version))
    }
}

/// Returns the bytes of pairs of hexadecimal digits.
func hex(_ text: String) -> [UInt8] { text.split(separator: " ").compactMap { UInt8($0, radix: 16) } }

@Suite(.within(minutes: 5)) struct DecoderTests {
    @Test(
        arguments: [
            (nil, .v1), ("1.0.0", .v1), ("1.0.7", .v1), ("2.0.0", .v2), ("2.0.10", .v2), ("1.1.0", nil), ("2.1.0", nil),
            ("3.0.0", nil), ("1.0", nil), ("2", nil), ("", nil), ("x", nil), ("1.0.01", nil), ("1.0.0.0", nil),
            ("2.0.-1", nil), ("2.0.", nil), (" 2.0.0", nil),
        ] as [(String?, SerializerVersion?)])
    func `the version is one of two, and 1 when it is not said`(vsn: String?, expected: SerializerVersion?) {
        #expect(SerializerVersion(vsn: vsn) == expected)
    }

    @Test func `reads an object of version 1`() throws {
        let message = try Decoded.text(
            #"{"topic":"realtime:room:1","event":"phx_join","payload":{"config":{}},"ref":"1","join_ref":"1"}"#, .v1)
        #expect(message.event == .join)
        #expect(message.topic == "realtime:room:1")
        #expect(message.payloadText == #"{"config":{}}"#)
        #expect(message.ref == #""1""#)
        #expect(message.joinRef == #""1""#)
    }

    @Test func `reads an array of version 2`() throws {
        let message = try Decoded.text(
            #"["3","9","realtime:room:1","broadcast", {"type":"broadcast", "event":"cursor"} ]"#, .v2)
        #expect(message.event == .broadcast)
        #expect(message.form == .json)
        #expect(message.joinRef == #""3""#)
        #expect(message.ref == #""9""#)
        #expect(message.payloadText == #"{"type":"broadcast", "event":"cursor"}"#)
    }

    @Test func `reads the binary broadcast of the specification`() throws {
        let message = try Decoded.binary(
            hex("03 01 01 0A 01 00 01 31 37 72 65 61 6C 74 69 6D 65 3A 72 6D 7B 22 61 22 3A 31 7D"))
        #expect(message.event == .broadcast)
        #expect(message.form == .userJSON)
        #expect(message.topic == "realtime:r")
        #expect(message.userEvent == "m")
        #expect(message.joinRef == #""1""#)
        #expect(message.ref == #""7""#)
        #expect(message.payloadText == #"{"a":1}"#)
    }

    @Test func `a ref comes back as it was written`() throws {
        for ref in ["\"\\u0031\"", "7", "-1.50e3", "\"a\\\"b\"", "\"\""] {
            #expect(try Decoded.text("[\(ref),\(ref),\"t\",\"e\",{}]", .v2).ref == ref)
            #expect(try Decoded.text("{\"topic\":\"t\",\"event\":\"e\",\"payload\":0,\"ref\":\(ref)}", .v1).ref == ref)
        }
        #expect(try Decoded.text("[null,null,\"t\",\"e\",{}]", .v2).ref == "")
    }

    @Test func `topic and event are read with their escapes undone`() throws {
        let message = try Decoded.text(#"[null,"1","realtime:\/\u00e9\ud83d\ude42","phx\u005fleave",{}]"#, .v2)
        #expect(message.topic == "realtime:/é🙂")
        #expect(message.event == .leave)
    }

    @Test func `of a name that comes twice the last one counts`() throws {
        let message = try Decoded.text(
            #"{"topic":"a","topic":"b","event":"x","event":"heartbeat","payload":1,"payload":[2],"ref":"1","ref":null}"#,
            .v1)
        #expect(message.topic == "b")
        #expect(message.event == .heartbeat)
        #expect(message.payloadText == "[2]")
        #expect(message.ref == "")
    }

    @Test func `elements behind the fifth are ignored`() throws {
        let message = try Decoded.text(#"["1","2","t","presence",{"a":1},[{}],7]"#, .v2)
        #expect(message.event == .presence)
        #expect(message.payloadText == #"{"a":1}"#)
    }

    @Test(
        arguments: [
            ("", .notJSON(offset: 0)), ("x", .notJSON(offset: 0)), ("[]", .notAnObject), ("7", .notAnObject),
            ("{}", .missing(.topic)), (#"{"topic":"t","payload":1,"ref":"1"}"#, .missing(.event)),
            (#"{"topic":"t","event":"e","ref":"1"}"#, .missing(.payload)),
            (#"{"topic":"t","event":"e","payload":{}}"#, .missing(.ref)),
            (#"{"topic":7,"event":"e","payload":{},"ref":"1"}"#, .wrongType(.topic)),
            (#"{"topic":"t","event":null,"payload":{},"ref":"1"}"#, .wrongType(.event)),
            (#"{"topic":"t","event":"e","payload":{},"ref":{}}"#, .wrongType(.ref)),
            (#"{"topic":"t","event":"e","payload":{},"ref":"1","join_ref":[]}"#, .wrongType(.joinRef)),
            (#"{"topic":"t","event":"e","payload":{},"ref":"1"} x"#, .notJSON(offset: 49)),
            (#"{"topic":"t","event":"e","payload":{},"ref":"123456789012345678901"}"#, .tooLong(.ref)),
        ] as [(String, MessageError)])
    func `says what is wrong with a message of version 1`(frame: String, expected: MessageError) {
        #expect(throws: expected) { try Decoded.text(frame, .v1) }
    }

    @Test(
        arguments: [
            ("", .notJSON(offset: 0)), ("{}", .notAnArray), ("null", .notAnArray), ("[]", .tooFewElements),
            (#"["1","1","t","e"]"#, .tooFewElements), (#"["1","1",null,"e",{}]"#, .wrongType(.topic)),
            (#"["1","1","t",5,{}]"#, .wrongType(.event)), (#"["1",true,"t","e",{}]"#, .wrongType(.ref)),
            (#"[["1"],"1","t","e",{}]"#, .wrongType(.joinRef)), (#"["1","1","t","e",{}"#, .notJSON(offset: 19)),
            (#"["1","1","t","e",{},{]"#, .notJSON(offset: 21)), (#"["1","1","\ud800","e",{}]"#, .notJSON(offset: 16)),
            ("[\"1\",\"1\",\"" + String(repeating: "é", count: 33) + "\",\"e\",{}]", .tooLong(.topic)),
        ] as [(String, MessageError)])
    func `says what is wrong with a message of version 2`(frame: String, expected: MessageError) {
        #expect(throws: expected) { try Decoded.text(frame, .v2) }
    }

    @Test func `numbers of any size pass through`() throws {
        let number = String(repeating: "9", count: 5000) + "e99999"
        #expect(try Decoded.text("[null,\"1\",\"t\",\"broadcast\",{\"n\":\(number)}]", .v2).payload.count == 5012)
    }

    @Test func `a message nested without end is refused`() {
        let deep = String(repeating: "[", count: 100_000)
        #expect(throws: MessageError.self) { try Decoded.text("[null,null,\"t\",\"e\"," + deep, .v2) }
        #expect(throws: MessageError.self) { try Decoded.text(deep, .v2) }
    }

    @Test func `bytes that are not UTF-8 are refused`() {
        #expect(throws: MessageError.self) {
            try Decoded.text(Array("[null,null,\"".utf8) + [0xff] + Array("\",\"e\",{}]".utf8), .v2)
        }
        #expect(throws: MessageError.notUTF8(.topic)) { try Decoded.binary([3, 0, 0, 1, 1, 0, 0, 0xff, 0x61]) }
        #expect(throws: MessageError.notUTF8(.ref)) { try Decoded.binary([3, 0, 1, 1, 1, 0, 0, 0xc0, 0x61, 0x61]) }
    }

    @Test func `a binary push is read as it is`() throws {
        let message = try Decoded.binary([0, 1, 2, 1, 3] + Array("112tabc".utf8) + [0, 255])
        #expect(message.form == .opaque)
        #expect(message.joinRef == #""1""#)
        #expect(message.ref == #""12""#)
        #expect(message.name == "abc")
        #expect(message.event == .other)
        #expect(message.payload == [0, 255])
    }

    @Test func `a binary broadcast without refs has none, and its metadata is ignored`() throws {
        let message = try Decoded.binary([3, 0, 0, 1, 1, 2, 0] + Array("te{}".utf8) + [1, 2, 3])
        #expect(message.ref == "" && message.joinRef == "")
        #expect(message.form == .userBinary)
        #expect(message.payload == [1, 2, 3])
    }

    @Test func `a binary ref is quoted where it is answered in text`() throws {
        #expect(try Decoded.binary([3, 0, 1, 1, 1, 0, 0] + Array("\"te".utf8)).ref == #""\"""#)
    }

    @Test func `binary frames of other kinds, too short, or for version 1 are refused`() {
        #expect(throws: MessageError.truncated) { try Decoded.binary([]) }
        for kind in [1, 2, 4, 5, 255] as [UInt8] {
            #expect(throws: MessageError.unknownKind(kind)) { try Decoded.binary([kind, 0, 0, 0, 0, 0, 0]) }
        }
        #expect(throws: MessageError.badMetadata) { try Decoded.binary([3, 0, 0, 1, 1, 1, 0] + Array("te{".utf8)) }
        #expect(throws: MessageError.binaryInVersion1) { try Decoded.binary([3, 0, 0, 0, 0, 0, 0], .v1) }
    }

    @Test func `a binary frame cut anywhere in its head is refused`() throws {
        let frame = hex("03 01 01 0A 01 00 01 31 37 72 65 61 6C 74 69 6D 65 3A 72 6D")
        for length in 0..<frame.count {
            #expect(throws: MessageError.truncated) { try Decoded.binary(Array(frame.prefix(length))) }
        }
        #expect(try Decoded.binary(frame).payload.isEmpty)
    }

    @Test func `a text frame cut anywhere is refused`() {
        let frames: [(String, SerializerVersion)] = [
            (#"["1","2","t","phx_join",{"config":{"private":true}}]"#, .v2),
            (#"{"topic":"t","event":"e","payload":{"a":[1,"x"]},"ref":null}"#, .v1),
        ]
        for (frame, version) in frames {
            for length in 0..<frame.utf8.count {
                #expect(throws: MessageError.self) { try Decoded.text(Array(frame.utf8.prefix(length)), version) }
            }
        }
    }
}
