import Bytes
import Diagnostics
import System

/// Requests to JetStream, the storage of NATS, about one stream. One thread uses it.
public final class JetStream {
    public let connection: NatsConnection
    public let inbox: NatsInbox
    /// Bell that rings when a letter arrives, or the connection changes.
    public let bell: Wake
    private let replies: String
    private let subscription: NatsSubscription
    private var requests: UInt64 = 0
    /// Letters that arrived while a request waited for its answer.
    private var waiting: [NatsLetter] = []

    /// Connects.
    ///
    /// - Parameter maximumBytes: number of bytes of letters that may wait.
    public init(_ settings: NatsSettings, bell: Wake, maximumBytes: Int) throws(NatsError) {
        connection = try NatsConnection(settings) { bell.ring() }
        inbox = NatsInbox(maximumBytes: maximumBytes) { bell.ring() }
        self.bell = bell
        replies = "_INBOX.\(Hex.text(UInt64.random(in: .min ... .max)))\(Hex.text(UInt64.random(in: .min ... .max)))"
        subscription = try connection.subscribe("\(replies).>", to: inbox)
    }

    /// Takes the letters that have arrived, and the number of those that were dropped.
    public func take() -> (letters: [NatsLetter], dropped: Int) {
        bell.clear()
        var (letters, dropped) = inbox.take()
        letters = waiting + letters
        waiting = []
        return (letters, dropped)
    }

    /// Keeps letters that were taken, and that are for somebody else: the next call of `take` returns them first.
    public func keep(_ letters: [NatsLetter]) { waiting = letters + waiting }

    /// Subject for an answer that arrives as a letter.
    public func replySubject(_ kind: String) -> String {
        requests += 1
        return "\(replies).\(kind).\(requests)"
    }

    /// Kind and number of an answer, from its subject; nil if it is no answer.
    public func reply(_ subject: String) -> (kind: Substring, number: UInt64)? {
        guard subject.hasPrefix(replies) else { return nil }
        let parts = subject.dropFirst(replies.utf8.count + 1).split(separator: ".")
        guard parts.count == 2, let number = UInt64(parts[1]) else { return nil }
        return (parts[0], number)
    }

    /// Asks JetStream's API, and waits for the answer. Other letters that arrive meanwhile are kept for `take`.
    public func ask(
        _ call: String, _ body: JSONValue = .object(JSONObject()), timeout: Duration = .seconds(3)
    ) throws(NatsError) -> JSONObject {
        let reply = replySubject("api")
        try connection.publish(body.bytes.rawBytes, to: "$JS.API.\(call)", reply: reply)
        let deadline = Clock.monotonicNanoseconds() + timeout.wholeNanoseconds
        while true {
            bell.clear()
            let (letters, _) = inbox.take()
            var answer: NatsLetter?
            for letter in letters {
                if letter.subject == reply { answer = letter } else { waiting.append(letter) }
            }
            if let answer { return try Self.content(of: answer, call) }
            let now = Clock.monotonicNanoseconds()
            guard now < deadline else {
                throw NatsError(operation: call, message: "no answer within \(timeout.wholeMilliseconds) ms")
            }
            bell.sleep(milliseconds: Int((deadline - now) / 1_000_000) + 1)
        }
    }

    private static func content(of letter: NatsLetter, _ call: String) throws(NatsError) -> JSONObject {
        if letter.status == 503 {
            throw JetStreamRefusal(code: 503, text: "no server has JetStream").error(call)
        }
        guard
            let value = try? JSONValue.parse(letter.payload, maximumDepth: 16),
            let object = value.object
        else { throw NatsError(operation: call, message: "the answer is not JSON") }
        if let refusal = JetStreamRefusal(object) { throw refusal.error(call) }
        return object
    }
}

/// Refusal of JetStream, with the code by which it is recognized.
public struct JetStreamRefusal: Sendable, Equatable {
    public var code: Int
    public var text: String

    public static let streamNotFound = 10059
    public static let wrongLastSequence = 10071
    public static let consumerNotFound = 10014

    public init(code: Int, text: String) {
        self.code = code
        self.text = text
    }

    /// Reads the error of an answer; nil if the answer has none.
    public init?(_ answer: JSONObject) {
        guard let error = answer["error"]?.object else { return nil }
        code = error["err_code"]?.integer ?? error["code"]?.integer ?? 0
        text = error["description"]?.string ?? "refused"
    }

    func error(_ call: String) -> NatsError { NatsError(operation: call, message: "\(text) (\(code))", code: code) }
}

/// Acknowledgement of a stream for a message, or its refusal.
public enum StreamAnswer: Sendable, Equatable {
    case stored(sequence: UInt64)
    case refused(JetStreamRefusal)

    public init(_ letter: NatsLetter) {
        guard letter.status == 0,
            let answer = try? JSONValue.parse(letter.payload, maximumDepth: 8).object
        else {
            self = .refused(JetStreamRefusal(code: letter.status, text: "no stream takes the message"))
            return
        }
        if let refusal = JetStreamRefusal(answer) {
            self = .refused(refusal)
        } else if let sequence = answer["seq"]?.integer, sequence > 0 {
            self = .stored(sequence: UInt64(sequence))
        } else {
            self = .refused(JetStreamRefusal(code: 0, text: "an answer without a sequence"))
        }
    }
}

/// Sequence of a message in its stream, which its reply subject tells:
/// `$JS.ACK.[domain.account.]stream.consumer.deliveries.sequence.order.time.pending[.token]`.
public struct StreamPlace: Sendable, Equatable {
    public var sequence: UInt64

    public init?(_ reply: String) {
        guard reply.hasPrefix("$JS.ACK.") else { return nil }
        let parts = reply.split(separator: ".", omittingEmptySubsequences: false)
        // Newer servers put the domain and the hash of an account in front of the stream.
        let start = parts.count >= 11 ? 4 : 2
        guard parts.count >= start + 7, let sequence = UInt64(parts[start + 3]) else { return nil }
        self.sequence = sequence
    }
}
