import Bytes
import FuzzSupport
import Protocol

@_cdecl("LLVMFuzzerInitialize")
public func initialize(_ count: UnsafeMutablePointer<CInt>, _ arguments: UnsafeRawPointer) -> CInt {
    writeSeeds(seeds.map { kind, text in [kind] + Array(text.utf8) } + binarySeeds.map { [2] + $0 })
    return 0
}

/// Fuzz target of the client protocol. Input: a byte that selects the version and kind of frame, then the frame. The
/// answer to a valid message must be a valid message. A join's values must give a reply that is JSON. A broadcast must
/// be a message in both versions. One kind is the body of a REST batch, which the hub must accept or refuse in JSON.
@_cdecl("LLVMFuzzerTestOneInput")
public func test(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = input(start, count)
    guard let pick = bytes.first else { return 0 }
    let frame = Array(bytes.dropFirst())
    var decoder = MessageDecoder(maximumTopicBytes: 1 << 10, maximumRefBytes: 256)
    do throws(MessageError) {
        switch pick % 4 {
        case 0: check(try decoder.decodeText(frame.span.bytes, .v1), .v1)
        case 1: check(try decoder.decodeText(frame.span.bytes, .v2), .v2)
        case 2: check(try decoder.decodeBinary(frame.span.bytes, .v2), .v2)
        default: checkBatch(frame)
        }
    } catch {
        // The message was refused, with a reason.
    }
    return 0
}

private func check(_ message: borrowing ClientMessage, _ version: SerializerVersion) {
    checkBroadcast(message)
    if case .track(let range) = PresenceRequest(message), !range.isEmpty {
        precondition(message.payload.byte(range.lowerBound) == UInt8(ascii: "{"), "what is tracked is no object")
    }
    var writer = ByteWriter()
    let encoder = MessageEncoder(version)
    if message.form == .json {
        let request = JoinRequest(message.payload, subTopic: message.topic, maximumBindings: 64)
        for binding in request.bindings {
            precondition(binding.id > 0 && binding.id < 1 << 31, "an id that is none: \(binding.id)")
        }
        encoder.appendJoinReply(
            request.bindings, topic: message.topic, joinRef: message.joinRef, ref: message.ref, to: &writer)
    } else {
        encoder.appendReply(.ok, topic: message.topic, joinRef: message.joinRef, ref: message.ref, to: &writer)
    }
    // The answer is nested one or two levels deeper than the input, so it may exceed the reader's limit.
    var depth = 0
    var deepest = 0
    for byte in writer.copied() {
        if byte == UInt8(ascii: "[") || byte == UInt8(ascii: "{") { depth += 1 }
        if byte == UInt8(ascii: "]") || byte == UInt8(ascii: "}") { depth -= 1 }
        deepest = max(deepest, depth)
    }
    if deepest >= JSONScanner.deepest { return }
    var again = MessageDecoder(maximumTopicBytes: 1 << 10, maximumRefBytes: 256)
    let ref = message.ref.copied()
    let topic = message.topic.copied()
    do throws(MessageError) {
        let reply = try again.decodeText(writer.bytes, version)
        precondition(reply.ref.copied() == ref && reply.topic.copied() == topic, "an answer to someone else")
    } catch {
        preconditionFailure("a reply that is no message (\(error)): \(writer.bytes.text)")
    }
}

/// Checks that the receivers of a broadcast can read its frame.
private func checkBroadcast(_ message: borrowing ClientMessage) {
    guard let broadcast = try? Broadcast.said(by: message) else { return }
    for version in SerializerVersion.allCases {
        var writer = ByteWriter()
        let kind = MessageEncoder(version).appendBroadcast(broadcast, topic: message.topic, to: &writer)
        precondition((kind == .none) == writer.isEmpty && (kind != .binary || version == .v2), "a frame for nobody")
        // In the frame, the payload is nested one or two levels deeper.
        guard kind == .text, isShallow(writer.bytes) else { continue }
        var decoder = MessageDecoder(maximumTopicBytes: 1 << 10, maximumRefBytes: 256)
        do throws(MessageError) {
            let sent = try decoder.decodeText(writer.bytes, version)
            precondition(sent.event == .broadcast && sent.payload.byte(0) == UInt8(ascii: "{"), "no broadcast")
        } catch {
            preconditionFailure("a broadcast that is no message (\(error)): \(writer.bytes.text)")
        }
    }
}

private func isShallow(_ json: RawSpan) -> Bool {
    var depth = 0
    for byte in json.copied() {
        if byte == UInt8(ascii: "[") || byte == UInt8(ascii: "{") { depth += 1 }
        if byte == UInt8(ascii: "]") || byte == UInt8(ascii: "}") { depth -= 1 }
        if depth >= JSONScanner.deepest { return false }
    }
    return true
}

private func checkBatch(_ body: [UInt8]) {
    do throws(BatchError) {
        let batch = try BroadcastBatch(body.span.bytes, maximumMessages: 100, maximumPayloadBytes: 1000)
        for message in batch.messages {
            precondition(body[message.payload.lowerBound] == UInt8(ascii: "{"), "a payload that is no object")
            precondition(!message.topic.isEmpty && !message.event.isEmpty, "a message to or of nothing")
        }
    } catch {
        guard case .invalid(let answer) = error else { return }
        var scanner = JSONScanner(answer.span.bytes)
        while let token = try? scanner.next(), token != .end {}
        precondition(scanner.offset == answer.count, "an answer that is no JSON")
    }
}

private let seeds: [(UInt8, String)] = [
    (0, #"{"topic":"realtime:room:1","event":"phx_join","payload":{"config":{}},"ref":"1","join_ref":"1"}"#),
    (0, #"{"topic":"phoenix","event":"heartbeat","payload":{},"ref":null}"#),
    (1, #"["3","9","realtime:room:1","broadcast",{"type":"broadcast","event":"cursor","payload":{"x":1,"y":2}}]"#),
    (
        1,
        #"["1","1","realtime:a","phx_join",{"config":{"broadcast":{"ack":"true","self":false,"replication_ready":0,"#
            + #""replay":{"since":1,"limit":2}},"presence":{"key":7,"enabled":true},"postgres_changes":["#
            + #"{"event":"*","schema":"public","table":"t","filter":"a=eq.\u00e9","select":["a",1]},null,{"x":[1.5e3]}],"#
            + #""private":"FALSE"},"access_token":"a.b.c","user_token":null}]"#
    ),
    (
        1,
        #"["1","1","realtime:a","phx_join",{"config":{"tidewire":{"replay":{"epoch":1,"offset":2,"limit":3},"#
            + #""limits":true}}}]"#
    ),
    (1, #"["3","11","realtime:a","presence",{"type":"presence","event":"track","payload":{"name":"C"}}]"#),
    (3, #"{"messages":[{"topic":"a","event":"b","payload":{"x":1},"private":"1","id":"x"},{}]}"#),
    (1, #"["1","2","realtime:public:todos:id=eq.7","phx_join",{"access_token":"sb_x"}, [], {}]"#),
]

private let binarySeeds: [[UInt8]] = [
    [3, 1, 1, 10, 1, 0, 1] + Array("17realtime:rm{\"a\":1}".utf8),
    [3, 0, 0, 1, 1, 2, 0] + Array("te{}".utf8) + [1, 255],
    [0, 1, 2, 1, 3] + Array("112tabc".utf8) + [0],
]
