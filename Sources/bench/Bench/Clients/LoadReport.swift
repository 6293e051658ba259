import Bytes

/// Report of the changes that the clients of one process received since the last `expect`. Reports of several processes
/// are added.
public struct LoadReport: Sendable, Equatable {
    /// Clients that are connected.
    public var connected: Int64 = 0
    /// Clients that the server closed, or that lost their connection.
    public var closed: Int64 = 0
    public var expected: Int64 = 0
    /// Changes that came at their place in the order.
    public var received: Int64 = 0
    /// Changes that came again, or after a later one.
    public var doubled: Int64 = 0
    /// Numbers that were skipped.
    public var skipped: Int64 = 0
    /// Changes that were meant for other clients.
    public var foreign: Int64 = 0
    /// Messages that are malformed changes, and frames that a server must not send.
    public var malformed: Int64 = 0
    public var bytes: Int64 = 0
    public var reads: Int64 = 0
    public var processorNanoseconds: Int64 = 0
    /// Times of the first and the last change that came, in Unix microseconds; 0 without changes.
    public var firstMicroseconds: Int64 = 0
    public var lastMicroseconds: Int64 = 0
    /// Times from the moment that a change carries to its arrival.
    public var latency = LatencyHistogram()

    public init() {}

    public var missing: Int64 { max(0, expected - received) }

    /// True if every change came once, in order, and nothing else came.
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
