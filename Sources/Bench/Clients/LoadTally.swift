import System

/// What the clients of one process have seen since they were told what to expect.
struct LoadTally {
    /// Of each client; nil when nothing is expected.
    private var each: Int64?
    /// What is waited for of each, and how many do not have it.
    private var goal: Int64 = 0
    private var unsatisfied = 0
    private var figures = LoadReport()
    var closed: Int64 = 0
    var malformed: Int64 = 0
    var bytes: Int64 = 0
    var reads: Int64 = 0
    /// The first change that came.
    var sample: [UInt8] = []
    var processorAtBegin: UInt64 = 0
    /// Where in a change its numbers stand.
    var hint = 0

    init() {}

    init(clients: Int, each: Int64) {
        self.each = each
        goal = each
        unsatisfied = each > 0 ? clients : 0
        figures.expected = Int64(clients) * each
    }

    var isSatisfied: Bool { unsatisfied == 0 }

    /// The first so many changes of each, or all that are expected.
    mutating func await(_ count: Int64?, of clients: [LoadClient]) {
        goal = count ?? each ?? 0
        let goal = goal
        unsatisfied = clients.count { $0.received < goal }
    }

    mutating func count(_ client: inout LoadClient, _ sequence: Int64, _ sent: Int64?, _ owner: Int64?, _ now: Int64) {
        let isOwn = client.stride == 1 || (sequence - client.nextSequence) % client.stride == 0
        guard each != nil, isOwn, client.owner == nil || client.owner == owner else {
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
        if client.received == goal { unsatisfied -= 1 }
    }

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
