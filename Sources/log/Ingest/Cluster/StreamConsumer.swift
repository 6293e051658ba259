import Bytes
import Diagnostics
import Nats
import System

/// Reader of the stream's messages from a sequence on, in order. It asks for messages in portions, so that no more
/// arrive than can be kept. The ingest thread owns it.
final class StreamConsumer {
    private let jet: JetStream
    private let stream: String
    private let name: String
    /// Number of the request that is open; zero if there is none.
    private var request: UInt64 = 0
    /// Number of messages that the open request may still bring.
    private var left = 0
    /// Time of the last sign of the server.
    private var heardAt: UInt64

    private static let portion = 256
    private static let portionBytes = 8 << 20
    /// Time without a sign of the server after which the consumer counts as lost.
    private static let patience: UInt64 = 4_000_000_000

    init(_ jet: JetStream, stream: String, from sequence: UInt64) throws(NatsError) {
        self.jet = jet
        self.stream = stream
        let config = JSONObject([
            ("deliver_policy", .string("by_start_sequence")), ("opt_start_seq", .number(String(max(1, sequence)))),
            ("ack_policy", .string("none")), ("replay_policy", .string("instant")), ("num_replicas", .number(1)),
            ("mem_storage", .bool(true)), ("inactive_threshold", .number(30_000_000_000)),
        ])
        let answer = try jet.ask(
            "CONSUMER.CREATE.\(stream)",
            .object(JSONObject([("stream_name", .string(stream)), ("config", .object(config))])))
        guard let name = answer["name"]?.string else {
            throw NatsError(operation: "CONSUMER.CREATE", message: "an answer without a name")
        }
        self.name = name
        heardAt = Clock.monotonicNanoseconds()
    }

    /// True if the server has not been heard for so long that another consumer should be made.
    func isLost(at now: UInt64) -> Bool { now > heardAt + Self.patience }

    /// Takes a letter. Returns the place of a message of the stream; nil for other letters.
    func take(_ letter: NatsLetter, now: UInt64) -> StreamPlace? {
        if let place = StreamPlace(letter.reply), letter.status == 0 {
            heardAt = now
            left -= 1
            if left <= 0 { request = 0 }
            return place
        }
        guard let reply = jet.reply(letter.subject), reply.kind == "next", reply.number == request else { return nil }
        // 100 is a heartbeat; 404, 408 and 409 end the request. Without an answer (503) the consumer is lost.
        if letter.status != 503 { heardAt = now }
        if letter.status != 100 { request = 0 }
        return nil
    }

    /// Asks for more messages, unless a request is open.
    func ask() throws(NatsError) {
        guard request == 0 else { return }
        let reply = jet.replySubject("next")
        let body = JSONObject([
            ("batch", .number(Self.portion)), ("max_bytes", .number(Self.portionBytes)),
            ("expires", .number(30_000_000_000)), ("idle_heartbeat", .number(1_000_000_000)),
        ])
        try jet.connection.publish(
            JSONValue.object(body).bytes.rawBytes, to: "$JS.API.CONSUMER.MSG.NEXT.\(stream).\(name)", reply: reply)
        request = jet.reply(reply)?.number ?? 0
        left = Self.portion
    }

    /// Ends the consumer. The server also ends it when it is not asked for a while.
    func end() {
        try? jet.connection.publish([UInt8]().rawBytes, to: "$JS.API.CONSUMER.DELETE.\(stream).\(name)")
    }
}
