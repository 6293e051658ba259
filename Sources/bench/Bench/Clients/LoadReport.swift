import Bytes

/// Report of the changes that clients have received since the last `expect`. Reports of several processes can be added.
public struct LoadReport: Sendable, Equatable {
    /// Number of connected clients.
    public var connected: Int64 = 0
    /// Number of clients that the server disconnected or that lost their connection.
    public var closed: Int64 = 0
    public var expected: Int64 = 0
    /// Number of changes that were received in the expected order.
    public var received: Int64 = 0
    /// Number of changes that clients received again, or after a later one.
    public var doubled: Int64 = 0
    /// Number of changes that were not received although a later one was.
    public var skipped: Int64 = 0
    /// Number of received changes that were meant for other clients.
    public var foreign: Int64 = 0
    /// Number of malformed changes, and of frames that a server must not send.
    public var malformed: Int64 = 0
    public var bytes: Int64 = 0
    public var reads: Int64 = 0
    public var processorNanoseconds: Int64 = 0
    /// Time at which the first change was received, in Unix microseconds; 0 without changes.
    public var firstMicroseconds: Int64 = 0
    /// Time at which the last change was received, in Unix microseconds; 0 without changes.
    public var lastMicroseconds: Int64 = 0
    /// Durations from the time that each change carries to its reception by a client.
    public var latency = LatencyHistogram()

    public init() {}

    public var missing: Int64 { max(0, expected - received) }

    /// True if every expected change was received once, in order, and nothing else was received.
    public var isFaultless: Bool {
        received == expected && doubled == 0 && skipped == 0 && foreign == 0 && malformed == 0 && closed == 0
    }

    public mutating func add(_ other: LoadReport) {
        for count in Self.counts { self[keyPath: count.path] += other[keyPath: count.path] }
        if other.firstMicroseconds > 0 {
            firstMicroseconds =
                firstMicroseconds == 0 ? other.firstMicroseconds : min(firstMicroseconds, other.firstMicroseconds)
        }
        lastMicroseconds = max(lastMicroseconds, other.lastMicroseconds)
        latency.add(other.latency)
    }

    private typealias Count = (name: String, path: any WritableKeyPath<LoadReport, Int64> & Sendable)

    private static let counts: [Count] = [
        ("connected", \.connected), ("closed", \.closed), ("expected", \.expected), ("received", \.received),
        ("doubled", \.doubled), ("skipped", \.skipped), ("foreign", \.foreign), ("malformed", \.malformed),
        ("bytes", \.bytes), ("reads", \.reads), ("cpu_ns", \.processorNanoseconds),
    ]
    private static let moments: [Count] = [("first_us", \.firstMicroseconds), ("last_us", \.lastMicroseconds)]
}

extension LoadReport {
    var answer: WorkerAnswer {
        var answer = WorkerAnswer()
        for count in Self.counts + Self.moments { answer.numbers[count.name] = self[keyPath: count.path] }
        answer.texts["latency"] = latency.text
        return answer
    }

    init?(_ answer: WorkerAnswer) {
        self.init()
        for count in Self.counts + Self.moments {
            guard let number = answer.numbers[count.name] else { return nil }
            self[keyPath: count.path] = number
        }
        guard let latency = answer.texts["latency"].flatMap({ LatencyHistogram(text: $0) }) else { return nil }
        self.latency = latency
    }
}
