import Synchronization

/// Message that a NATS server delivered.
public struct NatsLetter: Sendable {
    public var subject: String
    /// Subject to which an answer goes; empty if there is none. For messages of a stream it tells their sequence.
    public var reply: String
    /// Status of a message without content: 503 if nobody answers, 404 and 408 if a request for messages ends; 0 for
    /// other messages.
    public var status: Int
    public var payload: [UInt8]

    public init(subject: String, reply: String = "", status: Int = 0, payload: [UInt8] = []) {
        self.subject = subject
        self.reply = reply
        self.status = status
        self.payload = payload
    }
}

/// Mailbox between the threads of the NATS library and the thread that owns it. Any thread may add letters; the owner
/// takes them when the bell rings.
public final class NatsInbox: Sendable {
    private struct State {
        var letters: [NatsLetter] = []
        var bytes = 0
        var dropped = 0
    }

    private let state = Mutex(State())
    private let maximumBytes: Int
    private let ring: @Sendable () -> Void

    /// Creates an empty mailbox.
    ///
    /// - Parameters:
    ///   - maximumBytes: number of bytes above which further letters are dropped and counted.
    ///   - ring: wakes the owner when a letter has arrived.
    public init(maximumBytes: Int, ring: @escaping @Sendable () -> Void) {
        self.maximumBytes = maximumBytes
        self.ring = ring
    }

    public func add(_ letter: NatsLetter) {
        state.withLock { state in
            let size = letter.payload.count + letter.subject.utf8.count + 128
            guard state.bytes + size <= maximumBytes else {
                state.dropped += 1
                return
            }
            state.bytes += size
            state.letters.append(letter)
        }
        ring()
    }

    /// Takes all letters, and the number of those that were dropped since the last call.
    public func take() -> (letters: [NatsLetter], dropped: Int) {
        state.withLock { state in
            defer { state = State() }
            return (state.letters, state.dropped)
        }
    }
}
