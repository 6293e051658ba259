import Bytes
import Protocol
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct RestBroadcastTests {
    private func read(_ body: String, messages: Int = 10, bytes: Int = 100) throws(BatchError) -> [BatchedMessage] {
        try BroadcastBatch(Array(body.utf8).span.bytes, maximumMessages: messages, maximumPayloadBytes: bytes).messages
    }

    /// Returns the body of the answer to a refused batch; nil if the batch is accepted.
    private func refusal(_ body: String, bytes: Int = 100) -> String? {
        do throws(BatchError) {
            _ = try read(body, bytes: bytes)
        } catch {
            if case .invalid(let body) = error { return String(decoding: body, as: UTF8.self) }
            return "\(error)"
        }
        return nil
    }

    @Test func `messages are read with their defaults`() throws {
        let body =
            #"{"messages":[{"topic":"room:1","event":"cursor","payload":{"x": 1}},{"topic":"r\"2","event":"note","#
            + #""payload":{},"private":true,"id":"5F0c3b1e-6a55-4d5c-9a44-0d9a1f6e7c11","more":[1]}],"x":1}"#
        let messages = try read(body)
        #expect(messages.map(\.topic) == [Array("room:1".utf8), Array("r\"2".utf8)])
        #expect(messages.map(\.event) == [Array("cursor".utf8), Array("note".utf8)])
        let payloads = messages.map { String(decoding: Array(body.utf8)[$0.payload], as: UTF8.self) }
        #expect(payloads == [#"{"x": 1}"#, "{}"])
        #expect(messages.map(\.isPrivate) == [false, true] && messages[0].id.isEmpty)
        #expect(messages[1].id == Array("5f0c3b1e-6a55-4d5c-9a44-0d9a1f6e7c11".utf8))
    }

    @Test(arguments: ["", "{}", "[]", "null", "7", #"{"messages":null}"#, #"{"messages":[]}"#, #"{"message":[{}]}"#])
    func `no messages are blank`(body: String) {
        #expect(refusal(body) == #"{"errors":{"messages":["can't be blank"]}}"#)
    }

    @Test(arguments: [#"{"messages":"x"}"#, #"{"messages":{}}"#, #"{"messages":[{},1]}"#, #"{"messages":[null]}"#])
    func `messages that are no list of objects are invalid`(body: String) {
        #expect(refusal(body) == #"{"errors":{"messages":["is invalid"]}}"#)
    }

    @Test func `each message has its faults, and a valid one has none`() {
        #expect(
            refusal(#"{"messages":[{"topic":"a","event":"b"},{"topic":"a","event":"b","payload":{}}]}"#)
                == #"{"errors":{"messages":[{"payload":["can't be blank"]},{}]}}"#)
        #expect(
            refusal(#"{"messages":[{"topic":1,"event":" \t","payload":[],"private":2,"id":"x"},{}]}"#)
                == #"{"errors":{"messages":[{"event":["can't be blank"],"id":["is invalid"],"payload":["is invalid"],"#
                + #""private":["is invalid"],"topic":["is invalid"]},{"event":["can't be blank"],"#
                + #""payload":["can't be blank"],"topic":["can't be blank"]}]}}"#)
    }

    @Test func `a payload that is too large is named`() {
        let body = #"{"messages":[{"topic":"a","event":"b","payload":{"a":"0123456789"}}]}"#
        #expect(refusal(body, bytes: 18) == nil)
        #expect(
            refusal(body, bytes: 17) == #"{"errors":{"messages":[{"payload":["Payload size exceeds tenant limit"]}]}}"#)
    }

    @Test func `booleans may be text`() throws {
        for (text, value) in [
            ("\"true\"", true), ("\"1\"", true), ("\"false\"", false), ("\"0\"", false), ("null", false),
        ] {
            let messages = try read(#"{"messages":[{"topic":"a","event":"b","payload":{},"private":\#(text)}]}"#)
            #expect(messages.map(\.isPrivate) == [value])
        }
        for text in ["\"yes\"", "\"TRUE\"", "1", "[]"] {
            #expect(
                refusal(#"{"messages":[{"topic":"a","event":"b","payload":{},"private":\#(text)}]}"#)
                    == #"{"errors":{"messages":[{"private":["is invalid"]}]}}"#)
        }
    }

    @Test func `an id is a UUID or is not there`() throws {
        for text in ["null", "\"\""] {
            let messages = try read(#"{"messages":[{"topic":"a","event":"b","payload":{},"id":\#(text)}]}"#)
            #expect(messages.map(\.id) == [[]])
        }
        for text in ["5f0c3b1e6a554d5c9a440d9a1f6e7c11", "5f0c3b1e-6a55-4d5c-9a44-0d9a1f6e7c1g", "x"] {
            #expect(
                refusal(#"{"messages":[{"topic":"a","event":"b","payload":{},"id":"\#(text)"}]}"#)
                    == #"{"errors":{"messages":[{"id":["is invalid"]}]}}"#)
        }
    }

    @Test(arguments: ["{", "x", "{} {}", #"{"messages":[{"topic":"a}]}"#])
    func `what is no JSON is malformed`(body: String) {
        #expect(throws: BatchError.malformed) { try read(body) }
    }

    @Test func `a batch of too many is refused without looking at them`() {
        let body = #"{"messages":["# + Array(repeating: "{}", count: 11).joined(separator: ",") + "]}"
        #expect(throws: BatchError.tooMany) { try read(body) }
    }

    // MARK: One message

    private func single(_ type: String?, _ body: String) -> (SingleBroadcast, String) {
        let bytes = Array(body.utf8)
        let single = SingleBroadcast(contentType: type, body: bytes.span.bytes)
        return (single, written { single.appendPayload(of: bytes.span.bytes, to: &$0) })
    }

    @Test func `a body is an object, is made one, or is bytes`() {
        #expect(single("application/json", #" {"a": 1} "#) == (.object, #" {"a": 1} "#))
        #expect(single("Application/JSON; charset=utf-8", "[1, 2]") == (.wrapped, #"{"_json":[1, 2]}"#))
        #expect(single("application/json", "null") == (.wrapped, #"{"_json":null}"#))
        #expect(single("application/json", "") == (.empty, "{}"))
        #expect(single("application/octet-stream", "{x") == (.binary, "{x"))
        #expect(single(nil, #"{"a":1}"#) == (.empty, "{}"))
        #expect(single("application/json", "{x").0 == .malformed)
        #expect(single("text/plain", "{}").0 == .unsupportedMediaType)
    }

    @Test func `answers are JSON`() throws {
        let answers: [BroadcastAnswer] = [
            .unauthorized, .unknownTenant, .suspended, .forbidden, .unsupportedMediaType, .tooLarge, .policyError,
            .queryCanceled, .missingPartition, .databaseUnavailable, .databaseInitializing, .connectionInitializing,
            .tooManyConnections, .connectRateLimit, .tooManyRequests, .rateExceeded, .batchTooLarge, .poolExhausted,
            .callFailed, .cannotAuthorize,
        ]
        for answer in answers {
            let bytes = Array("\(answer.body)".utf8)
            let (single, _) = single("application/json", String(decoding: bytes, as: UTF8.self))
            #expect(single == .object && (400..<600).contains(answer.status))
        }
    }
}
