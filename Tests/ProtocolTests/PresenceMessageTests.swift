import Bytes
import Protocol
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct PresenceMessageTests {
    /// Returns the request and the payload to track.
    private func read(_ payload: String) -> (request: PresenceRequest, tracked: String?) {
        let bytes = Array(payload.utf8)
        let request = PresenceRequest(payload: bytes.span.bytes)
        guard case .track(let range) = request else { return (request, nil) }
        return (request, String(decoding: bytes[range], as: UTF8.self))
    }

    @Test func `an event is known in any case, and what is tracked lies where it stands`() {
        #expect(read(#"{"type":"presence","event":"track","payload": {"name":"C"} }"#).tracked == #"{"name":"C"}"#)
        #expect(read(#"{"payload":{"a":[{}]},"event":"TRACK"}"#).tracked == #"{"a":[{}]}"#)
        #expect(read(#"{"event":"UnTrack","payload":[]}"#).request == .untrack)
        #expect(read(#"{"\u0065vent":"tr\u0061ck","payload":{}}"#).tracked == "{}")
    }

    @Test func `no payload is an empty one`() {
        #expect(read(#"{"event":"track"}"#).tracked == "")
    }

    @Test func `a payload that is no object is said to be none`() {
        for payload in ["null", "[]", "1", #""{}""#] {
            #expect(read(#"{"event":"track","payload":\#(payload)}"#).request == .payloadNotAnObject)
        }
        #expect("\(PresenceRequest.notAnObjectReason)" == "Presence track payload must be a map")
    }

    @Test func `no event is nothing, and one that is unknown an error`() {
        for payload in ["{}", #"{"payload":{}}"#, "[]", "null", #""event""#] {
            #expect(read(payload).request == .nothing)
        }
        for event in [#""update""#, #""""#, "null", "1", #"["track"]"#] {
            #expect(read(#"{"event":\#(event),"payload":{}}"#).request == .unknownEvent)
        }
    }

    @Test func `of what comes twice the last one counts`() {
        #expect(read(#"{"event":"x","event":"track","payload":1,"payload":{"a":1}}"#).tracked == #"{"a":1}"#)
        #expect(read(#"{"event":"track","event":"untrack"}"#).request == .untrack)
        #expect(read(#"{"event":"track","payload":{},"payload":1}"#).request == .payloadNotAnObject)
    }

    @Test func `opaque bytes ask for nothing`() throws {
        var decoder = MessageDecoder(maximumTopicBytes: 100, maximumRefBytes: 10)
        let frame: [UInt8] = [0, 0, 0, 1, 8] + Array("tpresence{}".utf8)
        let message = try decoder.decodeBinary(frame.span.bytes, .v2)
        let request = PresenceRequest(message)
        #expect(message.event == .presence && request == .nothing)
    }

    @Test func `a state has the join_ref, and a difference has none`() {
        let topic = Array("realtime:room:1".utf8)
        let ref = Array("\"3\"".utf8)
        let body = Array(#"{"joins":{},"leaves":{}}"#.utf8)
        let empty = Array("{}".utf8)
        func texts(_ version: SerializerVersion) -> [String] {
            let encoder = MessageEncoder(version)
            return [
                written {
                    encoder.appendPresenceState(
                        empty.span.bytes, topic: topic.span.bytes, joinRef: ref.span.bytes, to: &$0)
                }, written { encoder.appendPresenceDiff(body.span.bytes, topic: topic.span.bytes, to: &$0) },
            ]
        }
        #expect(
            texts(.v2) == [
                #"["3",null,"realtime:room:1","presence_state",{}]"#,
                #"[null,null,"realtime:room:1","presence_diff",{"joins":{},"leaves":{}}]"#,
            ])
        #expect(
            texts(.v1) == [
                #"{"topic":"realtime:room:1","event":"presence_state","payload":{},"ref":null}"#,
                #"{"topic":"realtime:room:1","event":"presence_diff","payload":{"joins":{},"leaves":{}},"ref":null}"#,
            ])
    }
}
