import System

/// Count of the changes that the clients of one process have received since the last `expect`.
struct LoadTally {
    private var isExpecting = false
    /// Number of changes to wait for, for each client; nil for all expected ones.
    private var goal: Int64?
    /// Number of clients that have not received the changes to wait for.
    private var unsatisfied = 0
    private var figures = LoadReport()
    var closed: Int64 = 0
    var malformed: Int64 = 0
    var bytes: Int64 = 0
    var reads: Int64 = 0
    /// First received change since the last `expect`.
    var sample: [UInt8] = []
    var processorAtBegin: UInt64 = 0
    /// Offsets of the number and the time in the last change. The next change is searched at these offsets first.
    var hint = Hint()

    init() {}

    /// Creates a tally of the changes that these clients expect.
    init(_ clients: [LoadClient]) {
        isExpecting = true
        unsatisfied = clients.count { $0.expected > 0 }
        figures.expected = clients.reduce(0) { $0 + $1.expected }
    }

    /// Creates a tally of messages that `Talk` checks.
    init(expecting count: Int) {
        isExpecting = true
        unsatisfied = count
        figures.expected = Int64(count)
    }

    /// True if every client has received the changes that it waits for.
    var isSatisfied: Bool { unsatisfied <= 0 }

    /// Sets what `isSatisfied` waits for: the first `count` changes of each client, or all expected ones.
    mutating func await(_ count: Int64?, of clients: [LoadClient]) {
        goal = count
        unsatisfied = clients.count { $0.received < count ?? $0.expected }
    }

    /// Counts a change that a client received, and records what the client expects next.
    mutating func count(_ client: inout LoadClient, _ sequence: Int64, _ sent: Int64?, _ owner: Int64?, _ now: Int64) {
        let isOwn = client.stride == 1 || (sequence - client.nextSequence) % client.stride == 0
        guard isExpecting, isOwn, client.owner == nil || client.owner == owner else {
            figures.foreign += 1
            return
        }
        if let sent { figures.latency.add(now - sent) }
        if figures.firstMicroseconds == 0 { figures.firstMicroseconds = now }
        figures.lastMicroseconds = now
        guard sequence >= client.nextSequence else {
            figures.doubled += 1
            return
        }
        figures.skipped += (sequence - client.nextSequence) / client.stride
        client.nextSequence = sequence + client.stride
        client.received += 1
        figures.received += 1
        if client.received == goal ?? client.expected { unsatisfied -= 1 }
    }

    /// Counts a message that a client received in the expected order.
    mutating func heard(_ now: Int64, sent: Int64? = nil) {
        if let sent { figures.latency.add(now - sent) }
        if figures.firstMicroseconds == 0 { figures.firstMicroseconds = now }
        figures.lastMicroseconds = now
        figures.received += 1
        unsatisfied -= 1
    }

    /// Counts a message that a client received before.
    mutating func heardAgain() { figures.doubled += 1 }
    /// Counts a message that was meant for another client.
    mutating func heardForeign() { figures.foreign += 1 }
    /// Counts messages that a client missed before a later one.
    mutating func passedOver(_ count: Int64) { figures.skipped += count }

    var report: LoadReport {
        var report = figures
        report.closed = closed
        report.malformed = malformed
        report.bytes = bytes
        report.reads = reads
        report.processorNanoseconds = Int64(Clock.processNanoseconds() - processorAtBegin)
        return report
    }
}
