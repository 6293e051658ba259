import Bytes
import Change
import Protocol
import TestSupport
import Testing

/// Returns the encoder's output as text.
func written(_ write: (inout ByteWriter) -> Void) -> String {
    var writer = ByteWriter()
    write(&writer)
    return writer.bytes.text
}

@Suite(.within(minutes: 5)) struct EncoderTests {
    let topic = Array("realtime:room:1".utf8)
    let three = Array("\"3\"".utf8)
    let nine = Array("\"9\"".utf8)
    let none: [UInt8] = []

    private func join(_ payload: String) -> [ChangeBinding] {
        JoinRequest(Array(payload.utf8).span.bytes, subTopic: none.span.bytes, maximumBindings: 100).bindings
    }

    @Test func `trap 1: the reply to a join always has postgres_changes`() {
        let v1 = written {
            MessageEncoder(.v1).appendJoinReply(
                [], topic: topic.span.bytes, joinRef: three.span.bytes, ref: nine.span.bytes, to: &$0)
        }
        let v2 = written {
            MessageEncoder(.v2).appendJoinReply(
                [], topic: topic.span.bytes, joinRef: three.span.bytes, ref: nine.span.bytes, to: &$0)
        }
        #expect(
            v1 == #"{"topic":"realtime:room:1","event":"phx_reply","payload":"#
                + #"{"status":"ok","response":{"postgres_changes":[]}},"ref":"9"}"#)
        #expect(v2 == #"["3","9","realtime:room:1","phx_reply",{"status":"ok","response":{"postgres_changes":[]}}]"#)
    }

    @Test func `trap 2: bindings come back verbatim, in order, each with its id`() {
        let bindings = join(
            #"{"config":{"postgres_changes":[{ "event" : "insert","schema":"public","filter":"" ,"x":[1, 2]},"#
                + #"null,{},{ },{"event":"insert","schema":"public","filter":"","x":[1,2]},{"id":7 }]}}"#)
        let ids = bindings.map(\.id)
        #expect(ids[0] == ids[3] && ids[1] == ids[2] && Set(ids).count == 3)
        #expect(ids.allSatisfy { $0 > 0 && $0 < 1 << 31 })
        let reply = written {
            MessageEncoder(.v2).appendJoinReply(
                bindings, topic: topic.span.bytes, joinRef: three.span.bytes, ref: three.span.bytes, to: &$0)
        }
        #expect(
            reply
                == #"["3","3","realtime:room:1","phx_reply",{"status":"ok","response":{"postgres_changes":["#
                + #"{ "event" : "insert","schema":"public","filter":"" ,"x":[1, 2],"id":\#(ids[0])},"#
                + #"{"id":\#(ids[1])},{ "id":\#(ids[1])},"#
                + #"{"event":"insert","schema":"public","filter":"","x":[1,2],"id":\#(ids[0])},"#
                + #"{"id":7 ,"id":\#(ids[4])}]}}]"#)
    }

    @Test func `trap 4: a heartbeat is answered, with its ref or with null`() {
        let twelve = Array("\"12\"".utf8)
        #expect(
            written { MessageEncoder(.v2).appendHeartbeatReply(ref: twelve.span.bytes, to: &$0) }
                == #"[null,"12","phoenix","phx_reply",{"status":"ok","response":{}}]"#)
        #expect(
            written { MessageEncoder(.v1).appendHeartbeatReply(ref: none.span.bytes, to: &$0) }
                == #"{"topic":"phoenix","event":"phx_reply","payload":{"status":"ok","response":{}},"ref":null}"#)
        #expect(
            written { MessageEncoder(.v2).appendHeartbeatReply(ref: none.span.bytes, to: &$0) }
                == #"[null,null,"phoenix","phx_reply",{"status":"ok","response":{}}]"#)
    }

    @Test func `replies carry a status and an object`() {
        #expect(
            written {
                MessageEncoder(.v2).appendReply(
                    .ok, topic: topic.span.bytes, joinRef: three.span.bytes, ref: nine.span.bytes, to: &$0)
            } == #"["3","9","realtime:room:1","phx_reply",{"status":"ok","response":{}}]"#)
        #expect(
            written {
                MessageEncoder(.v1).appendReply(
                    .error, response: Array(#"{"a":1}"#.utf8).span.bytes, topic: topic.span.bytes,
                    joinRef: three.span.bytes, ref: nine.span.bytes, to: &$0)
            }
                == #"{"topic":"realtime:room:1","event":"phx_reply","#
                + #""payload":{"status":"error","response":{"a":1}},"ref":"9"}"#)
    }

    @Test func `trap 19: an error reply says its reason`() {
        #expect(
            written {
                MessageEncoder(.v2).appendErrorReply(
                    reason: #"Unauthorized: "x""#, topic: topic.span.bytes, joinRef: three.span.bytes,
                    ref: three.span.bytes, to: &$0)
            }
                == #"["3","3","realtime:room:1","phx_reply","#
                + #"{"status":"error","response":{"reason":"Unauthorized: \"x\""},"code":"Unauthorized"}]"#)
        #expect(
            written {
                MessageEncoder(.v2).appendUnmatchedTopic(topic.span.bytes, ref: nine.span.bytes, to: &$0)
            }
                == #"[null,"9","realtime:room:1","phx_reply","#
                + #"{"status":"error","response":{"reason":"unmatched topic"},"code":"UnmatchedTopic"}]"#)
    }

    @Test func `trap 3: a push of version 1 has a ref, which is null, and no join_ref`() {
        #expect(
            written {
                MessageEncoder(.v1).appendPush(
                    Array("broadcast".utf8).span.bytes,
                    payload: Array(#"{"event":"hi","payload":{"n":1},"type":"broadcast"}"#.utf8).span.bytes,
                    topic: topic.span.bytes, joinRef: three.span.bytes, to: &$0)
            }
                == #"{"topic":"realtime:room:1","event":"broadcast","#
                + #""payload":{"event":"hi","payload":{"n":1},"type":"broadcast"},"ref":null}"#)
    }

    @Test func `trap 7: a close carries the join_ref that ends, twice`() {
        #expect(
            written {
                MessageEncoder(.v2).appendClose(topic: topic.span.bytes, joinRef: three.span.bytes, to: &$0)
            } == #"["3","3","realtime:room:1","phx_close",{}]"#)
        #expect(
            written {
                MessageEncoder(.v1).appendClose(topic: topic.span.bytes, joinRef: three.span.bytes, to: &$0)
            } == #"{"topic":"realtime:room:1","event":"phx_close","payload":{},"ref":"3"}"#)
        #expect(
            written {
                MessageEncoder(.v2).appendChannelError(topic: topic.span.bytes, joinRef: three.span.bytes, to: &$0)
            } == #"["3","3","realtime:room:1","phx_error",{"reason":"channel_crash"}]"#)
    }

    @Test func `trap 14: a system message has its four strings, and a code where something is to be done`() {
        let message = Array("Subscribed to PostgreSQL".utf8)
        let channel = Array("room:1".utf8)
        #expect(
            written {
                MessageEncoder(.v2).appendSystem(
                    .ok, .postgresChanges, message: message.span.bytes, code: nil, channel: channel.span.bytes,
                    topic: topic.span.bytes, joinRef: three.span.bytes, to: &$0)
            }
                == #"["3",null,"realtime:room:1","system",{"extension":"postgres_changes","status":"ok","#
                + #""message":"Subscribed to PostgreSQL","channel":"room:1"}]"#)
        #expect(
            written {
                MessageEncoder(.v1).appendSystem(
                    .error, .system, message: message.span.bytes, code: .changesMissing, channel: channel.span.bytes,
                    topic: topic.span.bytes, joinRef: three.span.bytes, to: &$0)
            }
                == #"{"topic":"realtime:room:1","event":"system","payload":{"extension":"system","status":"error","#
                + #""message":"Subscribed to PostgreSQL","channel":"room:1","code":"ChangesMissing"},"ref":null}"#)
        #expect(
            written {
                MessageEncoder(.v2).appendDisconnectRequest(
                    topic: topic.span.bytes, joinRef: three.span.bytes, to: &$0)
            }
                == #"["3",null,"realtime:room:1","system","#
                + #"{"extension":"system","status":"ok","message":"Server requested disconnect"}]"#)
    }

    @Test(arguments: [SerializerVersion.v1, .v2])
    func `an envelope stands around a body shared by all`(version: SerializerVersion) {
        let envelope = ChangeEnvelope(version, topic: topic.span.bytes, ids: [88_112_233, 5])
        let message = String(decoding: envelope.prefix, as: UTF8.self) + "{}" + "\(envelope.suffix)"
        let expected =
            version == .v1
            ? #"{"topic":"realtime:room:1","event":"postgres_changes","#
                + #""payload":{"ids":[88112233,5],"data":{}},"ref":null}"#
            : #"[null,null,"realtime:room:1","postgres_changes",{"ids":[88112233,5],"data":{}}]"#
        #expect(message == expected)
        #expect(envelope.byteCount(around: 2) == message.utf8.count)
    }

    @Test func `a legacy envelope names the operation and wraps nothing`() {
        let v1 = ChangeEnvelope(.v1, topic: topic.span.bytes, legacy: .insert)
        let v2 = ChangeEnvelope(.v2, topic: topic.span.bytes, legacy: .delete)
        #expect(
            String(decoding: v1.prefix, as: UTF8.self) + "{}\(v1.suffix)"
                == #"{"topic":"realtime:room:1","event":"INSERT","payload":{},"ref":null}"#)
        #expect(
            String(decoding: v2.prefix, as: UTF8.self) + "{}\(v2.suffix)"
                == #"[null,null,"realtime:room:1","DELETE",{}]"#)
    }

    /// Checks that clients can read the output for any topic and refs (trap 6 of the specification).
    @Test(arguments: [SerializerVersion.v1, .v2])
    func `what is written is read again the same`(version: SerializerVersion) throws {
        for topic in ["realtime:a", "realtime:\"\\\n\u{1}é🙂", "realtime:a,b]}", ""] {
            for ref in ["", "\"1\"", "5", #""\"\u00e9""#] {
                let message = written {
                    MessageEncoder(version).appendReply(
                        .ok, response: Array(#"{"x":[1]}"#.utf8).span.bytes, topic: Array(topic.utf8).span.bytes,
                        joinRef: Array(ref.utf8).span.bytes, ref: Array(ref.utf8).span.bytes, to: &$0)
                }
                let read = try Decoded.text(message, version)
                #expect(read.topic == topic && read.ref == ref && read.name == "phx_reply")
                #expect(read.joinRef == (version == .v2 ? ref : ""))
                #expect(read.payloadText == #"{"status":"ok","response":{"x":[1]}}"#)
            }
        }
    }
}
